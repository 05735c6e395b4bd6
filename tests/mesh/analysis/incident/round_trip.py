"""Plays scenarios, makes scenarios from their logs, plays those, and counts the events that happened again. A
command:

    python -m tests.mesh.analysis.incident.round_trip FOLDER [--seeds 5] [--scenarios pauses,swizzle-clog]

It runs without Spark: facts are those of the oracle's reader. An event is what a scenario does to play it:
its kind, the brokers on each side, its start and its duration.
"""

from __future__ import annotations

import argparse
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from mesh.analysis.incident.happenings import Incident, incident
from mesh.analysis.incident.scenario_text import RoundTrips, Setting, scenario_text
from mesh.analysis.incident.scope import Scope
from mesh.analysis.truth.matching import RESOLVED_PERIODS
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.lives.gathering import evidence_of, tell
from tests.mesh.analysis.oracle.log_facts import Facts, read_facts, rows_of
from tests.mesh.analysis.silence.known import silence_of
from tests.mesh.analysis.truth.proof import LIVES, SCENARIOS, played

SECOND = 1_000_000
PERIOD = SECOND
"""The period of all scenarios here."""
SLACK_PERIODS = 2.0
APART_PERIODS = 3
TAIL = 8.0
PARTS = ("complete", "partial", "one-way")


class Event(NamedTuple):
    """A part, or an event of a broker, with the names of brokers in the scenario made from it."""

    kind: str
    sides: frozenset[frozenset[str]]
    at: int
    until: int | None


class Story(NamedTuple):
    """The content of one run's logs."""

    incident: Incident
    parts: list[tuple[str, frozenset[frozenset[str]], int, int | None]]
    """Kind, sides by ids, start and end, as in the tables."""

    def events(self, names: Mapping[str, str], period: int) -> list[Event]:
        """Brokers get these names. A one-way cut and the cut of both ways that follows from it are one."""
        found: list[Event] = []
        for kind, sides, start, end in self.parts:
            who = frozenset(frozenset(names[node] for node in side) for side in sides)
            before = next(
                (
                    each
                    for each in found
                    if each.kind == "one-way" and each.sides == who and _follows(each, start, period)
                ),
                None,
            )
            if before is not None:
                found[found.index(before)] = before._replace(until=end)
            else:
                found.append(Event(kind, who, start, end))
        for each in self.incident.happenings:
            if not each.b:
                sides = frozenset({frozenset(names[node] for node in each.a)})
                found.append(Event(each.kind, sides, each.at, each.until))
        return found


def _follows(before: Event, start: int, period: int) -> bool:
    return before.until is not None and abs(start - before.until) <= APART_PERIODS * period


class Replayed(NamedTuple):
    """The events in both runs, in the first only, and in the second only."""

    again: list[Event]
    lacking: list[Event]
    extra: list[Event]

    def counts(self, period: int) -> Counter[str]:
        """Parts shorter than the analysis promises to find are counted separately."""
        least = RESOLVED_PERIODS * period
        counts = Counter({"again": len(self.again)})
        for what, events in (("lacking", self.lacking), ("extra", self.extra)):
            for event in events:
                length = least if event.until is None else event.until - event.at
                short = event.kind in PARTS and length < least
                counts[f"{what}, below resolution" if short else what] += 1
        return counts


def told(facts: Facts) -> Story:
    """The events according to the logs."""
    nodes = sorted({boot.node for boot in facts.boots} | {word.subject for word in facts.said})
    lives: list[Any] = [
        SimpleNamespace(node=node, **life._asdict())
        for node in nodes
        for life in tell(evidence_of(facts, node))
    ]
    found = silence_of(facts, lives)
    parts: list[Any] = [
        SimpleNamespace(no=no, start=start, end=end, kind=kind) for no, start, end, kind, _ in found.parts
    ]
    sides: list[Any] = [SimpleNamespace(no=no, node=node, side=side) for no, node, side in found.sides]
    outages: list[Any] = [
        SimpleNamespace(src=src, dst=dst, last=last, next=following, expected=expected, cause=cause)
        for src, dst, last, following, expected, cause, _ in found.outages
    ]
    side_of: dict[int, dict[int, set[str]]] = {}
    for no, node, side in found.sides:
        side_of.setdefault(no, {}).setdefault(side, set()).add(node)
    return Story(
        incident(lives, parts, sides, outages, period_s=facts.boots[0].period_s),
        [
            (kind, frozenset(map(frozenset, side_of[no].values())), start, end)
            for no, start, end, kind, _ in found.parts
        ],
    )


