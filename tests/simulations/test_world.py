"""Worlds: one seed one history, faults as data, ends that are told apart."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulations.faults import Fault, FaultKind
from simulations.history import History, first_difference
from simulations.world import EPOCH_S, ConditionNotMet, Deadlock, NodeState, Process, World
from tests.simulations.programs import PORT, Echo, Recorder, serve

ROOT = Path(__file__).parents[2]


async def gossip(process: Process) -> None:
    """Serves, and sends random bytes to random others for ever; sets of strings and objects tempt it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "0.0.0.0", PORT)
    names = {name for name in process.world.nodes if name != process.name}
    open_to: dict[str, Any] = {}
    async with server, asyncio.timeout(1000):
        while not process.stopping.is_set():
            await asyncio.sleep(process.rng.expovariate(20))
            name = process.rng.choice(sorted(names))
            try:
                if name not in open_to or open_to[name].is_closing():
                    async with asyncio.timeout(0.5):
                        open_to[name], _ = await loop.create_connection(Recorder, name, PORT)
                open_to[name].write(process.rng.randbytes(process.rng.randrange(2000)))
            except (OSError, TimeoutError):
                continue
        for transport in [*open_to.values()]:
            transport.close()


PLAN = [
    Fault(1, FaultKind.CRASH, ("n1",)),
    Fault(2, FaultKind.PARTITION, ("n0", "n2")),
    Fault(3, FaultKind.START, ("n1",)),
    Fault(3.5, FaultKind.PAUSE, ("n3",)),
    Fault(4, FaultKind.HEAL),
    Fault(4.5, FaultKind.RESUME, ("n3",)),
    Fault(5, FaultKind.POWER_OFF, ("n4",)),
    Fault(5, FaultKind.SLOW_LINK, ("n0",), ("n1",), 0.2),
    Fault(5.5, FaultKind.LOSSY_LINK, ("n0",), ("n2",), 0.3),
    Fault(6, FaultKind.START, ("n4",)),
    Fault(7, FaultKind.SLOW_PROCESS, ("n2",), value=20),
    Fault(7.5, FaultKind.CLOCK_STEP, ("n2",), value=-3600),
    Fault(8, FaultKind.STOP, ("n0",)),
]


def gossiping(seed: int, *, keep: bool = False) -> World:
    with World(seed, chunked=True, keep_history=keep) as world:
        for number in range(5):
            world.add_node(f"n{number}", gossip).start()
        world.schedule(PLAN)
        world.run_for(10)
    assert not world.failures
    return world


def test_the_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    one, two, other = gossiping(1, keep=True), gossiping(1, keep=True), gossiping(2, keep=True)
    assert first_difference(one.history, two.history) is None
    assert one.history.digest == two.history.digest != other.history.digest
    assert one.history.lines > 1000
    assert "line" in str(first_difference(one.history, other.history))


def test_two_processes_with_different_hash_seeds_give_the_same_history() -> None:
    program = "from tests.simulations.test_world import gossiping; print(gossiping(3).history.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    }
    assert len(digests) == 1 and len(digests.pop().strip()) == 32


def test_a_difference_is_found_between_checkpoints_when_lines_were_not_kept() -> None:
    one, two = History(), History()
    for number in range(5000):
        one.record(number, "a", "k", "same")
        two.record(number, "a", "k", "same" if number != 2500 else "other")
    assert first_difference(one, two) == "between lines 2001 and 3000"
    assert first_difference(one, one) is None


def test_waiting_for_what_can_never_happen_is_an_error_that_says_what_waits_where() -> None:
    async def main(process: Process) -> None:
        await asyncio.Event().wait()

    with World(1) as world:
        world.add_node("alpha", main).start()
        with pytest.raises(Deadlock, match=r"an echo is still waited for: alpha: .*locks.py"):
            world.run_until(lambda: False, timeout_s=5, what="an echo")


def test_waiting_too_long_is_an_error_with_the_time() -> None:
    with World(1) as world:
        world.add_node("alpha", gossip)
        world.add_node("beta", gossip)
        world.node("alpha").start()
        with pytest.raises(ConditionNotMet, match="a miracle did not come about within 5 s"):
            world.run_until(lambda: False, timeout_s=5, what="a miracle")


def test_a_node_lives_stops_crashes_and_lives_again_with_other_randomness() -> None:
    drawn = []

    async def main(process: Process) -> None:
        drawn.append(process.rng.random())
        await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        assert node.state is NodeState.DOWN
        with pytest.raises(ValueError, match="not running"):
            node.crash()
        node.start()
        world.run_for(1)
        with pytest.raises(ValueError, match="running already"):
            node.start()
        node.pause()
        assert node.state is NodeState.PAUSED
        node.stop()
        world.run_for(1)
        assert node.state is NodeState.PAUSED  # it hears of it when it goes on
        node.resume()
        world.run_for(1)
        assert node.state is NodeState.DOWN
        node.start()
        world.run_for(1)
        node.crash()
        assert node.state is NodeState.DOWN
        assert drawn[0] != drawn[1]
        assert not world.failures


def test_a_power_loss_ends_all_processes_of_the_host_and_no_others() -> None:
    async def main(process: Process) -> None:
        await process.stopping.wait()

    with World(1) as world:
        for name, host in (("a", "one"), ("b", "one"), ("c", "two")):
            world.add_node(name, main, host=host).start()
        world.inject(FaultKind.POWER_OFF, ["one"])
        assert [node.state for node in world.nodes.values()] == ["down", "down", "running"]


def test_wall_clocks_step_and_monotonic_ones_do_not() -> None:
    seen: list[tuple[float, float]] = []

    async def main(process: Process) -> None:
        while True:
            seen.append((process.wall_time(), asyncio.get_running_loop().time()))
            await asyncio.sleep(1)

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(0.5)
        world.inject(FaultKind.CLOCK_STEP, ["alpha"], value=-3600)
        world.run_for(1)
        assert seen[0][0] == pytest.approx(EPOCH_S, abs=0.01)
        assert seen[1][0] == pytest.approx(EPOCH_S - 3599, abs=0.01)
        assert seen[1][1] - seen[0][1] == pytest.approx(1, abs=0.01)


def test_faults_survive_the_way_through_json() -> None:
    for fault in PLAN:
        assert Fault.from_json(json.loads(json.dumps(fault.as_json()))) == fault


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"kind": "crash"}, "needs at_s and kind"),
        ({"at_s": 1, "kind": "explode"}, "no fault kind 'explode'"),
        ({"at_s": "1", "kind": "crash"}, "at_s cannot be '1'"),
        ({"at_s": 1, "kind": "crash", "who": []}, "no field 'who'"),
    ],
)
def test_bad_faults_are_refused_with_a_sentence(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Fault.from_json(data)


def test_faults_of_unknown_places_are_refused_with_a_sentence() -> None:
    with World(1) as world:
        world.add_node("alpha", serve(Echo))
        for kind in (FaultKind.CRASH, FaultKind.PARTITION, FaultKind.POWER_OFF):
            with pytest.raises(ValueError, match="there is alpha|there are alpha"):
                world.inject(kind, ["omega"])
        with pytest.raises(ValueError, match="already"):
            world.add_node("alpha", serve(Echo))


def test_progress_is_told_about_every_second() -> None:
    seconds: list[int] = []
    with World(1) as world:
        world.add_node("alpha", gossip)
        world.add_node("beta", gossip)
        world.nodes["alpha"].start()
        world.on_second = lambda now: seconds.append(int(now))
        world.run_for(10.5)
    assert seconds == list(range(1, 11))
