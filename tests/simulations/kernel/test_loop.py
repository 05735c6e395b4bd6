"""asyncio's behaviour in virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulations.kernel.loop import NotSimulated, SimHandle
from simulations.world import Process, World

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def run(program: Callable[[Process], Coroutine[Any, Any, None]], seconds: float = 1000.0) -> World:
    """Run one program to its end in a separate world; its failures are in ``failures``."""
    with World(1, keep_failures=True) as world:
        node = world.add_node("alpha", program)
        node.start()
        world.run_until(lambda: node.process is not None and not node.process.alive, timeout_s=seconds)
    return world


def test_sleeping_takes_virtual_time_only() -> None:
    times = []

    async def main(process: Process) -> None:
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(500)
        times.append(asyncio.get_running_loop().time() - start)

    world = run(main)
    assert times[0] == pytest.approx(500, abs=0.05)  # the clock drifts by up to 50 ppm
    assert world.now_s == pytest.approx(500, abs=0.1)
    assert not world.failures


def test_timers_fire_in_order_and_never_early() -> None:
    fired: list[tuple[float, float]] = []

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        base = loop.time()
        for delay in (0.3, 0.1, 0.2, 0.1, 0.0000001):
            loop.call_later(delay, lambda delay=delay: fired.append((delay, loop.time() - base)))
        await asyncio.sleep(1)

    run(main)
    assert [delay for delay, _ in fired] == [0.0000001, 0.1, 0.1, 0.2, 0.3]
    assert all(at >= delay - 2e-9 for delay, at in fired)


def test_cancelled_timers_are_swept_and_do_not_fire() -> None:
    fired = []

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        handles = [loop.call_later(1 + number / 1000, fired.append, number) for number in range(500)]
        for handle in handles[:-1]:
            handle.cancel()
        assert process.loop.timers == 1
        assert len(process.world.scheduler.heap) < 150
        await asyncio.sleep(3)

    assert not run(main).failures
    assert fired == [499]


@pytest.mark.parametrize("delay", [float("inf"), 1e300])
def test_an_endless_sleep_is_no_event_and_can_be_cancelled(delay: float) -> None:
    async def main(process: Process) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(delay)
        assert process.loop.timers == 0

    assert run(main).failures == []


def test_an_endless_sleeper_is_kept_by_its_loop_alone() -> None:
    """As in asyncio; a task that the garbage collector ends would run its finally block at an unknown
    time.
    """
    ended: list[str] = []

    async def sleep() -> None:
        try:
            await asyncio.sleep(float("inf"))
        finally:
            ended.append("sleep")

    async def main(process: Process) -> None:
        asyncio.create_task(sleep())  # noqa: RUF006
        await asyncio.sleep(1)
        gc.collect()
        assert ended == []
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
        await asyncio.sleep(0)

    assert run(main).failures == []
    assert ended == ["sleep"]


def test_a_timer_due_long_ago_runs_at_once() -> None:
    ran: list[float] = []

    async def main(process: Process) -> None:
        for when in (float("-inf"), -1.0, 0.0):
            process.loop.call_at(when, ran.append, when)
        await asyncio.sleep(0.001)

    assert run(main).failures == []
    assert sorted(ran) == [float("-inf"), -1.0, 0.0]


def test_cancelled_timers_are_counted_as_long_as_they_wait() -> None:
    async def main(process: Process) -> None:
        loop, scheduler = process.loop, process.world.scheduler
        timers = [loop.call_later(1 + number / 1000, print) for number in range(300)]
        for count, timer in enumerate(timers, start=1):
            timer.cancel()
            timer.cancel()
            waiting = sum(entry[2] == loop._fire and entry[3][0].cancelled() for entry in scheduler.heap)
            assert scheduler.unwanted == waiting <= count
        await asyncio.sleep(3)
        assert scheduler.unwanted == 0

    assert run(main).failures == []


def test_arrivals_during_a_pause_are_handled_before_due_timers() -> None:
    """As in asyncio, which polls the selector first: a waiting answer is read before its deadline."""
    ran: list[str] = []

    async def main(process: Process) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, ran.append, "timer")
        process.exposed = True
        await asyncio.sleep(5)

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(0.5)
        node.pause()
        world.run_for(1.0)
        assert node.process is not None
        loop = node.process.loop
        arrival = SimHandle(ran.append, ("arrival",), loop, None)
        assert not loop.turn_of(arrival, arrival._context, arrival._callback, arrival._args)
        loop.run_soon(arrival)
        assert ran == []
        node.resume()
        world.run_for(0.1)
    assert ran == ["arrival", "timer"]


def test_task_groups_timeouts_and_context_variables_work() -> None:
    seen: list[str] = []

    async def child(name: str) -> None:
        assert place.get() == "parent"
        place.set(name)
        await asyncio.sleep(0.01)
        seen.append(place.get())

    async def main(process: Process) -> None:
        assert place.get() == "nowhere"  # nothing leaks into a process from outside
        place.set("parent")
        async with asyncio.TaskGroup() as group:
            group.create_task(child("one"))
            group.create_task(child("two"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        seen.append("timeout")

    place.set("outside")
    assert not run(main).failures
    assert seen == ["one", "two", "timeout"]


def test_a_failing_task_group_cancels_its_tasks_in_the_order_of_their_making() -> None:
    ended: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(number)

    async def fail() -> None:
        await asyncio.sleep(0.1)
        raise ValueError

    async def main(process: Process) -> None:
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(child(number))
                group.create_task(fail())

    run(main)
    assert sorted(ended) == list(range(50))
    first = list(ended)
    ended.clear()
    run(main)
    assert ended == first  # by serial, which is the same in every run


def test_functions_given_to_threads_run_later_without_a_loop() -> None:
    seen: list[object] = []

    def job() -> str:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            seen.append("no loop")
        seen.append(place.get())
        return "done"

    def broken() -> None:
        raise KeyError("lost")

    async def main(process: Process) -> None:
        place.set("worker")
        seen.append(await asyncio.to_thread(job))
        with pytest.raises(KeyError):
            await process.loop.run_in_executor(None, broken)

    assert not run(main).failures
    assert seen == ["no loop", "worker", "done"]


def test_a_loop_that_never_sleeps_cannot_stop_the_clock() -> None:
    async def main(process: Process) -> None:
        until = asyncio.get_running_loop().time() + 0.1
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0)

    assert run(main).now_s == pytest.approx(0.1, abs=0.02)


def test_each_process_has_a_clock_of_its_own() -> None:
    clocks: dict[str, float] = {}

    async def main(process: Process) -> None:
        clocks[process.name] = asyncio.get_running_loop().time()

    with World(3) as world:
        for name in ("alpha", "beta"):
            world.add_node(name, main).start()
        world.run_for(1)
    assert abs(clocks["alpha"] - clocks["beta"]) > 1


def test_a_paused_process_takes_no_turns_and_its_timers_are_late() -> None:
    woken: list[float] = []

    async def main(process: Process) -> None:
        while True:
            await asyncio.sleep(1)
            woken.append(process.world.now_s)

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(2.5)
        node.pause()
        world.run_for(10)
        assert len(woken) == 2
        node.resume()
        world.run_for(1.1)
        assert 12.5 <= woken[2] < 12.6
        assert len(woken) == 4


def test_a_computation_waits_while_its_process_is_paused() -> None:
    woken: list[float] = []

    async def main(process: Process) -> None:
        while True:
            await asyncio.sleep(0.1)
            woken.append(process.world.now_s)

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(1)
        node.stall(5)
        world.run_for(1)
        node.pause()
        world.run_for(20)
        node.resume()
        before = len(woken)
        world.run_for(3.9)
        assert len(woken) == before
        world.run_for(0.3)
        assert 26.0 <= woken[before] < 26.01


def test_a_paused_process_has_paused_threads() -> None:
    ran: list[float] = []

    async def main(process: Process) -> None:
        await asyncio.sleep(1)
        await asyncio.to_thread(lambda: ran.append(process.world.now_s))
        ran.append(process.world.now_s)
        await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(1.00001)
        world.run_until(lambda: world.now_s > 1.0001, timeout_s=1, poll_s=0.00001)
        node.pause()
        world.run_for(10)
        assert ran == []
        node.resume()
        world.run_for(1)
        assert ran[0] > 11


def test_a_slow_process_takes_longer_for_the_same_code() -> None:
    async def main(process: Process) -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        process.exposed = process.world.now_s
        await process.stopping.wait()

    def spent(factor: float) -> float:
        with World(1) as world:
            node = world.add_node("alpha", main)
            node.start()
            node.slow_down(factor)
            world.run_until(lambda: node.exposed is not None, timeout_s=100)
            return float(node.exposed)

    assert spent(50) == pytest.approx(50 * spent(1), rel=0.1)


def test_a_killed_process_runs_no_finally_block_until_the_run_is_over() -> None:
    ended: list[str] = []

    async def ticker() -> Any:
        try:
            while True:
                yield await asyncio.sleep(1)
        finally:
            ended.append("generator")

    async def main(process: Process) -> None:
        try:
            async for _ in ticker():
                pass
        finally:
            ended.append("main")
            process.loop.call_soon(ended.append, "never")

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(3)
        node.crash()
        gc.collect()
        world.run_for(10)
        assert ended == []
    assert "never" not in ended
    assert "main" in ended


def test_clean_up_that_awaits_is_ended_after_the_run_without_an_error() -> None:
    ended: list[str] = []

    class Guarded:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None:
            for number in range(3):
                try:
                    await asyncio.sleep(1)
                finally:
                    ended.append(f"await {number}")

    async def inner() -> None:
        async with Guarded():
            await asyncio.Event().wait()

    async def main(process: Process) -> None:
        try:
            await inner()
        except Exception as error:  # like a program that logs everything
            ended.append(repr(error))
        finally:
            ended.append("main")

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
    gc.collect()
    assert ended == ["await 0", "main"]
    assert not world.failures


def test_generators_belong_to_the_loop_they_run_in() -> None:
    closed: list[str] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append("closed")

    async def main(process: Process) -> None:
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(0.1)
        assert closed == ["closed"]

    assert not run(main).failures


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda loop: loop.add_reader(0, print), "add_reader"),
        (lambda loop: loop.add_signal_handler(15, print), "add_signal_handler"),
        (lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol), "create_datagram_endpoint"),
        (lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"), "subprocess_exec"),
        (lambda loop: loop.sock_sendall(None, b""), "sock_sendall"),
        (lambda loop: loop.run_forever(), "run_forever"),
        (lambda loop: loop.stop(), "stop"),
        (lambda loop: loop.close(), "close"),
    ],
)
def test_a_call_that_reaches_outside_raises_and_names_itself(call: Callable[[Any], Any], named: str) -> None:
    async def main(process: Process) -> None:
        with pytest.raises(NotSimulated, match=named):
            call(process.loop)
        with pytest.raises(NotSimulated, match="ssl="):
            await process.loop.create_connection(asyncio.Protocol, "alpha", 1, ssl=True)

    assert not run(main).failures


def test_a_forgotten_task_that_fails_is_a_failure_of_the_run() -> None:
    async def main(process: Process) -> None:
        async def fail() -> None:
            raise ValueError("nobody looked")

        task = asyncio.create_task(fail())
        await asyncio.sleep(0.1)
        del task
        process.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.1)

    failures = [str(failure) for failure in run(main).failures]
    assert any("nobody looked" in failure for failure in failures)
    assert any("ZeroDivisionError" in failure for failure in failures)


def test_a_main_that_raises_or_leaves_tasks_is_a_failure_of_the_run() -> None:
    ended = []

    async def idle() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cancelled")

    async def main(process: Process) -> None:
        process.exposed = asyncio.create_task(idle())
        await asyncio.sleep(0.1)
        raise ValueError("main is broken")

    failures = [str(failure) for failure in run(main).failures]
    assert "main is broken" in failures[0]
    assert "left a task behind: idle" in failures[1]
    assert ended == ["cancelled"]


def test_letting_time_pass_inside_a_running_loop_leaves_that_loop_running() -> None:
    """A test that is a coroutine itself may run a world."""
    seen: list[object] = []

    async def outer() -> None:
        async def main(process: Process) -> None:
            seen.append(asyncio.get_running_loop())
            await asyncio.sleep(1)

        here, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()
        world = run(main)
        assert asyncio.get_running_loop() is here and sys.get_asyncgen_hooks() == hooks
        assert not world.failures

    asyncio.run(outer())
    assert seen and seen[0] is not None


def test_a_clock_with_a_changed_drift_continues_from_its_present_time() -> None:
    async def main(process: Process) -> None:
        loop = process.loop
        await asyncio.sleep(100)
        before = loop.time()
        loop.set_drift(100_000_000)  # a tenth fast
        assert loop.time() == pytest.approx(before, abs=2e-9)
        began_s = process.world.now_s
        await asyncio.sleep(11)
        assert process.world.now_s - began_s == pytest.approx(10, abs=0.001)

    assert not run(main).failures


def test_a_timer_that_is_waited_for_is_moved_when_the_drift_changes() -> None:
    woken: list[float] = []

    async def main(process: Process) -> None:
        loop = process.loop
        loop.set_drift(0)
        loop.call_later(10, lambda: woken.append(process.world.now_s))
        began_s = process.world.now_s
        process.world.scheduler.after(
            5_000_000_000, loop.set_drift, 1_000_000_000
        )  # twice as fast from 5 s on
        await asyncio.sleep(20)
        assert woken[0] - began_s == pytest.approx(7.5, abs=0.001)

    assert not run(main).failures
