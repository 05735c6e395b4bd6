"""Five thousand silent connections: what each costs the process that accepted them.

The peers are bare sockets that sent their header, so only the accepting side is measured. Resident memory and
allocation (tracemalloc) are measured in separate runs, as counting takes memory too.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import Report, resident_bytes, run_async
from mesh.bench.sockets.peers import LOOPBACK, OURS, PYNNG, Peers
from protocols import Pull0

IDLE: Final = "5000 idle connections"
CONNECTIONS: Final = 5000
WARM_UP: Final = 50
FILES_BESIDE: Final = 200
PUSH_HEADER: Final = bytes.fromhex("00 53 50 00 00 50 00 00")

TARGETS: Final = (
    Target(IDLE, "RSS KB each", OURS, None, 12.0, False),
    Target(IDLE, "traced KB each", OURS, None, 12.0, False),
)


def allow_files() -> int:
    """Raise the limit on open files as far as this process may; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if sys.platform == "darwin":
        hard = min(hard, 10240)  # macOS says "unlimited" and accepts no more than this
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_possible() -> int:
    """Number of connections that this machine can have, up to `CONNECTIONS`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS, hard - FILES_BESIDE) if hard >= 0 else CONNECTIONS


def settled_bytes() -> tuple[int, int]:
    """Resident and traced memory, without garbage."""
    gc.collect()
    return resident_bytes(), tracemalloc.get_traced_memory()[0]


def per_connection(before: tuple[int, int], after: tuple[int, int], count: int, traced: bool) -> Figures:
    if traced:
        return {"traced KB each": (after[1] - before[1]) / count / 1000}
    return {"RSS KB each": (after[0] - before[0]) / count / 1000}


def ours_accepting(count: int, traced: bool, report: Report, gate: Any) -> None:
    async def main() -> None:
        async with Pull0() as pull:
            listener = await pull.listen(LOOPBACK)
            report(listener.url)
            await pull.wait_for_peers(WARM_UP)
            if traced:
                tracemalloc.start()
            before = settled_bytes()
            report("warm")
            await pull.wait_for_peers(WARM_UP + count)
            report(per_connection(before, settled_bytes(), count, traced))
            await asyncio.to_thread(gate.wait)

    allow_files()
    run_async(main())


def pynng_accepting(count: int, traced: bool, report: Report, gate: Any) -> None:
    """Its memory comes from malloc, so only resident memory is meaningful."""
    import pynng

    allow_files()
    attached = 0

    def count_one(_pipe: Any) -> None:
        nonlocal attached
        attached += 1

    def wait_for(wanted: int) -> None:
        while attached < wanted:
            time.sleep(0.01)

    with pynng.Pull0() as pull:
        pull.add_post_pipe_connect_cb(count_one)
        pull.listen(LOOPBACK)
        report(f"tcp://{pull.listeners[0].local_address}")
        wait_for(WARM_UP)
        before = settled_bytes()
        report("warm")
        wait_for(WARM_UP + count)
        report(per_connection(before, settled_bytes(), count, traced))
        gate.wait()


def bare_peers(url: str, count: int, report: Report, gate: Any) -> None:
    """Connect and send the header: first for a few, then (once released) for the rest."""
    allow_files()
    target = urlsplit(url)
    peers = []
    for number in range(WARM_UP + count):
        if number == WARM_UP:
            report("warm")
            gate.wait()
            gate.clear()
        peer = socket.create_connection((target.hostname, target.port))
        peer.sendall(PUSH_HEADER)
        peers.append(peer)
    report("connected")
    gate.wait()


def connected(accepting: Callable[..., None], count: int, kinds: tuple[bool, ...]) -> Figures:
    figures: Figures = {}
    for traced in kinds:
        with workers() as group:
            acceptor = group.start(accepting, count, traced)
            peers = group.start(bare_peers, acceptor.hear(), count)
            for worker in (peers, acceptor):
                worker.hear()
            peers.release()
            peers.hear()
            figures |= acceptor.hear()
    return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    count = max(100, int(connections_possible() * min(scale, 1)))
    yield Case(IDLE, OURS, partial(connected, ours_accepting, count, (False, True)))
    if peers.pynng:
        yield Case(IDLE, PYNNG, partial(connected, pynng_accepting, count, (False,)))
