"""The swarm plays the same seeds with any number of processes, finds what is broken, and reports it."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest
from rich.console import Console

from simulations.cli.showing import STATES, swarm_summary
from simulations.faults import KINDS
from simulations.runs import swarming
from simulations.runs.swarming import Outcome, Report, play_seed, swarm
from simulations.scenarios.generating import generate
from tests.simulations.broken import play_seed_blind

GATED: tuple[int, ...] = tuple(range(1, 21))
"""Seeds that must pass. If one fails after a change, it has found a defect, in the change or in a check."""


def quick(seed: int) -> Outcome:
    failed = ("detected",) if seed % 3 == 0 else ()
    return Outcome(seed, 0.1, 10.0, "ab", failed, coverage={"crash": {"idle": 1}})


def killed_by_the_third(seed: int) -> Outcome:
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return quick(seed)


def test_a_killed_process_ends_the_swarm_and_is_reported() -> None:
    outcomes = list(swarm(1, 1000, jobs=2, played=killed_by_the_third))
    assert len(outcomes) < 1000
    assert "was killed" in next(each for each in outcomes if each.seed == 3).broke


def endless(seed: int) -> Outcome:
    while seed > 1:
        time.sleep(1)
    return quick(seed)


def test_a_caller_that_leaves_early_waits_for_no_seed() -> None:
    outcomes = swarm(1, 1000, jobs=2, played=endless)
    assert next(outcomes).seed == 1
    began = time.perf_counter()
    outcomes.close()
    assert time.perf_counter() - began < 5
    assert not multiprocessing.active_children()


def test_every_seed_is_played_and_reported_once() -> None:
    assert [each.seed for each in swarm(5, 4, played=quick)] == [5, 6, 7, 8]
    assert sorted(each.seed for each in swarm(5, 4, jobs=2, played=quick)) == [5, 6, 7, 8]


def test_no_seed_is_begun_after_the_time_allowed() -> None:
    assert list(swarm(1, 1000, wall_max_s=0.0, played=quick)) == []
    assert list(swarm(1, 1000, jobs=2, wall_max_s=0.0, played=quick)) == []


def test_other_processes_play_a_seed_as_this_one_does() -> None:
    (there,) = swarm(2, 1, jobs=2)
    assert there.history_hash == play_seed(2).history_hash


def test_a_seed_that_never_ends_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def play_for_ever(*given: object, **more: object) -> None:
        while True:
            time.perf_counter()

    monkeypatch.setattr(swarming, "play", play_for_ever)
    monkeypatch.setattr(swarming, "SEED_MAX_S", 0.05)
    outcome = play_seed(1)
    assert not outcome.ok and outcome.broke == "it was not done after computing for 0.05 s"


def test_a_simulator_that_breaks_is_a_finding_and_no_end_of_the_swarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play_badly(*given: object, **more: object) -> None:
        raise IndexError("nothing there")

    monkeypatch.setattr(swarming, "play", play_badly)
    assert [each.broke for each in swarm(1, 2)] == ["IndexError: nothing there"] * 2


def test_a_broken_membership_is_found() -> None:
    found = next(each for each in swarm(4, 20, played=play_seed_blind) if not each.ok)
    assert found.result is not None and found.violation
    assert found.result.scenario.name == f"swarm-{found.seed}"


def test_the_report_counts_and_names_the_command_for_each_failure() -> None:
    report = Report(7, 1)
    for outcome in swarm(1, 6, played=quick):
        report.add(outcome)
    report.add(replace(quick(7), broke="it broke"))
    console = Console(file=io.StringIO(), width=100, _environ={})
    report.kept[6] = "a folder/swarm-6.toml"
    swarm_summary(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "again: mesh simulate swarm-3 --seed 3" in shown and "seed 7: it broke" in shown
    assert "again: mesh simulate replay 'a folder/swarm-6.toml'" in shown
    assert "7 seeds, 3 failed; 70 virtual seconds" in shown
    assert "never: " in shown and "crash" not in report.unmet and "pause" in report.unmet
    assert report.by_check == {"detected": 2, "(broke)": 1}
    assert report.as_json()["coverage"] == {"crash": {"idle": 7}}
    assert [each["seed"] for each in report.as_json()["failures"]] == [3, 6, 7]
    assert "failure rate 3/7 = 42.9 %, at most 77.5 % with 95 % confidence" in shown
    assert "seeds from 1 on, chosen" in shown
    assert report.as_json()["failure_rate"]["failures"] == 3


def test_a_swarm_begins_at_a_seed_of_its_own() -> None:
    firsts = {swarming.fresh_seed() for _ in range(50)}
    assert len(firsts) > 45 and min(firsts) > 1_000_000


def test_a_seed_can_be_played_by_the_name_of_its_scenario() -> None:
    assert swarming.drawn("swarm-12") == (generate(12), 12)
    assert swarming.drawn("calm") is None


def test_the_table_of_coverage_fits_a_terminal() -> None:
    report = Report(1, 1)
    states = dict.fromkeys(STATES, 1000)
    report.add(replace(quick(1), coverage=dict.fromkeys(KINDS, states)))
    console = Console(file=io.StringIO(), width=80, _environ={})
    swarm_summary(report, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    for kind in KINDS:
        (line,) = [line for line in lines if line.split()[:1] == [kind]]
        assert line.split()[1:] == ["1000"] * len(STATES)


@pytest.mark.parametrize("seed", GATED)
def test_a_seed_of_the_gate_passes(seed: int) -> None:
    outcome = play_seed(seed)
    assert outcome.ok, f"{outcome.broke or outcome.failed}: {outcome.violation}; {outcome.replay_command}"
