"""The differences between two analyses, from their summaries, the most important first. Pure.

Runs are paired by name, or, if each summary has one run, directly. Times are compared relative to the start
of the run, since two runs are rarely at the same time of day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from mesh.analysis.reporting.findings import UNHEARD, named, natural

MEASURES: Final[Mapping[str, str]] = {
    "failures": "failures",
    "mttf_s": "failures",
    "mttr_s": "failures",
    "availability": "availability",
    "deaths_told": "detection",
    "detection": "detection",
    "agreement": "detection",
    "traffic": "messages",
    "drops": "messages",
    "late_ms": "messages",
    "matches": "compared with what was done",
    "heartbeats": "amounts",
    "clock_error_s": "amounts",
    "wall_off_s": "amounts",
}
"""Numbers of a run, or numbers by name, each with its topic."""
OF_BROKER: Final[Mapping[str, str]] = {
    "failures": "failures",
    "availability": "availability",
    "down_s": "availability",
    "boots": "brokers",
    "paused_s": "brokers",
    "away_s": "brokers",
    "unknown_s": "brokers",
}
"""Numbers of a broker, each with its topic."""
AMOUNTS: Final = ("detection: exposure_s", "detection: failures")
"""Figures of detection that are only amounts: they follow from other differences."""
TOPICS: Final = (
    *("runs", "failures", "availability", "partitions", "detection", "brokers", "messages"),
    *("compared with what was done", "amounts"),
)
"""The most important first."""
SIDE_MOST: Final = 8
"""Brokers of a side that are named."""
SLACK: Final = 1e-9
TOGETHER_S: Final = 2.0
"""Parts with the same sides that begin within this of each other are the same part. Their lengths count as
equal if they differ by no more."""


class Difference(NamedTuple):
    """A difference. None: it does not exist there."""

    run: str
    what: str
    before: Any
    after: Any
    topic: str = "runs"
    """One of `TOPICS`."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """All differences of two summaries, which have the form of ``summary.json``. Those of a run are together,
    in the order of their topics."""
    olds, news = ({run["run"]: run for run in summary["runs"]} for summary in (before, after))
    found = []
    if len(olds) == len(news) == 1 and olds.keys() != news.keys():
        (old,), (new,) = olds.values(), news.values()
        found += [Difference("", "run", old["run"], new["run"]), *_of_run(new["run"], old, new)]
        olds = news = {}
    for run in sorted({*olds, *news}, key=natural):
        if run not in olds or run not in news:
            gone, come = (runs[run]["verdict"] if run in runs else None for runs in (olds, news))
            found.append(Difference(run, "run", gone, come))
        else:
            found += _of_run(run, olds[run], news[run])
    found += [
        Difference("", f"logs: {name}", old, new, "amounts")
        for name, old, new in _changed(_quality(before), _quality(after))
    ]
    return found


def _quality(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The quality of the logs, with damaged files as one text."""
    quality = dict(summary["quality"])
    damaged = quality.pop("damaged", [])
    return quality | {"damaged": ", ".join(each["file"] for each in damaged) or None}


def _of_run(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    return sorted(_unordered(run, old, new), key=lambda each: TOPICS.index(each.topic))


def _unordered(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    if old["verdict"] != new["verdict"]:
        yield Difference(run, "verdict", old["verdict"], new["verdict"])
    for name, topic in MEASURES.items():
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            for inner, one, other in _changed(old[name], new[name]):
                what = f"{name}: {inner}"
                yield Difference(run, what, one, other, "amounts" if what in AMOUNTS else topic)
        elif not _same(old[name], new[name]):
            yield Difference(run, name, old[name], new[name], topic)
    yield from _parts(run, old, new)
    olds, news = (_by_name(each["brokers"]) for each in (old, new))
    for name in sorted({*olds, *news}, key=natural):
        one, other = olds.get(name), news.get(name)
        if one is None or other is None:
            yield Difference(run, f"broker {name}", one and "there", other and "there", "brokers")
            continue
        for measure, topic in OF_BROKER.items():
            if not _same(one[measure], other[measure]):
                yield Difference(run, f"broker {name}: {measure}", one[measure], other[measure], topic)


def _by_name(brokers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A broker that lost its state returns with another id and its old name: it is the second of that
    name."""
    count: Counter[str] = Counter()
    found = {}
    for broker in brokers:
        name = broker["name"]
        count[name] += 1
        found[name if count[name] == 1 else f"{name} ({count[name]})"] = broker
    return found


def _parts(run: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    left = [(_since(part["start"], new), part) for part in new["parts"]]
    for part in old["parts"]:
        at_s = _since(part["start"], old)
        twin = next(
            (
                each
                for each in left
                if _sides(each[1]) == _sides(part)
                and each[1]["kind"] == part["kind"]
                and abs(each[0] - at_s) <= TOGETHER_S
            ),
            None,
        )
        if twin is None:
            yield Difference(run, "part", _told(part, at_s), None, "partitions")
            continue
        left.remove(twin)
        if not _as_long(part, twin[1]):
            yield Difference(run, "part", _told(part, at_s), _told(twin[1], twin[0]), "partitions")
    for at_s, part in left:
        yield Difference(run, "part", None, _told(part, at_s), "partitions")


def _told(part: Mapping[str, Any], at_s: float) -> str:
    between = f" {UNHEARD} " if part["kind"] == "one-way" else " | "
    sides = between.join(named(side, SIDE_MOST) for side in part["sides"])
    lasted_s = _lasted_s(part)
    until = "to the end" if lasted_s is None else f"for {lasted_s:.1f} s"
    return f"{part['kind']} at {at_s:.1f} s {until}: {sides}"


def _lasted_s(part: Mapping[str, Any]) -> float | None:
    if part["end"] is None:
        return None
    return (datetime.fromisoformat(part["end"]) - datetime.fromisoformat(part["start"])).total_seconds()


def _as_long(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    lasted_s, of_other_s = _lasted_s(one), _lasted_s(other)
    if lasted_s is None or of_other_s is None:
        return lasted_s is of_other_s
    return abs(lasted_s - of_other_s) <= TOGETHER_S


def _sides(part: Mapping[str, Any]) -> Collection[tuple[str, ...]]:
    """In order only for a one-way part: the first side did not hear the second."""
    sides = [tuple(side) for side in part["sides"]]
    return sides if part["kind"] == "one-way" else frozenset(sides)


def _since(moment: str, run: Mapping[str, Any]) -> float:
    return (datetime.fromisoformat(moment) - datetime.fromisoformat(run["started"])).total_seconds()


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names: Sequence[str] = [*old, *(name for name in new if name not in old)]
    return [(name, old.get(name), new.get(name)) for name in names if not _same(old.get(name), new.get(name))]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return bool(abs(one - other) <= SLACK * max(1.0, abs(one), abs(other)))
    return bool(one == other)
