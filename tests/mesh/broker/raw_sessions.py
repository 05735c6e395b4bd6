"""A session with a real broker that sends any frames, one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mesh.wire.capabilities import SESSION, Offer
from mesh.wire.durable_frames import WORK, WORK_SIZE, read_work
from mesh.wire.session_frames import DATA, Kind, data_head, decode, encode
from mesh.wire.session_opening import hello
from tests.mesh.loopback import REQ, Stranger

ADDRESS = b"\x80\x00\x00\x01"
"""The backtrace of a REQ's first request."""


class RawSession:
    """The session. ``work`` has the heads of the WORK frames that arrived, as `read_work` returns them."""

    def __init__(self, stranger: Stranger) -> None:
        self._stranger = stranger
        self.work: list[Any] = []

    def say(self, kind: int, *fields: object) -> None:
        self._stranger.send(ADDRESS + encode(kind, *fields))

    def publish(self, block: bytes, behind: int = 0) -> None:
        self._stranger.send(ADDRESS + data_head(0, 0, behind, 0, len(block)) + block)

    async def hear(self, kind: int) -> list[Any]:
        """The fields of the next frame of a kind; others are skipped."""
        while True:
            frame = await self._stranger.receive()
            found = frame[5]
            if found == WORK:
                self.work.append(read_work(frame, 4))
                fields: list[Any] = [frame[4 + WORK_SIZE :]]
            elif found == DATA:
                fields = [frame[4:]]
            else:
                fields = decode(frame, 4)[1:]
            if found == kind:
                return fields
            assert found != Kind.ERROR, fields

    async def lives(self) -> None:
        """The broker has read everything that was sent, and the session continues."""
        self.say(Kind.PING, 7)
        assert await self.hear(Kind.PONG) == [7]

    async def hung_up(self) -> bool:
        return await self._stranger.hung_up()


@asynccontextmanager
async def raw_session(
    url: str, secret: bytes = b"s" * 32, boot: int = 7, offer: Offer = SESSION
) -> AsyncIterator[RawSession]:
    stranger = await Stranger.connect(url, REQ)
    session = RawSession(stranger)
    stranger.send(ADDRESS + hello(offer, secret, boot, "raw", 0.0))
    await session.hear(Kind.WELCOME)
    try:
        yield session
    finally:
        await stranger.close()
