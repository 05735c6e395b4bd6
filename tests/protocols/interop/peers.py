"""Sockets of other implementations: pynng in threads, ``nngcat`` and ``nanocat`` as processes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from protocols import SocketOptions
from tests.support.ports import free_port

DEADLINE_S = 30.0
OPTIONS = SocketOptions(
    reconnect_min_s=0.02,
    reconnect_max_s=0.1,
    recv_size_max=0,
    send_timeout_s=DEADLINE_S,
    recv_timeout_s=DEADLINE_S,
    survey_s=DEADLINE_S,
)


def address(scheme: str, folder: Path) -> str:
    """An address where nobody listens yet."""
    return f"tcp://127.0.0.1:{free_port()}" if scheme == "tcp" else f"ipc://{folder / 'peer.sock'}"


class Nng:
    """One pynng socket; its blocking calls are made in threads so that our loop goes on."""

    def __init__(self, kind: str, **options: Any) -> None:
        import pynng

        milliseconds = int(DEADLINE_S * 1000)
        self.socket = getattr(pynng, kind)(
            send_timeout=milliseconds, recv_timeout=milliseconds, recv_max_size=0, **options
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    async def send(self, body: bytes) -> None:
        await asyncio.to_thread(self.socket.send, body)

    async def send_all(self, bodies: list[bytes]) -> None:
        await asyncio.to_thread(lambda: [self.socket.send(body) for body in bodies])

    async def recv(self) -> bytes:
        return (await self.recv_all(1))[0]

    async def recv_all(self, count: int) -> list[bytes]:
        # `recv` of pynng 0.9 raises on empty bodies; `recv_msg` does not
        return await asyncio.to_thread(lambda: [self.socket.recv_msg().bytes for _ in range(count)])


class Program:
    """A running command-line peer."""

    def __init__(self, process: asyncio.subprocess.Process, command: str) -> None:
        self.process = process
        self.command = command

    async def lines(self, count: int) -> list[bytes]:
        """The next lines it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            return [(await self.process.stdout.readline()).rstrip(b"\n") for _ in range(count)]

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


@asynccontextmanager
async def program(name: str, *arguments: str) -> AsyncIterator[Program]:
    """Start ``nngcat`` or ``nanocat``; it ends with the block. Skips the test where it is not installed."""
    path = shutil.which(name)
    if path is None:
        package = {"nngcat": "nng-utils", "nanocat": "nanomsg-utils"}[name]
        pytest.skip(f"{name} is not installed (Debian package {package})")
    process = await asyncio.create_subprocess_exec(
        path, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield Program(process, f"{name} {' '.join(arguments)}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        transport = process._transport  # type: ignore[attr-defined]
        transport.close()
