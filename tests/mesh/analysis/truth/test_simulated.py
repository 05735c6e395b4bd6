"""Parts that simulated meshes were in, found in their logs and compared with what was done to them.

Twenty scenarios: cuts of all shapes, crashes, pauses, loss, slow links and calm. The facts are those of the
oracle's reader. ``MANGROVE_SEEDS=50`` plays more seeds than the default, ``MANGROVE_SCENARIOS`` names fewer
scenarios.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mesh.analysis.truth.scoring import Run, Scored, score, truth_row
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.oracle.log_facts import Facts, read_facts, wall_us
from tests.mesh.analysis.oracle.silence_tables import Oracle
from tests.mesh.analysis.silence.known import joined_of, lives_of, silence_of

SEEDS = int(os.environ.get("MANGROVE_SEEDS", "1"))
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
NAMES = os.environ.get("MANGROVE_SCENARIOS", ",".join(SCENARIOS)).split(",")
SECOND = 1_000_000


@dataclass
class Score:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def share(self, missed: str) -> float:
        return self.counts["tp"] / max(1, self.counts["tp"] + self.counts[missed])


def scored(facts: Facts) -> list[Scored]:
    """The matches of a run, whose parts the oracle has checked."""
    lives = lives_of(facts)
    found = silence_of(facts, lives)
    oracle = Oracle(facts, lives)
    assert {row[:6] for row in found.outages} == oracle.outages()
    oracle.check(found.parts, found.sides)
    return score(
        [
            truth_row(
                wall_us(row),
                row["op"],
                row["of"],
                row["a"],
                row["b"],
                row["value"],
                row["more"],
            )
            for row in facts.truth
        ],
        Run(
            names=facts.names,
            lives=lives,
            silent=[row[:4] for row in found.outages],
            parts=[row[:4] for row in found.parts],
            sides=found.sides,
            joined=joined_of(facts),
            period=round(max(boot.period_s for boot in facts.boots) * SECOND),
        ),
    )


def play(name: str, seed: int, folder: Path) -> list[Scored]:
    logs = folder / f"{name}-{seed}"
    Play(load(name), seed=seed, out=str(logs)).run()
    return scored(read_facts(logs))


def add(total: Score, name: str, seed: int, rows: list[Scored]) -> None:
    for of, truth, found, verdict, _, start_lag_s, end_lag_s in rows:
        if of != "part":
            continue
        total.counts[verdict] += 1
        late = start_lag_s is not None and not -1.0 <= start_lag_s <= 1.0
        early = end_lag_s is not None and end_lag_s < 0
        if verdict in ("fp", "fn") or late or early:
            total.wrong.append(f"{name} {seed}: {verdict} {truth} / {found} {start_lag_s} {end_lag_s}")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_parts_of_a_scenario_are_what_was_done_to_it(name: str, tmp_path: Path) -> None:
    """All parts of 3.2 periods and more; begun within a period, and never ended before the cut was mended."""
    total = Score()
    for seed in range(1, SEEDS + 1):
        add(total, name, seed, play(name, seed, tmp_path))
    print(name, dict(total.counts), *total.wrong, sep="\n  ")
    assert total.share("fp") >= 0.99 or total.counts["fp"] == 0, total.wrong
    assert total.share("fn") >= 0.99 or total.counts["fn"] == 0, total.wrong
    assert len(total.wrong) <= 0.01 * SEEDS * max(1, total.counts["tp"]), total.wrong