def setting_of(logs: Path, facts: Facts) -> Setting:
    rows = [row for path in sorted(logs.glob("*.jsonl*")) for row in rows_of(path)[0]]
    trips = sorted(row["rtt_us"] for row in rows if row["kind"] == "hb" and row["rtt_us"] is not None)
    slow = [trip for trip in trips if trip > TAIL * trips[len(trips) // 2]]
    published: dict[str, int] = {}
    for row in rows:
        if row["kind"] == "stats":
            published[row["boot"]] = max(published.get(row["boot"], 0), row["published"])
    return Setting(
        run=facts.boots[0].run,
        names=facts.names,
        period_s=facts.boots[0].period_s,
        deadline_s=facts.boots[0].deadline_s,
        round_trips=RoundTrips(
            trips[0], trips[len(trips) // 2], len(slow) / len(trips), median(slow) if slow else 0.0
        )
        if trips
        else None,
        published_per_s=sum(published.values()) / ((facts.end - facts.begin) / SECOND),
        verdict=[],
    )


def replayed(logs: Path, folder: Path, seed: int) -> Replayed | None:
    """None if nothing happened, so that there is nothing to play."""
    facts = read_facts(logs)
    first = told(facts)
    if not first.incident.happenings:
        return None
    file = folder / f"{logs.name}.toml"
    text = scenario_text(Scope(first.incident, (), 0), setting_of(logs, facts))
    again = folder / f"{logs.name}-again"
    if not (again / "played").exists() or file.read_text() != text:
        shutil.rmtree(again, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        file.write_text(text)
        Play(load(str(file)), seed=seed, out=str(again)).run()
        (again / "played").touch()
    facts_again = read_facts(again)
    numbers = {node: f"broker-{number}" for number, node in enumerate(first.incident.first, 1)}
    period = round(facts.boots[0].period_s * SECOND)
    return compared(
        first.events(numbers, period),
        told(facts_again).events(facts_again.names, period),
        round(SLACK_PERIODS * period),
    )


def compared(wanted: Sequence[Event], found: Sequence[Event], slack: int) -> Replayed:
    """Matched one to one, at the time shift that gives the most matches."""
    shifts = [other.at - one.at for one in wanted for other in found if one[:2] == other[:2]] or [0]
    return max((_paired(wanted, found, shift, slack) for shift in shifts), key=lambda each: len(each.again))


def _paired(wanted: Sequence[Event], found: Sequence[Event], shift: int, slack: int) -> Replayed:
    left, again, lacking = list(found), [], []
    for one in wanted:
        same = [other for other in left if _is_same(one, other, shift, slack)]
        if same:
            left.remove(min(same, key=lambda other: abs(other.at - shift - one.at)))
            again.append(one)
        else:
            lacking.append(one)
    return Replayed(again, lacking, left)


def _is_same(one: Event, other: Event, shift: int, slack: int) -> bool:
    if one[:2] != other[:2] or (one.until is None) != (other.until is None):
        return False
    lengths = [0 if each.until is None else each.until - each.at for each in (one, other)]
    return abs(other.at - shift - one.at) <= slack and abs(lengths[0] - lengths[1]) <= slack


def plays(names: Sequence[str], seeds: Sequence[int], folder: Path) -> Iterator[tuple[str, Replayed]]:
    for seed in seeds:
        for name in names:
            done = replayed(played(name, seed, folder), folder / "again", seed + 1000)
            if done is not None:
                yield f"{name} {seed}", done


def words(event: Event) -> str:
    length = "" if event.until is None else f" for {(event.until - event.at) / SECOND:.1f} s"
    sides = " | ".join(sorted(" ".join(sorted(side)) for side in event.sides))
    return f"{event.kind} at {event.at / SECOND % 1000:.1f}{length}: {sides}".replace("broker-", "")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--scenarios", default=",".join((*SCENARIOS, LIVES)))
    given = options.parse_args()
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    for where, done in plays(given.scenarios.split(","), range(1, given.seeds + 1), given.folder):
        counts = done.counts(PERIOD)
        total.update(counts)
        print(where, dict(counts), *(f"\n    lacks {words(each)}" for each in done.lacking), end="")
        print(*(f"\n    extra {words(each)}" for each in done.extra), flush=True)
    print(dict(total), f"{total['again'] / max(1, total['again'] + total['lacking']):.3f} again")


if __name__ == "__main__":
    main()
