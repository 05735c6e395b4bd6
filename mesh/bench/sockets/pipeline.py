"""Push and pull: one sender, one receiver, as many messages as they can.

First some messages are timed together. Then come some with a time stamp each, for the pauses. Ours end with a
burst of `BURST` messages under tracemalloc, at either end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, Worker, workers
from mesh.bench.measuring import BODY, Allocation, Report, pauses, run_async, until_written
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG_ASYNCIO, PYZMQ, ZMQ_LOOPBACK, Peers
from protocols import Pull0, Push0

PUSH_PULL: Final = "push/pull 128 B"
PUSH_PULL_LARGE: Final = "push/pull 64 KiB"
BATCHES: Final = "mangrove, batches"
RATE: Final = "messages/s"
BATCH: Final = 256
BURST: Final = 256
LARGE_BODY: Final = b"x" * 65536

TARGETS: Final = (
    Target(PUSH_PULL, RATE, OURS, PYZMQ, 1.5, True),
    Target(PUSH_PULL, RATE, OURS, PYNNG_ASYNCIO, 80.0, True),
    Target(PUSH_PULL, RATE, BATCHES, PYZMQ, 2.0, True),
    Target(PUSH_PULL_LARGE, RATE, OURS, PYZMQ, 1.0, True),
)


def stamped(count: int) -> int:
    """Number of messages that are timed one by one, after ``count`` that are timed together."""
    return max(count // 5, 100)


# --- ours


def ours_pull(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pull0() as pull:
            listener = await pull.listen(LOOPBACK)
            report(listener.url)
            recv = pull.recv
            await recv()
            start = time.perf_counter()
            for _ in range(count - 1):
                await recv()
            took_s = time.perf_counter() - start
            stamps = []
            for _ in range(stamped(count)):
                await recv()
                stamps.append(time.perf_counter())
            report({RATE: (count - 1) / took_s, **pauses(stamps)})
            allocation = Allocation()
            report("ready for a burst")
            burst = [await recv() for _ in range(BURST)]
            report({"B/msg in": allocation.per_message(len(burst))})

    run_async(main())


def ours_push(url: str, body: bytes, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Push0() as push:
            push.dial(url)
            await push.wait_for_peers(1)
            send = push.send
            for _ in range(count + stamped(count)):
                await send(body)
            report("sent")
            await asyncio.to_thread(gate.wait)
            allocation = Allocation()
            for _ in range(BURST):
                await send(body)
            await until_written(push)
            report({"B/msg out": allocation.per_message(BURST)})

    run_async(main())


def ours_pull_batches(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pull0() as pull:
            listener = await pull.listen(LOOPBACK)
            report(listener.url)
            first = len(await pull.recv_many())
            start = time.perf_counter()
            got = first
            while got < count:
                got += len(await pull.recv_many())
            took_s = time.perf_counter() - start
            rate = (got - first) / took_s
            stamps = []
            while got < count + stamped(count):
                got += len(await pull.recv_many())
                stamps.append(time.perf_counter())
            report({RATE: rate, **pauses(stamps)})
            allocation = Allocation()
            report("ready for a burst")
            burst: list[bytes] = []
            while len(burst) < BURST:
                burst += await pull.recv_many()
            report({"B/msg in": allocation.per_message(len(burst))})

    run_async(main())


def ours_push_batches(url: str, body: bytes, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Push0() as push:
            push.dial(url)
            await push.wait_for_peers(1)
            bodies = [body] * BATCH
            unsent = count + stamped(count)  # not one more, or the puller counts the rest to its burst
            while unsent:
                unsent -= len(batch := bodies[:unsent])
                await push.send_many(batch)
            report("sent")
            await asyncio.to_thread(gate.wait)
            allocation = Allocation()
            await push.send_many(bodies)
            await until_written(push)
            report({"B/msg out": allocation.per_message(BATCH)})

    run_async(main())


# --- pynng


def pynng_pull(count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Pull0(listen=LOOPBACK) as pull:
            report(f"tcp://{pull.listeners[0].local_address}")
            await pull.arecv()
            start = time.perf_counter()
            for _ in range(count - 1):
                await pull.arecv()
            took_s = time.perf_counter() - start
            stamps = []
            for _ in range(stamped(count)):
                await pull.arecv()
                stamps.append(time.perf_counter())
            report({RATE: (count - 1) / took_s, **pauses(stamps)})

    run_async(main())


def pynng_push(url: str, body: bytes, count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Push0(dial=url) as push:
            for _ in range(count + stamped(count)):
                await push.asend(body)
            report("sent")
            await asyncio.to_thread(gate.wait)

    run_async(main())


# --- pyzmq


def zmq_pull(count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.set_hwm(0)
        report(f"{ZMQ_LOOPBACK}:{pull.bind_to_random_port(ZMQ_LOOPBACK)}")
        recv = pull.recv
        recv()
        start = time.perf_counter()
        for _ in range(count - 1):
            recv()
        took_s = time.perf_counter() - start
        stamps = []
        for _ in range(stamped(count)):
            recv()
            stamps.append(time.perf_counter())
        report({RATE: (count - 1) / took_s, **pauses(stamps)})


def zmq_push(url: str, body: bytes, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.set_hwm(0 if len(body) < 4096 else 1000)  # without a mark 64 KiB bodies would pile up
        push.connect(url)
        send = push.send
        for _ in range(count + stamped(count)):
            send(body)
        report("sent")
        gate.wait()


# --- the cases


def push_pull(
    pull: Callable[..., None], push: Callable[..., None], body: bytes, count: int, bursts: bool = False
) -> Figures:
    """Messages a second at the puller, first to last, and the other figures of the workers."""
    with workers() as group:
        puller = group.start(pull, count)
        pusher = group.start(push, puller.hear(), body, count)
        pusher.hear()
        figures: Figures = puller.hear()
        return {**figures, **burst(puller, pusher)} if bursts else figures


def burst(puller: Worker, pusher: Worker) -> Figures:
    """Memory per message at either end, once everything else has been received."""
    puller.hear()
    pusher.release()
    return {**pusher.hear(), **puller.hear()}


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    many, few, large = (max(1000, int(count * scale)) for count in (1_000_000, 20_000, 20_000))
    yield Case(PUSH_PULL, OURS, partial(push_pull, ours_pull, ours_push, BODY, many, True))
    yield Case(
        PUSH_PULL, BATCHES, partial(push_pull, ours_pull_batches, ours_push_batches, BODY, 2 * many, True)
    )
    if peers.zmq:
        yield Case(PUSH_PULL, PYZMQ, partial(push_pull, zmq_pull, zmq_push, BODY, many))
    if peers.pynng:
        yield Case(PUSH_PULL, PYNNG_ASYNCIO, partial(push_pull, pynng_pull, pynng_push, BODY, few))
    yield Case(PUSH_PULL_LARGE, OURS, partial(push_pull, ours_pull, ours_push, LARGE_BODY, large, True))
    if peers.zmq:
        yield Case(PUSH_PULL_LARGE, PYZMQ, partial(push_pull, zmq_pull, zmq_push, LARGE_BODY, large))
    if peers.pynng:
        yield Case(
            PUSH_PULL_LARGE, PYNNG_ASYNCIO, partial(push_pull, pynng_pull, pynng_push, LARGE_BODY, few)
        )
