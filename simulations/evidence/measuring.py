"""A run's figures beyond passing or failing: how fast deaths were noticed, how often wrongly, and at what
cost.

All of it comes from the rows of the brokers' event logs and from the faults as done. The terms are
Lifeguard's. A *false positive* (FP) is a declared death of a member that no fault affected, whoever declares
it. An FP- is one of a healthy member by a healthy member. A flap is a further death of the same broker in the
view of the same other broker.

A *silence* is a time in which some brokers hear nothing from others, because these are dead, stopped, blocked
or cut off. Papers measure how long it takes until a silence is noticed and, after its end, taken back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from simulations.evidence.logs import Row
from simulations.evidence.reading import EVERY, Reader
from simulations.faults import KINDS, Fault, Span

OUTAGES: Final = ("crash", "power_off", "pause")
"""Kinds after which a broker says nothing."""
PARTINGS: Final = ("partition", "cut_one_way", "isolate")
"""Kinds after which some brokers hear nothing from others."""
RETURNS: Final = ("start", "resume")
MENDS: Final = (*RETURNS, "heal")
"""Kinds that affect nobody."""
AFTERMATH_S: Final = 6.0
"""Seconds in which a fault may still have consequences: three missed periods of a heartbeat, twice."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of some numbers, as four figures."""

    count: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None if there are no numbers."""
        found = sorted(values)
        if not found:
            return None
        return cls(len(found), _quantile(found, 0.5), _quantile(found, 0.99), round(found[-1], 6))


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of one run."""

    detection_s: Spread | None
    """From the beginning of a silence until each able broker declares its subject dead."""
    return_s: Spread | None
    """From its end until each such broker has the subject alive again."""
    whole_s: float | None
    """From the heal to a mesh that stays whole."""
    suspicions: int
    deaths: int
    false_deaths: int
    """FP: deaths of members that no fault affected."""
    false_deaths_of_healthy: int
    """Lifeguard's FP-: those whose declarer no fault affected either."""
    flaps: int
    """For the pair of brokers that has most."""
    view_sizes: int
    """How many different numbers of living members the brokers saw."""
    messages_per_broker_s: Spread | None
    """Heartbeats and data received, for each life of a broker."""
    bytes_per_broker_s: Spread | None
    """For data on the links between brokers, in and out."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def told(self, name: str) -> str:
        """One of `TOLD` in a phrase."""
        return TOLD[name](self)


def _spread_told(before: str, spread: Spread | None, nothing: str) -> str:
    if spread is None:
        return nothing
    return f"{before} after {spread.p50:.2f} s (median of {spread.count}), at most {spread.most:.2f} s"


TOLD: Final[Mapping[str, Callable[[Measures], str]]] = {
    "detection_s": lambda found: _spread_told("dead", found.detection_s, "no broker was reported dead"),
    "return_s": lambda found: _spread_told("back", found.return_s, "nobody comes back"),
    "whole_s": lambda found: (
        "never whole again" if found.whole_s is None else f"whole {found.whole_s:.2f} s after the heal"
    ),
    "suspicions": lambda found: f"{found.suspicions} suspicions in all tables together",
    "deaths": lambda found: f"{found.deaths} deaths",
    "false_deaths": lambda found: (
        f"{found.false_deaths} false deaths, {found.false_deaths_of_healthy} of the healthy by the healthy"
    ),
    "flaps": lambda found: f"{found.flaps} repeated deaths of one broker in another's eyes",
    "view_sizes": lambda found: f"{found.view_sizes} sizes of the mesh seen",
    "messages_per_broker_s": lambda found: (
        "nothing heard"
        if found.messages_per_broker_s is None
        else f"{found.messages_per_broker_s.p50:.1f} messages a second heard by a broker"
    ),
}
"""The measures that a scenario may compare with a paper's."""


class Measuring(Reader):
    """Measures a run while its rows are read. ``spans`` are the faults with their begin and end."""

    kinds = EVERY

    def __init__(self, spans: Sequence[Span], brokers: Sequence[str]) -> None:
        self.rows = 0
        """The number of them."""
        self._spans = spans
        self._brokers = brokers
        self._members: list[Row] = []
        self._names: dict[str, str] = {}
        self._lives: dict[tuple[str, str], _Heard] = {}

    def on_row(self, row: Row) -> None:
        self.rows += 1
        life = (row["node"], row["boot"])
        heard = self._lives.get(life)
        if heard is None:
            heard = self._lives[life] = _Heard(row["at_s"])
        heard.until_s = row["at_s"]
        kind = row["kind"]
        if kind == "hb":
            heard.heartbeats += 1
        elif kind == "stats":
            heard.messages = sum(link["msgs_in"] for link in row["links"])
            heard.bytes = sum(link["bytes_in"] + link["bytes_out"] for link in row["links"])
        elif kind == "mem":
            self._members.append(row)
        elif kind == "meta":
            self._names[row["node"]] = row["name"]

    def measures(self, whole_s: float | None = None) -> Measures:
        """``whole_s``: from the heal to a mesh that stayed whole."""
        members, names = self._members, self._names
        deaths = [row for row in members if row["to_state"] == "dead"]
        trouble = Trouble(self._spans, self._brokers)
        false = [row for row in deaths if not trouble.at(row["subject_name"], row["at_s"])]
        healthy = [row for row in false if not trouble.at(names.get(row["node"], ""), row["at_s"])]
        silences = list(_silences(self._spans, self._brokers))
        lives = [life for life in self._lives.values() if life.length_s > 1]
        return Measures(
            detection_s=Spread.of(_detections(deaths, silences, names, trouble)),
            return_s=Spread.of(_returns(members, silences, names)),
            whole_s=whole_s,
            suspicions=sum(row["to_state"] == "suspect" for row in members),
            deaths=len(deaths),
            false_deaths=len(false),
            false_deaths_of_healthy=len(healthy),
            flaps=max(Counter((row["node"], row["subject"]) for row in deaths).values(), default=1) - 1,
            view_sizes=len(_view_sizes(members)),
            messages_per_broker_s=Spread.of(
                (each.heartbeats + each.messages) / each.length_s for each in lives
            ),
            bytes_per_broker_s=Spread.of(each.bytes / each.length_s for each in lives),
        )


