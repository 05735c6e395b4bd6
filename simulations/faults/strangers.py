"""Programs that do not belong to a mesh: they dial a broker by plain TCP and send what no broker sends.

Each makes some attempts, one connection each, and exposes the outcomes: a line for each attempt, with the
broker's refusal, or the side that closed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.broker.identity import draw_id
from mesh.cluster.admission import Admission, Refused, Stage
from mesh.wire.capabilities import LINK, Offer
from mesh.wire.link_frames import CHALLENGE_SIZE, TOKEN_SIZE, Hello, LinkKind, decode
from protocols.wire.framing import TCP_LEAD
from protocols.wire.handshake import Greeting, ProtocolNumber, encode_header
from protocols.wire.sp import SpCodec

if TYPE_CHECKING:
    from simulations.world import Main, Process

PAUSE_S: Final = 0.2
"""Seconds between two attempts."""
PATIENCE_S: Final = 10.0
"""A broker that has not closed a bad connection after so many seconds will not."""
GARBAGE_BYTES: Final = 4096
HUGE: Final = 1 << 62
"""A length that exceeds any memory."""
BUS_HEADER: Final = encode_header(ProtocolNumber.BUS0)


@dataclass(frozen=True, slots=True)
class Door:
    """A broker as a stranger sees it, and what former insiders know of its mesh."""

    host: str
    port: int
    mesh: str
    mesh_key: bytes | None


class Visit(asyncio.Protocol):
    """One connection to the Bus of a broker, closed at the end of its context."""

    def __init__(self) -> None:
        self._codec = SpCodec(Greeting.of(ProtocolNumber.BUS0, ProtocolNumber.BUS0), 0, TCP_LEAD)
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: Any = None

    @classmethod
    @asynccontextmanager
    async def to(cls, door: Door) -> AsyncIterator[Visit]:
        loop = asyncio.get_running_loop()
        transport, visit = await loop.create_connection(cls, door.host, door.port)
        try:
            yield visit
        finally:
            transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._codec.receive(data):
            self._frames.put_nowait(frame)

    def connection_lost(self, error: BaseException | None) -> None:
        self._frames.put_nowait(b"")

    def throw(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._transport.write(data)

    def introduce(self) -> None:
        """Send the first bytes of a Bus."""
        self._transport.write(self._codec.begin())

    def say(self, frames: Iterable[bytes]) -> None:
        for buffer in self._codec.encode(list(frames)):
            self._transport.write(buffer)

    async def hear(self) -> bytes:
        """The next frame; empty when the broker has closed."""
        return await self._frames.get()

    async def outcome(self) -> str:
        """The broker's last message, or that it closed without one."""
        while frame := await self.hear():
            if (message := decode(frame))[0] == LinkKind.REFUSED:
                return f"refused: {message[1]}: {message[2]}"
        return "closed"


Attempt = Callable[["Process", Door, int], Coroutine[Any, Any, str]]


def stranger(attempt: Attempt, door: Door, times: int) -> Main:
    """Make so many attempts, each with its number from 0 on."""

    async def main(process: Process) -> None:
        outcomes: list[str] = []
        process.exposed = outcomes
        for number in range(times):
            if process.stopping.is_set():
                return
            outcomes.append(await _tried(attempt, process, door, number))
            await asyncio.sleep(PAUSE_S)

    return main


async def _tried(attempt: Attempt, process: Process, door: Door, number: int) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await attempt(process, door, number)
    except TimeoutError:
        return "not closed"
    except Refused as refusal:
        return f"refused: {refusal.reason}: {refusal}"
    except OSError as error:
        return f"closed: {type(error).__name__}"


async def garbage(process: Process, door: Door, number: int) -> str:
    """Random bytes, from the beginning or in place of a frame."""
    data = process.rng.randbytes(process.rng.randint(8, GARBAGE_BYTES))
    async with Visit.to(door) as visit:
        if number % 2:
            visit.introduce()
            visit.say([data])
        else:
            visit.throw(data)
        return await visit.outcome()


async def truncated_frame(process: Process, door: Door, number: int) -> str:
    """A greeting that ends early: its frame holds half of it, or the stream does."""
    greeting = _hello(process, door).encode()
    kept = process.rng.randrange(1, len(greeting))
    async with Visit.to(door) as visit:
        if number % 2:
            visit.throw(BUS_HEADER + len(greeting).to_bytes(8, "big") + greeting[:kept])
            return "left inside a frame"
        visit.introduce()
        visit.say([greeting[:kept]])
        return await visit.outcome()


async def huge_frame(process: Process, door: Door, number: int) -> str:
    """The length of a frame that exceeds any memory."""
    async with Visit.to(door) as visit:
        visit.throw(BUS_HEADER + HUGE.to_bytes(8, "big") + process.rng.randbytes(100))
        return await visit.outcome()


async def wrong_key(process: Process, door: Door, number: int) -> str:
    """A broker with the key of another mesh."""
    async with Visit.to(door) as visit:
        await _admitted(visit, _admission(process, _hello(process, door), b"the key of another mesh"))
        return await visit.outcome()


async def wrong_version(process: Process, door: Door, number: int) -> str:
    """A broker of a future version, which no longer speaks any present one."""
    async with Visit.to(door) as visit:
        hello = _hello(process, door, Offer.of(LINK.newest + 1, LINK.newest + 1, LINK.capabilities))
        await _admitted(visit, _admission(process, hello, door.mesh_key))
        return await visit.outcome()


async def replayed_admission(process: Process, door: Door, number: int) -> str:
    """Everything that an admitted broker sent, repeated on another connection."""
    async with Visit.to(door) as visit:
        said = await _admitted(visit, _admission(process, _hello(process, door), door.mesh_key))
    async with Visit.to(door) as again:
        again.introduce()
        again.say(said)
        return await again.outcome()


def _hello(process: Process, door: Door, offer: Offer = LINK) -> Hello:
    rng: random.Random = process.rng
    return Hello(
        mesh=door.mesh,
        id=draw_id(rng),
        boot=draw_id(rng),
        incarnation=1,
        name=process.name,
        host=process.host.name,
        peer_url=f"tcp://{process.address}:{door.port}",
        client_url="",
        epoch=0,
        challenge=rng.randbytes(CHALLENGE_SIZE),
        offer=offer,
    )


def _admission(process: Process, hello: Hello, key: bytes | None) -> Admission:
    token = process.rng.randbytes(TOKEN_SIZE)
    return Admission(hello, dialed=True, mesh_key=key, token=token, epoch_after=lambda id: 0)


async def _admitted(visit: Visit, admission: Admission) -> list[bytes]:
    """The dialler's side up to the listener's token; returns what was sent. Raises `Refused`."""
    visit.introduce()
    said = admission.begin()
    visit.say(said)
    while admission.stage is not Stage.READY and (frame := await visit.hear()):
        answers = admission.received(frame)
        visit.say(answers)
        said += answers
    return said
