"""Req and rep: one request after another, and the round trip of each.

The kernel's placement of two processes that wait for each other changes a round trip by a factor of three: on
one core no other core has to be woken. So both are measured: as the kernel places them, and with one core for
each process (a library's own threads included).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import BODY, WARM_UP, Allocation, Report, percentiles, run_async
from mesh.bench.sockets.peers import (
    LOOPBACK,
    OURS,
    OURS_UVLOOP,
    PYNNG,
    PYNNG_ASYNCIO,
    PYZMQ,
    ZMQ_ASYNCIO,
    ZMQ_LOOPBACK,
    Peers,
)
from protocols import Rep0, Req0

ROUND_TRIP: Final = "round trip"
ROUND_TRIP_PINNED: Final = "round trip, a core each"
MEDIAN: Final = "p50 us"
BURST: Final = 64

TARGETS: Final = tuple(
    Target(work, MEDIAN, ours, peer, bound, False)
    for work in (ROUND_TRIP, ROUND_TRIP_PINNED)
    for ours, peer, bound in (
        (OURS, PYZMQ, 1.0),
        (OURS_UVLOOP, PYZMQ, 0.8),
        (OURS, PYNNG_ASYNCIO, 0.7),
    )
)


# --- ours


def ours_rep(uvloop: bool, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Rep0() as rep:
            listener = await rep.listen(LOOPBACK)
            report(listener.url)
            while True:
                await rep.send(await rep.recv())

    run_async(main(), uvloop)


def ours_req(uvloop: bool, url: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Req0() as req:
            req.dial(url)
            await req.wait_for_peers(1)
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await req.send(BODY)
                await req.recv()
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            allocation = Allocation()
            for _ in range(BURST):  # one after another: the peak is that of a single round trip
                await req.send(BODY)
                await req.recv()
            report({"B/trip": allocation.per_message(1), **percentiles(samples)})

    run_async(main(), uvloop)


# --- pynng


def pynng_rep(report: Report, gate: Any) -> None:
    import pynng

    with pynng.Rep0(listen=LOOPBACK) as rep:
        report(f"tcp://{rep.listeners[0].local_address}")
        while True:
            rep.send(rep.recv())


def pynng_req(url: str, count: int, report: Report, gate: Any) -> None:
    import pynng

    with pynng.Req0(dial=url, block_on_dial=True) as req:
        samples = []
        for number in range(count + WARM_UP):
            start = time.perf_counter()
            req.send(BODY)
            req.recv()
            if number >= WARM_UP:
                samples.append(time.perf_counter() - start)
        report(percentiles(samples))


def pynng_asyncio_rep(report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Rep0(listen=LOOPBACK) as rep:
            report(f"tcp://{rep.listeners[0].local_address}")
            while True:
                await rep.asend(await rep.arecv())

    run_async(main())


def pynng_asyncio_req(url: str, count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Req0(dial=url, block_on_dial=True) as req:
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await req.asend(BODY)
                await req.arecv()
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            report(percentiles(samples))

    run_async(main())


# --- pyzmq


def zmq_rep(report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        report(f"{ZMQ_LOOPBACK}:{rep.bind_to_random_port(ZMQ_LOOPBACK)}")
        while True:
            rep.send(rep.recv())


def zmq_req(url: str, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        req.connect(url)
        samples = []
        for number in range(count + WARM_UP):
            start = time.perf_counter()
            req.send(BODY)
            req.recv()
            if number >= WARM_UP:
                samples.append(time.perf_counter() - start)
        report(percentiles(samples))


def zmq_asyncio_rep(report: Report, gate: Any) -> None:
    import zmq
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.REP) as rep:
            report(f"{ZMQ_LOOPBACK}:{rep.bind_to_random_port(ZMQ_LOOPBACK)}")
            while True:
                await rep.send(await rep.recv())

    run_async(main())


def zmq_asyncio_req(url: str, count: int, report: Report, gate: Any) -> None:
    import zmq
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.REQ) as req:
            req.connect(url)
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await req.send(BODY)
                await req.recv()
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            report(percentiles(samples))

    run_async(main())


# --- the cases


def round_trip(rep: Callable[..., None], req: Callable[..., None], count: int, pinned: bool) -> Figures:
    """Percentiles of one request after another, between two processes."""
    with workers() as group:
        replier = group.start(rep, core=1 if pinned else None)
        requester = group.start(req, replier.hear(), count, core=0 if pinned else None)
        figures: Figures = requester.hear()
        return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    trips = max(100, int(6_000 * scale))
    pairs: list[tuple[str, Callable[..., None], Callable[..., None]]] = [
        (OURS, partial(ours_rep, False), partial(ours_req, False))
    ]
    if peers.uvloop:
        pairs.append((OURS_UVLOOP, partial(ours_rep, True), partial(ours_req, True)))
    if peers.zmq:
        pairs.append((PYZMQ, zmq_rep, zmq_req))
        pairs.append((ZMQ_ASYNCIO, zmq_asyncio_rep, zmq_asyncio_req))
    if peers.pynng:
        pairs.append((PYNNG, pynng_rep, pynng_req))
        pairs.append((PYNNG_ASYNCIO, pynng_asyncio_rep, pynng_asyncio_req))
    for work, pinned in ((ROUND_TRIP, False), (ROUND_TRIP_PINNED, True)):
        for system, rep, req in pairs:
            yield Case(work, system, partial(round_trip, rep, req, trips, pinned))