def measure(
    rows: Iterable[Row], spans: Sequence[Span], brokers: Sequence[str], *, whole_s: float | None = None
) -> Measures:
    """``rows`` are all log rows by time, with ``at_s``."""
    measuring = Measuring(spans, brokers)
    for row in rows:
        measuring.on_row(row)
    return measuring.measures(whole_s)


@dataclass(slots=True)
class _Heard:
    """Heartbeats and messages that one life of a broker received, by its log."""

    since_s: float
    until_s: float = 0.0
    heartbeats: float = 0.0
    messages: float = 0.0
    """The last counts in the log."""
    bytes: float = 0.0

    @property
    def length_s(self) -> float:
        return self.until_s - self.since_s


class Trouble:
    """The processes that a fault affects, or has just affected."""

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
    """When the struck process was started or resumed; the first of them, if there are several."""
    ends = [float("inf") if outage.end_s is None or outage.fault.for_s is None else outage.end_s]
    ends += [
        span.start_s
        for span in spans
        if span.fault.kind in RETURNS
        and span.start_s > outage.start_s
        and any(name in span.fault.a for name in outage.fault.a)
    ]
    return min(ends)


@dataclass(frozen=True, slots=True)
class Silence:
    """``observers`` hear nothing from ``subjects`` in that time."""

    from_s: float
    until_s: float
    subjects: Sequence[str]
    observers: Sequence[str]
    parted: bool
    """The network caused it: nothing is wrong with either side."""


def _silences(spans: Sequence[Span], brokers: Sequence[str]) -> Iterator[Silence]:
    for span in spans:
        fault = span.fault
        if fault.kind in OUTAGES or fault.kind == "block_io":
            until_s = _end_s(span) if fault.kind == "block_io" else _return_s(span, spans)
            yield Silence(span.start_s, until_s, fault.a, brokers, False)
        elif fault.kind in PARTINGS:
            for subjects, observers in _parted(fault, brokers):
                yield Silence(span.start_s, _end_s(span), subjects, observers, True)


def _parted(fault: Fault, brokers: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The subjects that none of the others hears, and these others."""
    named = (*fault.a, *fault.b)
    others = [name for name in brokers if name not in named]
    here, there = fault.a or others, fault.b or others
    if fault.kind == "isolate":
        yield named, others
    else:
        yield here, there
    if fault.kind == "partition":
        yield there, here


def _end_s(span: Span) -> float:
    return float("inf") if span.end_s is None else span.end_s


def _detections(
    deaths: Sequence[Row], silences: Sequence[Silence], names: Mapping[str, str], trouble: Trouble
) -> list[float]:
    """One for each silence, subject and otherwise healthy observer that declared the subject dead."""
    found: list[float] = []
    for silence in silences:
        seen: dict[tuple[str, str], float] = {}
        for row in deaths:
            observer = names.get(row["node"], "")
            if (
                silence.from_s <= row["at_s"] <= silence.until_s
                and row["subject_name"] in silence.subjects
                and observer in silence.observers
                and (silence.parted or not trouble.at(observer, row["at_s"]))
            ):
                seen.setdefault((row["node"], row["subject_name"]), row["at_s"] - silence.from_s)
        found += seen.values()
    return found


def _returns(members: Sequence[Row], silences: Sequence[Silence], names: Mapping[str, str]) -> list[float]:
    """One for each ended silence, subject and observer that had declared it dead by then."""
    found: list[float] = []
    for silence in silences:
        dead: dict[tuple[str, str], None] = {}
        for row in members:
            pair = (names.get(row["node"], ""), row["subject_name"])
            if pair[0] not in silence.observers or pair[1] not in silence.subjects:
                continue
            if row["at_s"] < silence.until_s and row["to_state"] == "dead":
                dead[pair] = None
            elif row["to_state"] == "alive" and row["at_s"] < silence.until_s:
                dead.pop(pair, None)
            elif row["to_state"] == "alive" and pair in dead:
                del dead[pair]
                found.append(row["at_s"] - silence.until_s)
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


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 6)
