"""The broker's timer continues whatever a step does. A step that fails is reported, counted and left
alone."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from mesh import Client
from mesh.broker.beat import FAULT_PAUSE_S, LATENESS_PERIOD_S, REPORTS_MAX, Beat
from mesh.dataplane.exchange import Exchange
from simulations import Mesh, World
from simulations.world import Process


def run(main: Any, seconds: float, *, keep_failures: bool = False) -> Any:
    """Run a program for so long. Returns what it exposed and how often it failed."""
    with World(1, keep_failures=keep_failures) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(seconds)
        return node.exposed, [str(failure) for failure in world.failures]


def test_steps_are_called_when_they_are_due_and_lateness_is_sampled_in_between() -> None:
    async def main(process: Process) -> None:
        times: list[float] = []
        late: list[float] = []

        def step(now: float) -> float:
            times.append(now)
            return now + 0.03 if len(times) < 5 else now + 1e6

        beat = Beat("alpha", (step,), late=late.append)
        beat.start()
        await asyncio.sleep(0.5)
        beat.stop()
        count = len(times)
        await asyncio.sleep(5)
        process.exposed = [round(now - times[0], 2) for now in times], len(times) - count, max(late)
        await process.stopping.wait()

    (times, after, late), _ = run(main, 10)
    assert times[:5] == [0.0, 0.03, 0.06, 0.09, 0.12]
    assert times[5:] == [round(0.12 + LATENESS_PERIOD_S * n, 2) for n in range(1, len(times) - 4)]
    assert after == 0 and late < 0.01


def test_a_step_that_raises_is_reported_and_paused_while_other_steps_continue() -> None:
    """The timer used to end permanently: no expiry, no statistics, and no report."""

    async def main(process: Process) -> None:
        calls: dict[str, int] = {"bad": 0, "good": 0}

        def bad(now: float) -> float:
            calls["bad"] += 1
            raise ValueError("a defect")

        def good(now: float) -> float:
            calls["good"] += 1
            return now + 1e6

        beat = Beat("alpha", (bad, good), late=lambda late_s: None)
        beat.start()
        await asyncio.sleep(10 * FAULT_PAUSE_S)
        beat.stop()
        process.exposed = (beat.faults, calls)
        await process.stopping.wait()

    (faults, calls), failures = run(main, 20, keep_failures=True)
    assert 9 <= faults == calls["bad"] <= 11 and calls["good"] >= 90
    assert len(failures) == faults
    assert "alpha: fault 1 in its timers, which continue" in failures[0] and "a defect" in failures[0]


def test_reports_of_faults_are_bounded() -> None:
    async def main(process: Process) -> None:
        def bad(now: float) -> float:
            raise ValueError("a defect")

        beat = Beat("alpha", (bad,), late=lambda late_s: None)
        beat.start()
        await asyncio.sleep((REPORTS_MAX + 20) * FAULT_PAUSE_S)
        beat.stop()
        process.exposed = beat.faults
        await process.stopping.wait()

    faults, failures = run(main, REPORTS_MAX + 30, keep_failures=True)
    assert faults > REPORTS_MAX == len(failures)
    assert "further ones are only counted" in failures[-1]


def test_a_step_that_stops_the_timer_ends_it() -> None:
    async def main(process: Process) -> None:
        calls: list[float] = []

        def step(now: float) -> float:
            calls.append(now)
            beat.stop()
            return now

        beat = Beat("alpha", (step,), late=lambda late_s: None)
        beat.start()
        await asyncio.sleep(5)
        process.exposed = len(calls)
        await process.stopping.wait()

    assert run(main, 10)[0] == 1


def test_a_broker_counts_a_defect_in_its_data_plane_and_continues_to_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tick = Exchange.tick
    failing = True

    def broken(self: Exchange, now: float) -> float:
        if failing and self.name == "broker-1":
            raise ValueError("a defect")
        return tick(self, now)

    monkeypatch.setattr(Exchange, "tick", broken)

    async def ask(client: Client) -> None:
        await client.status()

    with World(1, keep_failures=True) as world:
        mesh = Mesh(world, brokers=2)
        world.run_for(10)
        status = mesh.broker("broker-1").statistics()
        assert status["loop"]["faults"] >= 8 and mesh.broker("broker-2").statistics()["loop"]["faults"] == 0
        assert len(world.failures) == status["loop"]["faults"]
        failing = False
        world.run_for(2)
        world.failures.clear()
        mesh.client("asker", ask, at="broker-1")
        world.run_for(5)
        assert not world.failures
        mesh.finish()


def test_a_defect_in_long_work_is_counted_and_other_work_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step that raised was the last: a subscription behind it waited until another frame came."""
    work, faults = Exchange.work, 0

    def broken(self: Exchange, now: float) -> None:
        nonlocal faults
        if faults < 2:
            faults += 1
            raise ValueError("a defect")
        work(self, now)

    monkeypatch.setattr(Exchange, "work", broken)

    async def subscribe(client: Client) -> None:
        async with client.subscribe(*[f"topic.{number}" for number in range(3000)]):
            pass

    with World(1, keep_failures=True) as world:
        mesh = Mesh(world, brokers=1)
        world.run_for(5)
        mesh.client("subscriber", subscribe, at="broker-1")
        world.run_for(4)
        assert mesh.broker("broker-1").statistics()["loop"]["faults"] == faults == 2
        assert [str(each).count("a defect") > 0 for each in world.failures] == [True, True]
        world.failures.clear()
        world.run_for(10)
        mesh.finish()


def test_long_work_that_raises_is_left_alone_as_long_as_a_step_is() -> None:
    """The exchange requests its next step before it raises; that step ran at once, in every loop turn."""
    calls: list[float] = []

    def broken(now: float) -> bool:
        calls.append(now)
        if len(calls) > 100:
            return False  # so that the test fails instead of hanging
        raise ValueError("a defect")

    with World(1, keep_failures=True) as world:
        mesh = Mesh(world, brokers=1)
        world.run_for(5)
        node = mesh.broker("broker-1")._running
        node.exchange._turn.jobs.append(broken)
        node.work_pending()
        world.run_for(10 * FAULT_PAUSE_S)
        gaps = [later - earlier for earlier, later in itertools.pairwise(calls)]
        assert 9 <= len(calls) <= 11 and min(gaps) >= FAULT_PAUSE_S
        assert len(world.failures) == len(calls)
