"""Real brokers and clients in virtual time: the scenarios, their determinism, and checkers that catch a
broken mesh.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from simulations import checkers, cli, programs, runner, truth
from simulations.federation import Federation
from simulations.history import first_difference
from simulations.world import Process, World

ROOT = Path(__file__).parents[2]


def federation(world: World, size: int = 5) -> Federation:
    return Federation(world, "test", size, random.Random(1), lambda text: None)


@functools.cache
def played(scenario: str, seed: int) -> tuple[runner.Result, World]:
    """A run that several tests look at."""
    return runner.run(scenario, seed=seed, keep_history=True)


@pytest.mark.parametrize("scenario", list(runner.SCENARIOS))
def test_every_scenario_passes_its_checks(scenario: str) -> None:
    result, _ = played(scenario, 1)
    assert result.ok, cli.summary(result, 1.0, None)
    assert result.counts["accepted"] > 100 and result.counts["delivered"] > 100


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    one, first = played("crash-and-return", 1)
    other, second = runner.run("crash-and-return", seed=1, keep_history=True)
    assert first_difference(first.history, second.history) is None
    assert one == other


def test_two_processes_with_different_hash_seeds_print_the_same_result() -> None:
    shown = []
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "mesh", "simulate", "split-and-heal", "--seed", "11", "--json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(done.stdout)
    assert shown[0] == shown[1]
    assert len(json.loads(shown[0])["history_hash"]) == 32


def test_logs_and_truth_are_written_in_the_schema_of_every_broker(tmp_path: Path) -> None:
    result, _ = runner.run("crash-and-return", seed=2, out=str(tmp_path / "logs"))
    files = sorted((tmp_path / "logs").iterdir())
    assert sum(file.name.startswith("truth-") for file in files) == 1
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        lines = file.read_text().split("\n")
        assert lines[-1] == "" or file.name.endswith(".part")
        for line in lines[:-1]:  # the last one of a broker that was killed may be torn
            row = json.loads(line)
            assert {"v", "run", "ts", "mono_ns", "node", "boot", "inc", "seq", "kind"} <= set(row)
            rows[row["kind"]].append(row)
    assert {"meta", "hb", "mem", "link", "stats", "truth"} <= set(rows)
    ops = [row["op"] for row in rows["truth"]]
    assert ops[:5] == ["start"] * 5
    assert {"crash", "pause", "resume", "power_off", "restart", "stop"} <= set(ops)
    assert len(rows["truth"]) == len(result.faults)
    seqs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in (row for kind, group in rows.items() if kind != "truth" for row in group):
        seqs[row["node"], row["boot"]].append(row["seq"])
    for numbers in seqs.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


# --- broken on purpose


def test_a_split_that_is_not_healed_is_found() -> None:
    with World(1) as world:
        mesh = federation(world)
        mesh.start_brokers()
        mesh.wait_whole("start")
        mesh.do("partition", mesh.brokers[:2], mesh.brokers[2:])
        mesh.let_pass(10)
        mesh.check_converged()
    violations = mesh.verdicts[-1].violations
    assert len(violations) == 12  # two do not see three, three do not see two
    assert "broker-1 does not see broker-3 alive" in violations


def test_a_broker_that_stays_away_is_found() -> None:
    with World(1) as world:
        mesh = federation(world)
        mesh.start_brokers()
        mesh.wait_whole("start")
        mesh.do("crash", ["broker-4"])
        mesh.wait_whole("return")
    assert "broker-4 is not up" in mesh.verdicts[-1].violations


def test_a_mesh_that_delivers_twice_alters_or_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = programs._read

    async def broken(process: Process, ledger: Any, subscription: Any) -> None:
        class Faulty:
            """Stands before the subscription and does to deliveries what a broken broker would."""

            def __init__(self) -> None:
                self.count = 0
                self.again: Any = None

            def __aiter__(self) -> Faulty:
                return self

            async def __anext__(self) -> Any:
                if self.again is not None:
                    delivery, self.again = self.again, None
                    return delivery
                delivery = await subscription.__anext__()
                self.count += 1
                if self.count == 10:
                    self.again = delivery
                if self.count == 20:
                    delivery.body += b"!"
                if self.count == 30:
                    delivery = await subscription.__anext__()
                return delivery

        await taken(process, ledger, Faulty())  # type: ignore[arg-type]

    monkeypatch.setattr(programs, "_read", broken)
    result, _ = runner.run("calm", seed=1)
    failed = {verdict.check for verdict in result.verdicts if not verdict.ok}
    assert {"at_most_once", "genuine", "complete"} <= failed


def test_a_broker_that_dies_of_a_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    started = programs.broker

    def fragile(mesh: str, join: Any) -> Any:
        main = started(mesh, join)

        async def dies(process: Process) -> None:
            if process.name == "broker-2":
                raise ZeroDivisionError("a bug")
            await main(process)

        return dies

    monkeypatch.setattr(programs, "broker", fragile)
    result, _ = runner.run("calm", seed=1)
    failed = {verdict.check: verdict.violations for verdict in result.verdicts if not verdict.ok}
    assert "ZeroDivisionError: a bug" in failed["sound"][0]
    assert "broker-2 is not up" in failed["converged"]


def test_a_false_accusation_in_a_log_is_found() -> None:
    _, world = played("calm", 1)
    rows = truth.log_rows(truth.log_files(world))
    names = [f"broker-{number}" for number in range(1, 6)]
    assert checkers.no_false_deaths(rows, names).ok
    member = next(row for row in rows if row["kind"] == "mem")
    assert not checkers.no_false_deaths([*rows, {**member, "to_state": "dead"}], names).ok
