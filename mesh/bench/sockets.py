"""Sockets alone: push/pull with one ``await`` a message, and a request's round trip, between two processes.

128-byte messages over TCP loopback. Peers: pynng (asyncio calls), pyzmq (blocking calls, its fastest way, and
zmq.asyncio for the round trip). Every worker function runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from mesh.bench.harness import Case, Figures, Target, workers
from protocols import Pull0, Push0, Rep0, Req0

BODY = b"x" * 128
WARM_UP = 200

Report = Callable[[Any], None]

PUSH_PULL = "push/pull"
ROUND_TRIP = "round trip"
ROUND_TRIP_PINNED = "round trip, a core each"
"""Where the kernel puts two processes that wait for each other decides a round trip by a factor of three:
on one core no processor has to be woken. So both are measured: as the kernel places them, and one core for
each process (a library's own threads included)."""

TARGETS = (
    Target(PUSH_PULL, "messages/s", "mangrove", "pynng asyncio", 60.0, True),
    Target(PUSH_PULL, "messages/s", "mangrove", "pyzmq", 1.0, True),
    *(
        Target(work, "p50 us", ours, peer, bound, False)
        for work in (ROUND_TRIP, ROUND_TRIP_PINNED)
        for ours, peer, bound in (
            ("mangrove", "pyzmq", 1.2),
            ("mangrove, uvloop client", "pyzmq", 1.0),
            ("mangrove", "zmq.asyncio", 1.2),
        )
    ),
)


def run_async(main: Coroutine[Any, Any, None], uvloop: bool = False) -> None:
    """Run ``main`` on the stock loop, or on uvloop."""
    if uvloop:
        import uvloop as loop

        loop.run(main)
    else:
        asyncio.run(main)


# --- push/pull


def ours_pull(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pull0() as pull:
            listener = await pull.listen("tcp://127.0.0.1:0")
            report(listener.url)
            await pull.recv()
            start = time.perf_counter()
            for _ in range(count - 1):
                await pull.recv()
            report((count - 1) / (time.perf_counter() - start))

    run_async(main())


def ours_push(url: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Push0() as push:
            await push.dial(url)
            await push.wait_for_peers(1)
            send = push.send
            for _ in range(count):
                await send(BODY)
            report("sent")
            await asyncio.to_thread(gate.wait)

    run_async(main())


def pynng_pull(count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Pull0(listen="tcp://127.0.0.1:0") as pull:
            report(str(pull.listeners[0].local_address).join(("tcp://", "")))
            await pull.arecv()
            start = time.perf_counter()
            for _ in range(count - 1):
                await pull.arecv()
            report((count - 1) / (time.perf_counter() - start))

    run_async(main())


def pynng_push(url: str, count: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Push0(dial=url) as push:
            for _ in range(count):
                await push.asend(BODY)
            report("sent")
            await asyncio.to_thread(gate.wait)

    run_async(main())


def zmq_pull(count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.set_hwm(0)
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        report(f"tcp://127.0.0.1:{port}")
        pull.recv()
        start = time.perf_counter()
        for _ in range(count - 1):
            pull.recv()
        report((count - 1) / (time.perf_counter() - start))


def zmq_push(url: str, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.set_hwm(0)
        push.connect(url)
        for _ in range(count):
            push.send(BODY)
        report("sent")
        gate.wait()


def push_pull(pull: Callable[..., None], push: Callable[..., None], count: int) -> Figures:
    """Messages a second at the puller, first to last."""
    with workers() as group:
        puller = group.start(pull, count)
        pusher = group.start(push, puller.hear(), count)
        pusher.hear()
        return {"messages/s": puller.hear()}


# --- round trip


def percentiles(samples_s: list[float]) -> Figures:
    """p50 and p99 in microseconds of round trips given in seconds."""
    ordered = sorted(samples_s)
    return {"p50 us": ordered[len(ordered) // 2] * 1e6, "p99 us": ordered[int(len(ordered) * 0.99)] * 1e6}


def ours_rep(report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Rep0() as rep:
            listener = await rep.listen("tcp://127.0.0.1:0")
            report(listener.url)
            async for body in rep:
                await rep.send(body)

    run_async(main())


def ours_req(url: str, count: int, uvloop: bool, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Req0() as req:
            await req.dial(url)
            await req.wait_for_peers(1)
            samples = []
            for number in range(count + WARM_UP):
                start = time.perf_counter()
                await req.send(BODY)
                await req.recv()
                if number >= WARM_UP:
                    samples.append(time.perf_counter() - start)
            report(percentiles(samples))

    run_async(main(), uvloop)


def zmq_rep(report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        report(f"tcp://127.0.0.1:{rep.bind_to_random_port('tcp://127.0.0.1')}")
        while True:
            rep.send(rep.recv())


def zmq_req(url: str, count: int, _uvloop: bool, report: Report, gate: Any) -> None:
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
            report(f"tcp://127.0.0.1:{rep.bind_to_random_port('tcp://127.0.0.1')}")
            while True:
                await rep.send(await rep.recv())

    run_async(main())


def zmq_asyncio_req(url: str, count: int, uvloop: bool, report: Report, gate: Any) -> None:
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

    run_async(main(), uvloop)


def round_trip(
    rep: Callable[..., None], req: Callable[..., None], count: int, *, pinned: bool, uvloop: bool = False
) -> Figures:
    """Percentiles of one request after another, between two processes."""
    with workers() as group:
        replier = group.start(rep, core=1 if pinned else None)
        requester = group.start(req, replier.hear(), count, uvloop, core=0 if pinned else None)
        figures: Figures = requester.hear()
        return figures


# --- the cases


def missing(module: str) -> str | None:
    """Why a peer cannot run here, or None."""
    if importlib.util.find_spec(module) is None:
        return f"the package {module} is not installed (pip install 'mangrove-mesh[bench]')"
    return None


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All cases whose libraries are installed; ``scale`` multiplies the message counts."""
    many, few, trips = (max(50, int(count * scale)) for count in (1_000_000, 20_000, 4_000))
    result = [Case(PUSH_PULL, "mangrove", partial(push_pull, ours_pull, ours_push, many))]
    repliers: list[tuple[str, Callable[..., None], Callable[..., None], bool]] = [
        ("mangrove", ours_rep, ours_req, False)
    ]
    if reason := missing("uvloop"):
        skipped["mangrove, uvloop client"] = reason
    else:
        repliers.append(("mangrove, uvloop client", ours_rep, ours_req, True))
    if reason := missing("pynng"):
        skipped["pynng"] = reason
    else:
        result.append(Case(PUSH_PULL, "pynng asyncio", partial(push_pull, pynng_pull, pynng_push, few)))
    if reason := missing("zmq"):
        skipped["pyzmq"] = reason
    else:
        result.append(Case(PUSH_PULL, "pyzmq", partial(push_pull, zmq_pull, zmq_push, many)))
        repliers.append(("pyzmq", zmq_rep, zmq_req, False))
        repliers.append(("zmq.asyncio", zmq_asyncio_rep, zmq_asyncio_req, False))
    for work, pinned in ((ROUND_TRIP, False), (ROUND_TRIP_PINNED, True)):
        for system, rep, req, uvloop in repliers:
            run = partial(round_trip, rep, req, trips, pinned=pinned, uvloop=uvloop)
            result.append(Case(work, system, run))
    return result
