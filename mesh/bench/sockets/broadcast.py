"""Pub and sub: one publisher, ten subscribers that share a process, 128-byte messages.

The figure is deliveries at all subscribers together. pyzmq has one call for each message; ours are measured
with that and with ``send_many`` and ``recv_many``, their fastest way. Ours may drop messages for a slow
subscriber, as SP does, so the share that arrived is reported too. pyzmq runs without high-water marks and
drops nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import BODY, Report, pauses, run_async, until_written
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG_ASYNCIO, PYZMQ, ZMQ_LOOPBACK, Peers
from protocols import Pub0, Sub0

PUB_SUB: Final = "pub/sub 1:10, 128 B"
DELIVERIES: Final = "deliveries/s"
SUBSCRIBERS: Final = 10
END: Final = b"end"

BATCHES: Final = "mangrove, batches"
BATCH: Final = 256

TARGETS: Final = (
    Target(PUB_SUB, DELIVERIES, OURS, PYZMQ, 1.5, True),
    Target(PUB_SUB, DELIVERIES, BATCHES, PYZMQ, 1.5, True),
)


def delivered(counts: list[int], took_s: float, sent: int, stamps: list[float]) -> Figures:
    total = sum(counts)
    return {
        DELIVERIES: total / took_s,
        "arrived %": 100 * total / (sent * len(counts)),
        **pauses(stamps),
    }


# --- ours


def ours_pub(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pub0() as pub:
            listener = await pub.listen(LOOPBACK)
            report(listener.url)
            await pub.wait_for_peers(SUBSCRIBERS)
            await asyncio.to_thread(gate.wait)
            send = pub.send
            for _ in range(count):
                await send(BODY)
            await until_written(pub)
            await send(END)
            report("sent")
            await asyncio.sleep(0.3)

    run_async(main())


async def subscribed(url: str) -> list[Sub0]:
    subs = [Sub0(dial=url, topics=[b""]) for _ in range(SUBSCRIBERS)]
    for sub in subs:
        await sub.__aenter__()
        await sub.wait_for_peers(1)
    return subs


def received(sub: Sub0) -> int:
    """Messages that the application of this subscriber got, without the end mark."""
    statistics = sub.statistics()
    return statistics.frames_in - sum(statistics.drops.values()) - 1


async def count_until_end(subs: list[Sub0], sent: int, watch: Any, read: Any) -> Figures:
    """The first subscriber looks for the end mark and notes times; the others only read, as pyzmq's do."""
    await subs[0].recv()
    start = time.perf_counter()
    stamps = [start]
    readers = [asyncio.create_task(read(sub)) for sub in subs[1:]]
    await watch(subs[0], stamps)
    took_s = time.perf_counter() - start
    await asyncio.sleep(0.1)  # the others have the end mark too
    figures = delivered([received(sub) for sub in subs], took_s, sent, stamps)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    for sub in subs:
        await sub.aclose()
    return figures


def ours_subs(url: str, count: int, report: Report, gate: Any) -> None:
    async def watch(sub: Sub0, stamps: list[float]) -> None:
        got = 0
        while await sub.recv() != END:
            got += 1
            if not got & 15:
                stamps.append(time.perf_counter())

    async def read(sub: Sub0) -> None:
        recv = sub.recv
        while True:
            await recv()

    async def main() -> None:
        subs = await subscribed(url)
        report("subscribed")
        report(await count_until_end(subs, count, watch, read))

    run_async(main())


