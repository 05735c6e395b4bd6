"""Plays scenarios and counts which of their effects the analysis finds, without Spark. A command:

    python -m tests.mesh.analysis.truth.proof FOLDER [--seeds 50] [--scenarios calm,pauses]

It keeps the logs, so a second call only counts again. ``lives`` is not a scenario of the catalogue, but one
for each seed: random faults of brokers, including power losses.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mesh.analysis.truth.scoring import Run, Scored, score, truth_row
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.lives.gathering import lives_of as told_of
from tests.mesh.analysis.lives.test_simulated import scenario as lives_scenario
from tests.mesh.analysis.oracle.log_facts import Facts, read_facts, wall_us
from tests.mesh.analysis.oracle.silence_tables import Oracle
from tests.mesh.analysis.silence.known import joined_of, lives_of, silence_of

SCENARIOS = (
    "calm",
    "random-loss",
    "jitter-and-bursts",
    "reset-storm",
    "saturated-links",
    "split-and-heal",
    "split-in-half",
    "split-outlasts-memory",
    "half-open-partition",
    "bridge-partition",
    "ring-of-majorities",
    "rolling-partition",
    "isolated-broker",
    "black-holed-edge",
    "unheard",
    "deaf-flip-flop",
    "swizzle-clog",
    "leave-in-a-partition",
    "steady-kills",
    "pauses",
)
LIVES = "lives"
KINDS = ("part", "crash", "power_off", "pause", "leave")
SECOND = 1_000_000
SHARE = 0.99


class Weighed(NamedTuple):
    """A match, and the maximum error of its moment according to its table: the death, or the end of the
    part."""

    row: Scored
    error_s: float


@dataclass
class Score:
    """The counts for one kind, and a sentence for each error."""

    period_s: float = 1.0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def share(self, missed: str) -> float:
        """Precision with ``fp``, recall with ``fn``."""
        whole = self.counts["tp"] + self.counts[missed]
        return self.counts["tp"] / whole if whole else 1.0

    def add(self, where: str, rows: Iterable[Weighed]) -> None:
        for (of, truth, found, verdict, _, start_lag_s, end_lag_s), error_s in rows:
            self.counts[verdict] += 1
            late = start_lag_s is not None and abs(start_lag_s) > max(self.period_s, error_s)
            early = of == "part" and end_lag_s is not None and end_lag_s < -error_s
            self.counts["late"] += late
            self.counts["early"] += early
            if verdict in ("fp", "fn") or late or early:
                self.wrong.append(
                    f"{where}: {of} {verdict}, done: {truth}, found: {found}, lags {start_lag_s} {end_lag_s}"
                )


def scored(facts: Facts) -> list[Weighed]:
    """The matches of a run, whose outages and parts the oracle has checked."""
    lives = lives_of(facts)
    found = silence_of(facts, lives)
    oracle = Oracle(facts, lives)
    assert {row[:6] for row in found.outages} == oracle.outages()
    oracle.check(found.parts, found.sides)
    rows = score(
        [
            truth_row(wall_us(row), row["op"], row["of"], row["a"], row["b"], row["value"], row["more"])
            for row in facts.truth
        ],
        Run(
            names=facts.names,
            lives=lives,
            silent=[row[:4] for row in found.outages],
            parts=[row[:4] for row in found.parts],
            sides=found.sides,
            joined=joined_of(facts),
            logged=[(boot.node, boot.first, boot.told, boot.last) for boot in facts.boots],
            holes=[(node, *hole) for node, hole in facts.holes],
            period=round(max(boot.period_s for boot in facts.boots) * SECOND),
            counters=round(max(boot.stats_s for boot in facts.boots) * SECOND),
        ),
    )
    errors = {told.end: told.error_s for each in told_of(facts).values() for told in each}
    ends = {f"part {no}": end for no, _, end, *_ in found.parts}
    return [Weighed(row, errors.get(_moment(row, ends), 0.0)) for row in rows]


def _moment(row: Scored, ends: Mapping[str, int | None]) -> int | None:
    """The end of a part, otherwise the time of the event, as found."""
    of, _, found, _, at, start_lag_s, _ = row
    if found is None or start_lag_s is None:
        return None
    if of == "part":
        return ends.get("part " + found.partition(":")[0].rpartition(" ")[2])
    return at + round(start_lag_s * SECOND)


def played(name: str, seed: int, folder: Path) -> Path:
    """The logs of a scenario. It is played unless they exist."""
    logs = folder / f"{name}-{seed}"
    done = logs / "played"
    if not done.exists():
        file = name
        if name == LIVES:
            folder.mkdir(parents=True, exist_ok=True)
            file = str(folder / f"{name}-{seed}.toml")
            Path(file).write_text(lives_scenario(seed))
        Play(load(file), seed=seed, out=str(logs)).run()
        done.touch()
    return logs


def plays(names: Sequence[str], seeds: Iterable[int], folder: Path) -> Iterator[tuple[str, list[Weighed]]]:
    """By name and seed. Seeds come first, so that an interrupted run covers all scenarios."""
    for seed in seeds:
        for name in names:
            logs = played(name, seed, folder)
            try:
                yield f"{name} {seed}", scored(read_facts(logs))
            except AssertionError as error:
                raise AssertionError(f"{name} {seed}: {error}") from error


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--seeds", type=int, default=50)
    options.add_argument("--scenarios", default=",".join((*SCENARIOS, LIVES)))
    given = options.parse_args()
    logging.disable(logging.CRITICAL)
    total: dict[str, Score] = defaultdict(Score)
    for where, rows in plays(given.scenarios.split(","), range(1, given.seeds + 1), given.folder):
        counts: Counter[str] = Counter()
        for kind in KINDS:
            of_kind = [each for each in rows if each.row[0] == kind]
            total[kind].add(where, of_kind)
            counts.update(f"{kind} {each.row[3]}" for each in of_kind)
        print(where, json.dumps(counts), flush=True)
    for kind in KINDS:
        print("".join(f"{each}\n" for each in total[kind].wrong), end="")
    for kind in KINDS:
        one = total[kind]
        print(f"{kind}: precision {one.share('fp'):.4f}, recall {one.share('fn'):.4f}, {dict(one.counts)}")


if __name__ == "__main__":
    main()
