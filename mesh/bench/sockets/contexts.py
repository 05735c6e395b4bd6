"""Req and rep with a thousand requests in flight at once: one context each, on one connection.

pyzmq does this with DEALER and ROUTER under asyncio: one task sends, and one receives and finds the waiting
caller by an id. Both ends answer in one task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import BODY, Report, percentiles, run_async
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG_ASYNCIO, ZMQ_ASYNCIO, ZMQ_LOOPBACK, Peers
from protocols import Rep0, Req0

MANY_CONTEXTS: Final = "req/rep, 1000 contexts"
RATE: Final = "requests/s"
CONTEXTS: Final = 1000

TARGETS: Final = (Target(MANY_CONTEXTS, RATE, OURS, ZMQ_ASYNCIO, 5.0, True),)

Ask = Callable[[int], Any]


async def keep_asking(ask: Ask, each: int) -> Figures:
    """Send ``each`` requests one after another for every one of `CONTEXTS` askers side by side, after one to
    warm up. Every tenth asker is timed."""
    samples: list[float] = []

    async def one(number: int) -> None:
        if number % 10:
            for _ in range(each):
                await ask(number)
            return
        for _ in range(each):
            start = time.perf_counter()
            await ask(number)
            samples.append(time.perf_counter() - start)

    await asyncio.gather(*(ask(number) for number in range(CONTEXTS)))
    start = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(CONTEXTS)))
    return {RATE: CONTEXTS * each / (time.perf_counter() - start), **percentiles(samples)}


# --- ours


def ours_rep(report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Rep0() as rep:
            listener = await rep.listen(LOOPBACK)
            report(listener.url)
            while True:
                await rep.send(await rep.recv())

    run_async(main())


def ours_req(url: str, each: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Req0() as req:
            req.dial(url)
            await req.wait_for_peers(1)
            contexts = [req.new_context() for _ in range(CONTEXTS)]

            async def ask(number: int) -> None:
                context = contexts[number]
                await context.send(BODY)
                await context.recv()

            report(await keep_asking(ask, each))

    run_async(main())


# --- pynng


def pynng_rep(report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Rep0(listen=LOOPBACK) as rep:
            report(f"tcp://{rep.listeners[0].local_address}")
            while True:
                await rep.asend(await rep.arecv())

    run_async(main())


def pynng_req(url: str, each: int, report: Report, gate: Any) -> None:
    import pynng

    async def main() -> None:
        with pynng.Req0(dial=url, block_on_dial=True) as req:
            contexts = [req.new_context() for _ in range(CONTEXTS)]

            async def ask(number: int) -> None:
                context = contexts[number]
                await context.asend(BODY)
                await context.arecv()

            report(await keep_asking(ask, each))
            for context in contexts:
                context.close()

    run_async(main())


# --- pyzmq


def zmq_router(report: Report, gate: Any) -> None:
    import zmq
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
            router.set_hwm(0)
            report(f"{ZMQ_LOOPBACK}:{router.bind_to_random_port(ZMQ_LOOPBACK)}")
            while True:
                await router.send_multipart(await router.recv_multipart())

    run_async(main())


def zmq_dealer(url: str, each: int, report: Report, gate: Any) -> None:
    import zmq
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.set_hwm(0)
            dealer.connect(url)
            waiting: dict[bytes, asyncio.Future[bytes]] = {}
            ids = [number.to_bytes(4, "big") for number in range(CONTEXTS)]
            loop = asyncio.get_running_loop()

            async def read() -> None:
                while True:
                    id, body = await dealer.recv_multipart()
                    waiting.pop(id).set_result(body)

            async def ask(number: int) -> None:
                answer = waiting[ids[number]] = loop.create_future()
                await dealer.send_multipart([ids[number], BODY])
                await answer

            reader = asyncio.create_task(read())
            report(await keep_asking(ask, each))
            reader.cancel()

    run_async(main())


# --- the cases


def asked(rep: Callable[..., None], req: Callable[..., None], each: int) -> Figures:
    with workers() as group:
        replier = group.start(rep)
        figures: Figures = group.start(req, replier.hear(), each).hear()
        return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    each, few = max(1, int(100 * scale)), max(1, int(20 * scale))
    yield Case(MANY_CONTEXTS, OURS, partial(asked, ours_rep, ours_req, each))
    if peers.zmq:
        yield Case(MANY_CONTEXTS, ZMQ_ASYNCIO, partial(asked, zmq_router, zmq_dealer, few))
    if peers.pynng:
        yield Case(MANY_CONTEXTS, PYNNG_ASYNCIO, partial(asked, pynng_rep, pynng_req, few))
