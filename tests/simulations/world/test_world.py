"""Worlds: one seed one history, faults as data, different kinds of ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulations import faults
from simulations.faults import Fault
from simulations.kernel.history import History, first_difference
from simulations.kernel.transport import SimTransport
from simulations.world import EPOCH_S, ConditionNotMet, Deadlock, NodeState, Process, ProgramFailed, World
from simulations.world import world as world_module
from tests.simulations.echoing import PORT, Echo, Recorder, serve

ROOT = Path(__file__).parents[3]


async def gossip(process: Process) -> None:
    """Serves, and keeps sending random bytes to random others; sets of strings and objects tempt it."""
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
    Fault(1, "crash", ("n1",)),
    Fault(2, "partition", ("n0", "n2")),
    Fault(3, "start", ("n1",)),
    Fault(3.5, "pause", ("n3",)),
    Fault(4, "heal"),
    Fault(4.5, "resume", ("n3",)),
    Fault(5, "power_off", ("n4",)),
    Fault(5, "slow_link", ("n0",), ("n1",), value=0.2),
    Fault(5.5, "lossy_link", ("n0",), ("n2",), value=0.3),
    Fault(6, "start", ("n4",)),
    Fault(7, "slow_process", ("n2",), value=20),
    Fault(7.5, "clock_step", ("n2",), value=-3600),
    Fault(8, "stop", ("n0",)),
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
    program = "from tests.simulations.world.test_world import gossiping; print(gossiping(3).history.digest)"
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


def test_waiting_for_an_impossible_condition_is_an_error_that_lists_waiting_tasks() -> None:
    async def main(process: Process) -> None:
        await asyncio.Event().wait()

    with World(1) as world:
        world.add_node("alpha", main).start()
        with pytest.raises(
            Deadlock, match=r"an echo is still waited for: alpha: .*main \(.*waits for Event.wait"
        ):
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
        assert node.state is NodeState.PAUSED  # it notices when it resumes
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
        world.inject("power_off", ["one"])
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
        world.inject("clock_step", ["alpha"], value=-3600)
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
        ({"at_s": "1", "kind": "crash"}, "at_s cannot be '1'"),
        ({"at_s": 1, "kind": "crash", "a": [1]}, "a must be a list of names"),
        ({"at_s": -1, "kind": "crash"}, "cannot begin at -1 s"),
        ({"at_s": 1, "kind": "pause", "for_s": 0}, "cannot last 0 s"),
    ],
)
def test_bad_records_of_faults_are_refused_with_a_sentence(data: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Fault.from_json(data)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault(1, "explode"), "no fault kind 'explode'"),
        (Fault(1, "crahs"), "no fault kind 'crahs'; did you mean 'crash'"),
        (Fault(1, "crash"), "name some in a"),
        (Fault(1, "start", ("alpha",), for_s=2), "over at once"),
        (Fault(1, "crash", ("alpha",), value=2), "no parameter value|it has none"),
        (Fault(1, "lossy_link", ("alpha",), value=2), "value is 2; it must be from 0 to 0.999"),
        (Fault(1, "lossy_link", ("alpha",), more=(("burst", 2.0),)), "no parameter burst; it has value"),
    ],
)
def test_impossible_faults_are_refused_with_a_sentence(fault: Fault, sentence: str) -> None:
    with World(1) as world, pytest.raises(ValueError, match=sentence):
        world.add_node("alpha", serve(Echo))
        faults.apply(world, fault)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_negative_and_infinite_times_are_refused(seconds: float) -> None:
    with World(1) as world, pytest.raises(ValueError, match="cannot pass; name a time from 0 on"):
        world.run_for(seconds)
    with World(1) as world, pytest.raises(ValueError, match="cannot pass; name a timeout from 0 on"):
        world.run_until(lambda: False, timeout_s=seconds)


@pytest.mark.parametrize("poll_s", [-1.0, 0.0, 1e-10, float("inf"), float("nan")])
def test_time_passes_between_two_looks(poll_s: float) -> None:
    with World(1) as world, pytest.raises(ValueError, match="name a pause from a nanosecond on"):
        world.run_until(lambda: False, timeout_s=1, poll_s=poll_s)


def test_a_lasting_fault_ends_by_its_time_or_by_healing() -> None:
    with World(1) as world:
        world.add_node("alpha", serve(Echo)).start()
        world.add_node("beta", serve(Echo)).start()
        world.inject("partition", ["alpha"], for_s=2)
        world.inject("cut_one_way", ["alpha"], ["beta"])
        world.inject("pause", ["beta"], for_s=60)
        world.run_for(3)
        assert world.network.is_cut("alpha", "beta") and not world.network.is_cut("beta", "alpha")
        world.inject("crash", ["alpha"])
        world.heal()
        assert not world.network.is_cut("alpha", "beta")
        assert world.node("alpha").running and world.node("beta").running


def test_faults_of_unknown_places_are_refused_with_a_sentence() -> None:
    with World(1) as world:
        world.add_node("alpha", serve(Echo))
        for kind in ("crash", "partition", "power_off"):
            with pytest.raises(ValueError, match="there is alpha|there are alpha"):
                world.inject(kind, ["omega"])
        with pytest.raises(ValueError, match="already"):
            world.add_node("alpha", serve(Echo))


def test_progress_is_reported_about_every_second() -> None:
    seconds: list[int] = []
    with World(1) as world:
        world.add_node("alpha", gossip)
        world.add_node("beta", gossip)
        world.nodes["alpha"].start()
        world.on_second = lambda now: seconds.append(int(now))
        world.run_for(10.5)
    assert seconds == list(range(1, 11))


def test_a_process_may_be_killed_by_its_own_code() -> None:
    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for _ in range(3):
            loop.call_at(now + 1, process.node.crash)
        await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(3)
        assert not node.alive and not world.failures


@pytest.mark.parametrize(("code", "failures"), [(0, 0), (3, 1)])
def test_a_program_that_exits_ends_its_process_and_not_the_run(code: int, failures: int) -> None:
    async def main(process: Process) -> None:
        await asyncio.sleep(1)
        sys.exit(code)

    with World(1, keep_failures=True) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(3)
        assert not node.alive and len(world.failures) == failures
        assert all("sys.exit(3)" in str(failure) for failure in world.failures)


def test_a_main_that_is_cancelled_ends_its_process() -> None:
    async def main(process: Process) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    with World(1, keep_failures=True) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(3)
        assert not node.alive
        assert [str(failure.message) for failure in world.failures] == ["main ended by an exception"]


def test_the_clean_up_of_a_killed_process_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "proof"

    async def main(process: Process) -> None:
        try:
            await process.stopping.wait()
        finally:
            path.write_text("a killed process wrote this")

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(1)
        node.crash()
    assert not path.exists()
    assert not world.failures and not world.fence.escapes


def test_connections_that_have_ended_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "COLLECT_EVERY", 500)
    monkeypatch.setattr(world_module, "COLLECTIONS_YOUNG", 4)

    async def client(process: Process) -> None:
        while not process.stopping.is_set():
            transport, _ = await process.loop.create_connection(Recorder, "server", PORT)
            await asyncio.sleep(1)
            transport.close()

    async def server(process: Process) -> None:
        async with await process.loop.create_server(Echo, "0.0.0.0", PORT):
            await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", server).start()
        for number in range(10):
            world.add_node(f"client-{number}", client).start()
        world.run_for(200)
        assert world.network.connections > 1500
        assert sum(isinstance(each, SimTransport) for each in gc.get_objects()) < 1000


def test_old_objects_stay_out_of_collections_while_the_world_before_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each new world checked a million objects of the test run: 1.5 s a world."""
    monkeypatch.setattr(world_module, "LOOK_AT_ALL_EVERY", 3)
    kept = []
    for seed in range(7):
        kept = [World(seed)]
        assert gc.get_freeze_count() > 10_000, seed
    assert kept


