"""Several event loops, several processes: each has separate sockets and none disturbs another."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from protocols import Pub0, Pull0, Push0, Rep0, Req0, Socket, SocketOptions, StateError, Sub0
from tests.support.link import Peer
from tests.support.waiting import until

OTHER_LOOP = "belongs to another event loop"


async def ask(url: str, count: int = 20) -> list[bytes]:
    """Questions and answers between two sockets of this loop."""
    answers = []
    async with Rep0() as rep, Req0() as req:
        listener = await rep.listen(url)
        req.dial(listener.url)
        for number in range(count):
            await req.send(b"%d" % number)
            await rep.send(await rep.recv() + b"!")
            answers.append(await req.recv())
    return answers


ANSWERS = [b"%d!" % number for number in range(20)]


def child_of(work: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """Fork; the child runs ``work`` on its own loop and ends with 0 if that succeeded."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            asyncio.run(work())
            status = 0
        finally:
            os._exit(status)
    return pid


async def ended_well(pid: int) -> None:
    status: list[int] = []

    def gone() -> bool:
        found, code = os.waitpid(pid, os.WNOHANG)
        if found:
            status.append(code)
        return bool(found)

    await until(gone)
    assert os.waitstatus_to_exitcode(status[0]) == 0


# --- loops


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://same", "abstract://"])
def test_one_loop_after_the_other(url: str) -> None:
    assert [asyncio.run(ask(url)) for _ in range(3)] == [ANSWERS] * 3


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://same", "abstract://"])
def test_two_loops_in_two_threads_at_once(url: str) -> None:
    """Also with the same inproc name in both: names belong to their loop."""
    answers: list[list[bytes]] = []
    both = threading.Barrier(2)

    async def main() -> None:
        both.wait(10)
        answers.append(await ask(url, 20))

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [ANSWERS] * 2


def test_two_loops_talk_to_each_other_over_a_real_transport(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/between"

    async def serve() -> None:
        async with Rep0(listen=url) as rep:
            for _ in range(50):
                await rep.send(await rep.recv(timeout=20) + b"!")

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()

    async def main() -> list[bytes]:
        options = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.02)
        async with Req0(dial=url, options=options) as req:
            answers = []
            for number in range(50):
                await req.send(b"%d" % number)
                answers.append(await req.recv(timeout=20))
            return answers

    assert asyncio.run(main()) == [b"%d!" % number for number in range(50)]
    thread.join(20)


USES: dict[str, Callable[[Socket], Coroutine[Any, Any, object]]] = {
    "recv": lambda socket: socket.recv(timeout=1),
    "wait_for_peers": lambda socket: socket.wait_for_peers(99),
    "aclose": lambda socket: socket.aclose(),
    "listen": lambda socket: socket.listen("inproc://x"),
    "dial_once": lambda socket: socket.dial_once("inproc://x"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", [Pull0, Sub0, Rep0])
def test_a_socket_refuses_calls_from_a_second_loop(use: str, kind: type[Socket]) -> None:
    socket = kind()

    async def first() -> None:
        Peer(socket)

    async def second() -> None:
        with pytest.raises(StateError, match=OTHER_LOOP):
            await USES[use](socket)

    asyncio.run(first())
    asyncio.run(second())


def test_sending_from_a_second_loop_is_refused_too() -> None:
    req, push, pub = Req0(), Push0(), Pub0()

    async def first() -> None:
        for number, socket in enumerate((req, push, pub)):
            await socket.listen(f"inproc://{number}")

    async def second() -> None:
        for socket in (req, push):
            with pytest.raises(StateError, match=OTHER_LOOP):
                await socket.send(b"x")
        with pytest.raises(StateError, match=OTHER_LOOP):
            pub.dial("inproc://x")

    asyncio.run(first())
    asyncio.run(second())


def test_a_socket_made_before_any_loop_belongs_to_the_first_that_uses_it() -> None:
    pull = Pull0()

    async def first() -> bytes:
        async with pull, Push0() as push:
            await pull.listen("inproc://x")
            push.dial("inproc://x")
            await push.send(b"x")
            return await pull.recv()

    assert asyncio.run(first()) == b"x"


# --- processes


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
async def test_a_forked_child_uses_its_own_sockets_and_the_parent_continues(
    scheme: str, tmp_path: Path
) -> None:
    """NNG panics here. Meanwhile a message crosses the parent's connections each turn."""
    url = "tcp://127.0.0.1:0" if scheme == "tcp" else f"ipc://{tmp_path}/parent"
    async with Pull0() as pull, Push0() as push:
        listener = await pull.listen(url)
        await push.dial_once(listener.url)

        async def work() -> None:
            assert await ask(f"ipc://{tmp_path}/{os.getpid()}") == ANSWERS
            async with Push0(dial=listener.url) as mine:
                await mine.send_many([b"child"] * 100, timeout=10)

        children = [child_of(work) for _ in range(3)]
        heard = sent = 0
        while heard < 300:
            await push.send(b"parent")
            sent += 1
            bodies = await pull.recv_many(timeout=20)
            heard += bodies.count(b"child")
        for pid in children:
            await ended_well(pid)
        assert len(push.pipes) == 1 and push.statistics().detached == 0
        while pull.statistics().frames_in < sent + 300:
            await pull.recv(timeout=20)
        assert push.statistics().closed == {}


async def test_a_child_that_uses_its_parents_socket_gets_an_error_and_the_parent_is_undisturbed() -> None:
    async with Pull0(listen="tcp://127.0.0.1:0") as pull, Push0() as push:
        await push.dial_once(pull.listeners[0].url)

        async def work() -> None:
            for use in (pull.recv(), pull.aclose(), push.dial_once("inproc://x"), pull.wait_for_peers(2)):
                try:
                    await use
                except StateError as error:
                    assert OTHER_LOOP in str(error)
                else:
                    raise AssertionError("the child got through")

        await ended_well(child_of(work))
        for number in range(100):
            await push.send(b"%d" % number)
            assert await pull.recv(timeout=10) == b"%d" % number


def work_in_a_pool(number: int) -> list[bytes]:
    return asyncio.run(ask("tcp://127.0.0.1:0", number))


async def test_a_multiprocessing_pool_forked_beside_live_sockets() -> None:
    async with Pull0(listen="tcp://127.0.0.1:0") as pull, Push0() as push:
        await push.dial_once(pull.listeners[0].url)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            results = await asyncio.to_thread(pool.map, work_in_a_pool, [20] * 6)
        assert results == [ANSWERS] * 6
        await push.send(b"still here")
        assert await pull.recv(timeout=10) == b"still here"
