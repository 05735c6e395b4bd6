"""Peers that are only a file descriptor, memory by the byte, and proof that honest peers get through.

The measured figures are printed: ``pytest tests/protocols/hostile -rP | grep figure``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from protocols import Pull0, Push0, SocketOptions
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.support.own_time import own_time_s

LEADS = {"tcp": TCP_LEAD, "ipc": IPC_LEAD}
PUSH = encode_header(ProtocolNumber.PUSH0)
QUICK = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05, handshake_timeout_s=5.0)


def connect(url: str) -> socket.socket:
    """A plain stream to a tcp or ipc listener of this process; it need not have accepted yet."""
    scheme, _, address = url.partition("://")
    if scheme == "ipc":
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(address)
    else:
        host, _, port = address.rpartition(":")
        peer = socket.create_connection((host, int(port)))
    peer.setblocking(False)
    return peer


class Crowd:
    """Many connections, held as file descriptors only, so that the memory measured is the listener's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: list[int] = []
        self._unsaid: dict[int, bytes] = {}

    async def join(self, count: int, words: bytes = b"") -> None:
        """Add ``count`` peers, each sending ``words``; the listener gets a turn after every hundred."""
        for number in range(count):
            peer = connect(self.url)
            if words:
                peer.send(words)
            self.files.append(peer.detach())
            if number % 100 == 99:
                await asyncio.sleep(0.001)

    def say(self, words: bytes) -> None:
        """Each peer sends them, or the rest of what it could not send before: no stream is torn."""
        for file in self.files:
            rest = self._unsaid.get(file) or words
            try:
                said = os.write(file, rest)
            except OSError:
                continue  # the kernel is full, or the stream was cut: the subject of the test
            self._unsaid[file] = rest[said:]

    def leave(self) -> None:
        files, self.files = self.files, []
        for file in files:
            os.close(file)


@contextmanager
def crowd(url: str) -> Iterator[Crowd]:
    peers = Crowd(url)
    try:
        yield peers
    finally:
        peers.leave()


def figure(what: str, value: str) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition(" ")[0]
    print(f"figure {test}: {what} {value}")


async def traced(work: Callable[[], Awaitable[object]]) -> int:
    """Bytes of Python's memory that are held after ``work`` and were not before."""
    gc.collect()
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        figure("held", f"{after - before} bytes")
        return after - before
    finally:
        tracemalloc.stop()


async def peak_traced(work: Callable[[], Awaitable[object]]) -> int:
    """The peak of memory held during ``work``, above the amount held before."""
    gc.collect()
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work()
        _, peak = tracemalloc.get_traced_memory()
        figure("peak", f"{peak - before} bytes")
        return peak - before
    finally:
        tracemalloc.stop()


async def honest(pull: Pull0, url: str, count: int = 1) -> float:
    """Connect honest pushers one after the other, and return the seconds of the slowest.

    The time is that of this thread: they and all the others live in it.
    """
    slowest = 0.0
    for number in range(count):
        begun = own_time_s()
        async with Push0(options=QUICK) as push:
            await push.dial_once(url)
            await push.send(b"honest %d" % number)
            while await pull.recv(timeout=20) != b"honest %d" % number:
                pass
        slowest = max(slowest, own_time_s() - begun)
    figure("honest peer heard after", f"{slowest:.3f} s")
    return slowest
