"""A delivery wakes its readers in the loop turn that read it; nothing is lost on the way."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from protocols import Pair0, Rep0, Req0
from protocols.transports.loops import loop_state
from protocols.transports.stream import StreamConnection
from protocols.waiting import Waiters
from protocols.waking import Wakes, Wakeup


def wakes() -> Wakes:
    return loop_state().wakes


def begin() -> None:
    """Begin a delivery, like a connection."""
    wakes().open = True


def end() -> None:
    wakes().open = False
    wakes().run()


async def started(waiters: Waiters, count: int = 1) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(waiters.wait(None)) for _ in range(count)]
    while len(waiters) < count:
        await asyncio.sleep(0)
    return tasks


async def in_a_callback(*calls: object) -> None:
    """Run these one after another in a separate loop turn, outside any task."""
    done = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            for call in calls:
                call()  # type: ignore[operator]
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    asyncio.get_running_loop().call_soon(run)
    await done


async def test_a_delivery_runs_the_tasks_it_woke_before_it_returns() -> None:
    waiters = Waiters()
    (task,) = await started(waiters)
    ended = []
    await in_a_callback(
        begin,
        lambda: waiters.wake(1),
        lambda: ended.append(task.done()),
        end,
        lambda: ended.append(task.done()),
    )
    assert ended == [False, True] and task.result()


async def test_outside_a_delivery_a_task_runs_in_the_next_turn() -> None:
    waiters = Waiters()
    (task,) = await started(waiters)
    ended = []
    await in_a_callback(lambda: waiters.wake(1), lambda: ended.append(task.done()))
    assert ended == [False] and await task


async def test_a_delivery_inside_a_task_leaves_the_waking_to_the_loop() -> None:
    waiters = Waiters()
    (task,) = await started(waiters)
    begin()
    waiters.wake(1)
    end()
    assert not task.done() and await task


async def test_a_task_woken_by_one_that_runs_in_a_delivery_waits_for_the_next_turn() -> None:
    """Two tasks that wake each other must not keep the loop for themselves."""
    first, second = Waiters(), Waiters()
    turns = []

    async def ping() -> None:
        await first.wait(None)
        second.wake(1)
        turns.append("first")

    async def pong() -> None:
        await second.wait(None)
        turns.append("second")

    tasks = [asyncio.create_task(ping()), asyncio.create_task(pong())]
    while not (first and second):
        await asyncio.sleep(0)
    await in_a_callback(begin, lambda: first.wake(1), end, lambda: turns.append("delivered"))
    await asyncio.gather(*tasks)
    assert turns == ["first", "delivered", "second"]


async def test_a_wake_up_of_a_task_cancelled_in_the_same_delivery_goes_to_the_next() -> None:
    waiters = Waiters()
    one, two = await started(waiters, 2)
    await in_a_callback(begin, lambda: waiters.wake(1), one.cancel, end)
    assert await two
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    waiters = Waiters()
    one, two = await started(waiters, 2)
    one.cancel("no longer")
    with pytest.raises(asyncio.CancelledError, match="no longer"):
        await one
    assert len(waiters) == 1
    waiters.wake_all()
    assert await two


async def test_an_interrupted_task_does_not_cost_the_others_their_wake_up() -> None:
    """Ctrl-C raises out of the running task, and through the delivery."""
    waiters = Waiters()

    async def interrupted() -> None:
        await waiters.wait(None)
        raise KeyboardInterrupt

    first = asyncio.create_task(interrupted())
    while not waiters:
        await asyncio.sleep(0)
    second = asyncio.create_task(waiters.wait(None))
    while len(waiters) < 2:
        await asyncio.sleep(0)
    with pytest.raises(KeyboardInterrupt):
        await in_a_callback(begin, waiters.wake_all, end)
    assert await second
    assert isinstance(first.exception(), KeyboardInterrupt)


async def test_a_task_runs_in_its_own_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody's")
    waiters = Waiters()
    seen = []

    async def reader() -> None:
        name.set("the reader's")
        await waiters.wait(None)
        seen.append(name.get())

    task = asyncio.create_task(reader())
    while not waiters:
        await asyncio.sleep(0)
    await in_a_callback(begin, waiters.wake_all, end, lambda: seen.append(name.get()))
    await task
    assert seen == ["the reader's", "nobody's"]


async def test_a_wake_up_is_a_future_to_asyncio() -> None:
    wakeup = Wakeup(loop=asyncio.get_running_loop())
    assert asyncio.isfuture(wakeup)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await wakeup
    assert wakeup.cancelled()


async def test_a_reader_that_closes_its_socket_in_the_delivery_ends_in_good_order() -> None:
    async with Pair0(listen="tcp://127.0.0.1:0") as listening:
        dialling = Pair0(dial=listening.listeners[0].url)
        async with dialling:
            await dialling.wait_for_peers(1)
            closed = asyncio.create_task(close_on_receipt(dialling))
            while not dialling._receivers:
                await asyncio.sleep(0)
            await listening.send_many([b"one", b"two"])
            assert await closed == b"one"


async def close_on_receipt(pair: Pair0) -> bytes:
    body = await pair.recv()
    await pair.aclose()
    return body


async def test_an_answer_is_written_in_the_call_that_read_its_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = StreamConnection.buffer_updated
    unanswered = []

    def watched(connection: StreamConnection, nbytes: int) -> None:
        read(connection, nbytes)
        present = [pipe.statistics() for pipe in rep.pipes]
        unanswered.extend(pipe.frames_in - pipe.frames_out for pipe in present)

    monkeypatch.setattr(StreamConnection, "buffer_updated", watched)
    async with Rep0(listen="tcp://127.0.0.1:0") as rep, Req0(dial=rep.listeners[0].url) as req:

        async def answer() -> None:
            while True:
                await rep.send(await rep.recv())

        replier = asyncio.create_task(answer())
        await req.wait_for_peers(1)
        for _ in range(10):
            await req.send(b"?")
            assert await req.recv() == b"?"
        replier.cancel()
        with pytest.raises(asyncio.CancelledError):
            await replier
    assert len(unanswered) >= 10 and not any(unanswered)
