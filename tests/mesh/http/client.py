"""A small HTTP client for tests: it sends exactly what it is given, and reads one answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Caller:
    """One connection to an HTTP server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, url: str) -> Caller:
        where = urlsplit(url)
        assert where.hostname is not None
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, path: str, method: str = "GET", **headers: str) -> None:
        lines = {"host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.say(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    async def head(self) -> Answer:
        """Status and headers of the next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return Answer(int(first.split()[1]), headers, b"")

    async def answer(self, *, body: bool = True) -> Answer:
        head = await self.head()
        size = int(head.headers["content-length"]) if body else 0
        return Answer(head.status, head.headers, await self.reader.readexactly(size))

    async def chunk(self) -> bytes:
        """The next piece of a stream."""
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def ended(self) -> bytes:
        """The remaining bytes until the server closes."""
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


async def get(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request on a connection of its own."""
    caller = await Caller.dial(url)
    try:
        caller.ask(path, method, **headers)
        return await caller.answer(body=method != "HEAD")
    finally:
        caller.close()