def ours_pub_batches(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pub0() as pub:
            listener = await pub.listen(LOOPBACK)
            report(listener.url)
            await pub.wait_for_peers(SUBSCRIBERS)
            await asyncio.to_thread(gate.wait)
            bodies = [BODY] * BATCH
            for _ in range(count // BATCH):
                await pub.send_many(bodies)
            await until_written(pub)
            await pub.send(END)
            report("sent")
            await asyncio.sleep(0.3)

    run_async(main())


def ours_subs_batches(url: str, count: int, report: Report, gate: Any) -> None:
    async def watch(sub: Sub0, stamps: list[float]) -> None:
        while (await sub.recv_many())[-1] != END:
            stamps.append(time.perf_counter())

    async def read(sub: Sub0) -> None:
        while True:
            await sub.recv_many()

    async def main() -> None:
        subs = await subscribed(url)
        report("subscribed")
        report(await count_until_end(subs, count // BATCH * BATCH, watch, read))

    run_async(main())


# --- pynng


def pynng_pub(count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Pub0(listen=LOOPBACK) as pub:
            report(f"tcp://{pub.listeners[0].local_address}")
            await asyncio.to_thread(gate.wait)
            for _ in range(count):
                await pub.asend(BODY)
            await asyncio.sleep(0.5)
            await pub.asend(END)
            report("sent")
            await asyncio.sleep(0.2)

    run_async(main())


def pynng_subs(url: str, count: int, report: Report, gate: Any) -> None:
    import pynng

    async def read(sub: Any, stamps: list[float] | None) -> int:
        got = 0
        while await sub.arecv() != END:
            got += 1
            if stamps is not None and not got & 15:
                stamps.append(time.perf_counter())
        return got

    async def main() -> None:
        subs = [pynng.Sub0(dial=url, topics=b"", block_on_dial=True) for _ in range(SUBSCRIBERS)]
        await asyncio.sleep(0.3)
        report("subscribed")
        await subs[0].arecv()
        start = time.perf_counter()
        stamps: list[float] = [start]
        last: list[float] = []

        async def timed(sub: Any, number: int) -> int:
            got = await read(sub, None if number else stamps)
            last.append(time.perf_counter())
            return got

        counts = await asyncio.gather(*(timed(sub, n) for n, sub in enumerate(subs)))
        # The publisher waits half a second before it reports its end: nothing arrives in that time.
        report(delivered(counts, max(last) - start - 0.5, count, stamps))

    run_async(main())


# --- pyzmq


def zmq_pub(count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        pub.set_hwm(0)
        report(f"{ZMQ_LOOPBACK}:{pub.bind_to_random_port(ZMQ_LOOPBACK)}")
        gate.wait()
        time.sleep(0.5)  # ZeroMQ's slow joiner: a publisher is not told of subscriptions
        send = pub.send
        for _ in range(count):
            send(BODY)
        send(END)
        report("sent")
        time.sleep(0.05)


def zmq_subs(url: str, count: int, report: Report, gate: Any) -> None:
    """All subscribers get the same messages, so each in turn gives one: no poll, the fastest way."""
    import zmq

    with zmq.Context() as context:
        subs = []
        for _ in range(SUBSCRIBERS):
            sub = context.socket(zmq.SUB)
            sub.set_hwm(0)
            sub.connect(url)
            sub.subscribe(b"")
            subs.append(sub)
        report("subscribed")
        receivers = [sub.recv for sub in subs]
        for recv in receivers:
            recv()
        start = time.perf_counter()
        stamps = [start]
        first, *others = receivers
        got = 0
        while first() != END:
            for recv in others:
                recv()
            got += 1
            if not got & 15:
                stamps.append(time.perf_counter())
        for recv in others:
            recv()
        report(delivered([got] * SUBSCRIBERS, time.perf_counter() - start, count, stamps))
        for sub in subs:
            sub.close(0)


# --- the cases


def pub_sub(pub: Callable[..., None], subs: Callable[..., None], count: int) -> Figures:
    with workers() as group:
        publisher = group.start(pub, count)
        subscribers = group.start(subs, publisher.hear(), count)
        subscribers.hear()
        publisher.release()
        publisher.hear()
        figures: Figures = subscribers.hear()
        return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    many, few = (max(1000, int(count * scale)) for count in (200_000, 4_000))
    yield Case(PUB_SUB, OURS, partial(pub_sub, ours_pub, ours_subs, many))
    yield Case(PUB_SUB, BATCHES, partial(pub_sub, ours_pub_batches, ours_subs_batches, 2 * many))
    if peers.zmq:
        yield Case(PUB_SUB, PYZMQ, partial(pub_sub, zmq_pub, zmq_subs, many))
    if peers.pynng:
        yield Case(PUB_SUB, PYNNG_ASYNCIO, partial(pub_sub, pynng_pub, pynng_subs, few))
