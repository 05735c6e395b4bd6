"""A gate passes frames, and holds them at a chosen one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from tests.support.gates import Gate, Trap

HELLO, DATA = 0, 5
REQ: Final = b"\0SP\0\0\x30\0\0"
BUS: Final = b"\0SP\0\0\x70\0\0"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def framed(kind: int, *, behind: bytes = b"", size: int = 10) -> bytes:
    frame = behind + bytes((0x93, kind)) + bytes(size)
    return struct.pack(">Q", len(frame)) + frame


@asynccontextmanager
async def ends(header: bytes) -> AsyncIterator[tuple[Gate, Streams, Streams]]:
    """A gate, and both ends of a connection through it after their headers."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    server = await asyncio.start_server(lambda *both: accepted.put_nowait(both), "127.0.0.1", 0)
    async with server, Gate(server.sockets[0].getsockname()[1]) as gate:
        dialer = await asyncio.open_connection("127.0.0.1", int(gate.url.rpartition(":")[2]))
        dialer[1].write(header)
        listener = await accepted.get()
        assert await listener[0].readexactly(8) == header
        listener[1].write(header)
        assert await dialer[0].readexactly(8) == header
        yield gate, dialer, listener
        for _, writer in (dialer, listener):
            writer.close()


@pytest.mark.parametrize(("header", "behind"), [(REQ, b"\x93\x05\0\1"), (BUS, b"")])
async def test_frames_behind_a_held_one_wait_and_the_other_direction_is_open(
    header: bytes, behind: bytes
) -> None:
    """A backtrace word that looks like a frame is not taken for one."""
    first, held, last = framed(HELLO, behind=behind), framed(DATA, behind=behind), framed(7, behind=behind)
    async with ends(header) as (gate, dialer, listener):
        gate.traps = [trap := Trap(DATA, to_listener=True)]
        dialer[1].write(first + held + last)
        assert await listener[0].readexactly(len(first)) == first
        await trap.sprung.wait()
        listener[1].write(held)
        assert await dialer[0].readexactly(len(held)) == held
        trap.release()
        assert await listener[0].readexactly(len(held + last)) == held + last
        dialer[1].write(held)
        assert await listener[0].readexactly(len(held)) == held, "it holds no more"


@pytest.mark.parametrize("passing", [0.0, 0.5])
async def test_a_frame_that_passes_partly_ends_the_connection(passing: float) -> None:
    frame = framed(DATA, size=1000)
    async with ends(BUS) as (gate, dialer, listener):
        gate.traps = [trap := Trap(DATA)]
        listener[1].write(frame)
        await trap.sprung.wait()
        trap.release(passing)
        assert await dialer[0].read() == frame[: int(len(frame) * passing)]
        assert await listener[0].read() == b""


async def test_a_dialer_is_disconnected_while_no_listener_is_behind_the_gate() -> None:
    async with ends(BUS) as (gate, dialer, listener):
        listener[1].close()
        assert await dialer[0].read() == b""
        gate.behind = 1
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gate.url.rpartition(":")[2]))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
