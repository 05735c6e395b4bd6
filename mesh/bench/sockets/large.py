"""One message of 64 MiB at a time between two Pair0: the time until an answer to the whole message, and the
memory of either side.

Memory is the peak of the process above its state before the body was made, so the application's own body
counts once on each side.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import PeakMemory, Report, can_read_memory, run_async
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG, PYZMQ, ZMQ_LOOPBACK, Peers
from protocols import Pair0, SocketOptions

LARGE: Final = "one 64 MiB message"
SIZE: Final = 64 << 20
OK: Final = b"ok"

TARGETS: Final = (
    Target(LARGE, "ms", OURS, PYZMQ, 1.0, False),
    Target(LARGE, "memory x, sender", OURS, None, 2.5, False),
    Target(LARGE, "memory x, receiver", OURS, None, 2.5, False),
)


class Meter:
    """Times of single messages, and peak memory if the system tells it."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._memory = PeakMemory() if can_read_memory() else None
        self.samples_s: list[float] = []

    def figures(self) -> Figures:
        figures = {"ms": statistics.median(self.samples_s) * 1e3} if self.samples_s else {}
        if self._memory is not None:
            figures[f"memory x, {self._side}"] = self._memory.growth() / SIZE
        return figures


# --- ours


def ours_receiver(count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pair0(options=SocketOptions(recv_size_max=0)) as pair:
            listener = await pair.listen(LOOPBACK)
            report(listener.url)
            meter = Meter("receiver")
            for _ in range(count):
                size = len(await pair.recv())  # the body itself is dropped at once
                assert size == SIZE
                await pair.send(OK)
            report(meter.figures())
            while True:  # the last answer is still in flight
                await pair.recv()

    run_async(main())


def ours_sender(url: str, count: int, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pair0() as pair:
            pair.dial(url)
            await pair.wait_for_peers(1)
            meter = Meter("sender")
            for _ in range(count):
                body = b"x" * SIZE
                start = time.perf_counter()
                await pair.send(body)
                assert await pair.recv() == OK
                meter.samples_s.append(time.perf_counter() - start)
                del body
            report(meter.figures())

    run_async(main())


# --- pynng


def pynng_receiver(count: int, report: Report, gate: Any) -> None:
    import pynng

    with pynng.Pair0(listen=LOOPBACK, recv_max_size=0) as pair:
        report(f"tcp://{pair.listeners[0].local_address}")
        meter = Meter("receiver")
        for _ in range(count):
            size = len(pair.recv())
            assert size == SIZE
            pair.send(OK)
        report(meter.figures())
        gate.wait()


def pynng_sender(url: str, count: int, report: Report, gate: Any) -> None:
    import pynng

    with pynng.Pair0(dial=url, block_on_dial=True) as pair:
        meter = Meter("sender")
        for _ in range(count):
            body = b"x" * SIZE
            start = time.perf_counter()
            pair.send(body)
            assert pair.recv() == OK
            meter.samples_s.append(time.perf_counter() - start)
            del body
        report(meter.figures())


# --- pyzmq


def zmq_receiver(count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        report(f"{ZMQ_LOOPBACK}:{pair.bind_to_random_port(ZMQ_LOOPBACK)}")
        meter = Meter("receiver")
        for _ in range(count):
            size = len(pair.recv())
            assert size == SIZE
            pair.send(OK)
        report(meter.figures())
        gate.wait()


def zmq_sender(url: str, count: int, report: Report, gate: Any) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        pair.connect(url)
        meter = Meter("sender")
        for _ in range(count):
            body = b"x" * SIZE
            start = time.perf_counter()
            pair.send(body, copy=False)  # its fastest way for a body of this size
            assert pair.recv() == OK
            meter.samples_s.append(time.perf_counter() - start)
            del body
        report(meter.figures())


# --- the cases


def carried(receiver: Callable[..., None], sender: Callable[..., None], count: int) -> Figures:
    with workers() as group:
        receiving = group.start(receiver, count)
        sending = group.start(sender, receiving.hear(), count)
        return {**sending.hear(), **receiving.hear()}


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    count = max(1, int(9 * min(scale, 1)))
    yield Case(LARGE, OURS, partial(carried, ours_receiver, ours_sender, count))
    if peers.zmq:
        yield Case(LARGE, PYZMQ, partial(carried, zmq_receiver, zmq_sender, count))
    if peers.pynng:
        yield Case(LARGE, PYNNG, partial(carried, pynng_receiver, pynng_sender, count))
