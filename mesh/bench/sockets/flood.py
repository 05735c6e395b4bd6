"""Timers beside a flood: how late a loop's timers are while 200 connections send as fast as they can.

The flood comes from bare sockets that write ready-made frames, so that the receiving socket is the limit, not
the senders. The same flood over one connection gives the full throughput for comparison.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from mesh.bench.harness import Case, Figures, Target, workers
from mesh.bench.measuring import BODY, Report, quantile, run_async
from mesh.bench.sockets.idle import PUSH_HEADER
from mesh.bench.sockets.peers import LOOPBACK, OURS, Peers
from protocols import Pull0

FLOOD: Final = "timers under 200 floods"
OURS_ALONE: Final = "mangrove, 1 connection"
CONNECTIONS: Final = 200
INTERVAL_S: Final = 0.01
SECONDS: Final = 4.0
CHUNK: Final = (len(BODY).to_bytes(8, "big") + BODY) * 480

TARGETS: Final = (Target(FLOOD, "late p50 ms", OURS, None, 60.0, False),)


def flooded_pull(seconds: float, report: Report, gate: Any) -> None:
    """Read everything. Every 10 ms, also set a timer for 10 ms, and note how late it was."""

    async def tick(lateness: list[float]) -> None:
        while True:
            due = time.perf_counter() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            lateness.append(time.perf_counter() - due)

    async def read(pull: Pull0, counts: list[int]) -> None:
        while True:
            counts[0] += len(await pull.recv_many())

    async def main() -> None:
        async with Pull0() as pull:
            listener = await pull.listen(LOOPBACK)
            report(listener.url)
            counts, lateness = [0], list[float]()
            reader = asyncio.create_task(read(pull, counts))
            await asyncio.to_thread(gate.wait)
            await asyncio.sleep(0.5)  # the flood is full now
            counts[0], start = 0, time.perf_counter()
            ticker = asyncio.create_task(tick(lateness))
            await asyncio.sleep(seconds)
            took_s = time.perf_counter() - start
            for task in (reader, ticker):
                task.cancel()
            ordered = sorted(lateness)
            shares = {"late p50 ms": 0.5, "late p99.9 ms": 0.999, "late max ms": 1.0}
            late = {name: quantile(ordered, share) * 1e3 for name, share in shares.items()}
            report({"messages/s": counts[0] / took_s, **late})

    run_async(main())


def flood(url: str, connections: int, report: Report, gate: Any) -> None:
    """Write to every socket that accepts data, until told to stop."""
    target = urlsplit(url)
    ready = selectors.DefaultSelector()
    for _ in range(connections):
        peer = socket.create_connection((target.hostname, target.port))
        peer.sendall(PUSH_HEADER)
        peer.recv(8)
        peer.setblocking(False)
        ready.register(peer, selectors.EVENT_WRITE, [0])
    report("connected")
    chunk = memoryview(CHUNK)
    while not gate.is_set():
        for key, _ in ready.select(1):
            assert isinstance(key.fileobj, socket.socket)
            position = key.data
            position[0] = (position[0] + key.fileobj.send(chunk[position[0] :])) % len(CHUNK)


def flooded(connections: int, seconds: float) -> Figures:
    with workers() as group:
        puller = group.start(flooded_pull, seconds)
        flooder = group.start(flood, puller.hear(), connections)
        flooder.hear()
        puller.release()
        figures: Figures = puller.hear()
        return figures


def cases(scale: float, peers: Peers) -> Iterator[Case]:
    seconds = max(1.0, SECONDS * min(scale, 1))
    yield Case(FLOOD, OURS, partial(flooded, CONNECTIONS, seconds))
    yield Case(FLOOD, OURS_ALONE, partial(flooded, 1, seconds))