def test_addresses_of_objects_are_not_in_the_history() -> None:
    def boom(thing: object) -> None:
        raise ValueError(thing)

    def run(garbage: int) -> str:
        async def main(process: Process) -> None:
            process.exposed = [object() for _ in range(garbage)]
            asyncio.get_running_loop().call_later(1, boom, object())
            await asyncio.sleep(2)

        with World(1, keep_failures=True) as world:
            world.add_node("alpha", main).start()
            world.run_for(3)
            assert "boom" in world.failures[0].message
            return world.history.digest

    assert run(1) == run(4321)


def test_a_job_of_a_thread_that_exits_ends_its_process_and_not_the_run() -> None:
    async def main(process: Process) -> None:
        await asyncio.to_thread(sys.exit, 3)

    with World(1, keep_failures=True) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(3)
        assert not node.alive and len(world.failures) == 1


def test_a_failure_names_the_line_that_raised() -> None:
    async def main(process: Process) -> None:
        raise KeyError("broken")

    with World(1, keep_failures=True) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        (failure,) = world.failures
        assert re.search(r"KeyError: 'broken' \(test_world\.py:\d+\)$", str(failure))


def test_one_name_stands_for_a_side() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo)).start()
        world.run_for(0.1)
        world.inject("crash", "server")
        assert not world.node("server").alive


async def _raises(process: Process) -> None:
    await asyncio.sleep(1)
    raise LookupError("no such shelf")


def test_a_program_that_raises_ends_the_test_at_once() -> None:
    with World(1) as world:
        world.add_node("alpha", _raises).start()
        world.add_node("beta", serve(Echo)).start()
        with pytest.raises(ProgramFailed, match=r"at 1\.\d+ s alpha: main ended .* no such shelf") as caught:
            world.run_for(100)
        assert world.now_s == pytest.approx(1, abs=0.001)
        assert isinstance(caught.value.__cause__, LookupError)
        assert not world.failures, "what was raised is told"
        world.run_for(5)
        assert world.node("beta").alive


def test_run_until_ends_at_once_too() -> None:
    with World(1) as world:
        world.add_node("alpha", _raises).start()
        with pytest.raises(ProgramFailed, match="no such shelf"):
            world.run_until(lambda: False, timeout_s=100)
        assert world.now_s < 1.001


def test_failures_of_one_moment_are_reported_together() -> None:
    with World(1) as world:
        for name in ("alpha", "beta"):
            world.add_node(name, _raises).start()
        with pytest.raises(ProgramFailed) as caught:
            world.run_for(100)
        told = [*caught.value.failures]
        if len(told) == 1:  # their clocks drift
            with pytest.raises(ProgramFailed) as caught:
                world.run_for(100)
            told += caught.value.failures
        assert {failure.process for failure in told} == {"alpha", "beta"}


def test_failures_after_the_last_step_are_raised_on_leaving_the_world() -> None:
    """A task that failed unseen may be found only by the last garbage collection."""

    async def main(process: Process) -> None:
        async def fail() -> None:
            raise ValueError("nobody looked")

        cycle: list[object] = [asyncio.create_task(fail())]
        cycle.append(cycle)
        del cycle
        await process.stopping.wait()

    with pytest.raises(ProgramFailed, match="nobody looked"), World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)


def test_the_error_of_a_test_is_not_hidden_by_that_of_a_program() -> None:
    with pytest.raises(ZeroDivisionError), World(1) as world:
        world.fail("alpha", "something broke")
        1 / 0  # noqa: B018
