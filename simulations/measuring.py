"""What a run's figures are, beside whether it passed: how fast deaths were noticed, how often wrongly, what
it cost.

All of it comes from the rows of the brokers' event logs and from what was really done. Lifeguard's terms: a
*false positive* (FP) is a death declared of somebody to whom nothing was being done, whoever says so; one of
the healthy about the healthy is an FP-. A flap is a further death of the same broker in the same broker's
eyes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from simulations.faults import KINDS, Span

OUTAGES: Final = ("crash", "power_off", "pause")
"""Kinds after which a broker says nothing."""
RETURNS: Final = ("start", "resume")
MENDS: Final = (*RETURNS, "heal")
"""Kinds that trouble nobody."""
AFTERMATH_S: Final = 6.0
"""So long after a fault its consequences may still come: three periods of a heartbeat missed, twice."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """A handful of numbers in four."""

    count: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None of nothing."""
        found = sorted(values)
        if not found:
            return None
        return cls(len(found), _quantile(found, 0.5), _quantile(found, 0.99), round(found[-1], 6))


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of one run."""

    detection_s: Spread | None
    """From the beginning of an outage to each healthy broker's declaring it dead."""
    deaths: int
    false_deaths: int
    """FP: of somebody to whom nothing was being done."""
    false_deaths_of_healthy: int
    """Lifeguard's FP-: and by somebody to whom nothing was being done either."""
    flaps: int
    """Of the pair of brokers that has most."""
    view_sizes: int
    """How many different numbers of living members brokers believed in."""
    messages_per_broker_s: Spread | None
    """Heartbeats and data heard, of each life of a broker."""
    bytes_per_broker_s: Spread | None
    """Of data on the links between brokers, in and out."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(rows: Sequence[Row], spans: Sequence[Span], brokers: Sequence[str]) -> Measures:
    """``rows`` are all log rows by time, with ``at_s``; ``spans`` what was done, and from when to when."""
    members = [row for row in rows if row["kind"] == "mem"]
    deaths = [row for row in members if row["to_state"] == "dead"]
    names = {row["node"]: row["name"] for row in rows if row["kind"] == "meta"}
    trouble = Trouble(spans, brokers)
    false = [row for row in deaths if not trouble.at(row["subject_name"], row["at_s"])]
    healthy = [row for row in false if not trouble.at(names.get(row["node"], ""), row["at_s"])]
    return Measures(
        detection_s=Spread.of(_detections(deaths, spans, names, trouble)),
        deaths=len(deaths),
        false_deaths=len(false),
        false_deaths_of_healthy=len(healthy),
        flaps=max(Counter((row["node"], row["subject"]) for row in deaths).values(), default=1) - 1,
        view_sizes=len(_view_sizes(members)),
        messages_per_broker_s=Spread.of(_rates(rows, _messages)),
        bytes_per_broker_s=Spread.of(_rates(rows, _bytes)),
    )


class Trouble:
    """To whom something was being done, or just had been."""

    def __init__(self, spans: Sequence[Span], brokers: Sequence[str]) -> None:
        self._times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for span in (span for span in spans if span.fault.kind not in MENDS):
            kind = KINDS[span.fault.kind]
            struck: Sequence[str] = (*span.fault.a, *span.fault.b)
            if kind.of == "links" and not (span.fault.a and span.fault.b):
                struck = brokers
            end_s = span.start_s if not kind.lasting else float("inf") if span.end_s is None else span.end_s
            if span.fault.kind in OUTAGES:
                end_s = _return_s(span, spans)
            for name in struck:
                self._times[name].append((span.start_s, end_s + AFTERMATH_S))

    def at(self, name: str, at_s: float) -> bool:
        return any(start_s <= at_s <= end_s for start_s, end_s in self._times.get(name, ()))


def _return_s(outage: Span, spans: Sequence[Span]) -> float:
    """When whoever was struck was started or resumed; the first of them, if there are several."""
    ends = [float("inf") if outage.end_s is None or outage.fault.for_s is None else outage.end_s]
    ends += [
        span.start_s
        for span in spans
        if span.fault.kind in RETURNS
        and span.start_s > outage.start_s
        and any(name in span.fault.a for name in outage.fault.a)
    ]
    return min(ends)


def _detections(
    deaths: Sequence[Row], spans: Sequence[Span], names: Mapping[str, str], trouble: Trouble
) -> list[float]:
    """One for each outage and healthy broker that called the victim dead while it was away."""
    found: list[float] = []
    for span in (span for span in spans if span.fault.kind in OUTAGES):
        until_s = _return_s(span, spans)
        seen: dict[tuple[str, str], float] = {}
        for row in deaths:
            healthy = not trouble.at(names.get(row["node"], ""), row["at_s"])
            if healthy and row["subject_name"] in span.fault.a and span.start_s <= row["at_s"] <= until_s:
                seen.setdefault((row["node"], row["subject_name"]), row["at_s"] - span.start_s)
        found += seen.values()
    return found


def _view_sizes(members: Sequence[Row]) -> dict[int, None]:
    """From the rows alone: every change of a member's state adds to its observer's view or takes from it."""
    alive: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    sizes: dict[int, None] = {}
    for row in members:
        view = alive[row["node"], row["boot"]]
        if row["to_state"] in ("alive", "suspect"):
            view[row["subject"]] = None
        else:
            view.pop(row["subject"], None)
        sizes[len(view)] = None
    return sizes


def _rates(rows: Sequence[Row], amount: Callable[[Row], float]) -> list[float]:
    """Per second of each life of a broker that lasted for more than one."""
    begun: dict[tuple[str, str], float] = {}
    until: dict[tuple[str, str], float] = {}
    total: dict[tuple[str, str], float] = defaultdict(float)
    last: dict[tuple[str, str], float] = {}
    for row in rows:
        life = (row["node"], row["boot"])
        begun.setdefault(life, row["at_s"])
        until[life] = row["at_s"]
        if row["kind"] == "stats":
            last[life] = amount(row)
        else:
            total[life] += amount(row)
    return [
        (total[life] + last.get(life, 0.0)) / (until[life] - begun[life])
        for life in begun
        if until[life] - begun[life] > 1
    ]


def _messages(row: Row) -> float:
    if row["kind"] == "stats":
        return float(sum(link["msgs_in"] for link in row["links"]))
    return float(row["kind"] == "hb")


def _bytes(row: Row) -> float:
    if row["kind"] == "stats":
        return float(sum(link["bytes_in"] + link["bytes_out"] for link in row["links"]))
    return 0.0


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 6)
