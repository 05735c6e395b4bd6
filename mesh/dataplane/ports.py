"""Everybody the exchange talks to: clients' sessions and subscriptions, other brokers, taps and responders.

Each is a record with its own way of taking a block (`offer`), so that the exchange hands a block to a
route's takers without asking what they are. What they share with the exchange is three lists of its turn
(`Turn`): ports with frames to send, outlets in which blocks wait, sources to which credit is owed.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from mesh.dataplane.outlets import Buffer, DeliveryOptions, Held, Outlet, Source
from mesh.errors import BlockError, SessionError
from mesh.wire import blocks
from mesh.wire.capabilities import FIRST, Agreed
from mesh.wire.session_frames import Keepalive, ReceiveWindow

PARTS_MAX: Final = 1 << 17
"""Patterns of one session that wait for their SUBSCRIBE."""


class Pipe(Protocol):
    """What the exchange needs of a pipe (`protocols.pipe.Pipe` has it)."""

    @property
    def queued(self) -> int:
        """Frames that wait for the connection."""

    def send_many(self, frames: Sequence[bytes], /) -> int:
        """Queue as many leading frames as fit; returns how many."""

    def send_control(self, frame: bytes, /) -> None:
        """Queue one frame ahead of data."""

    def flush(self) -> None:
        """Write what is queued now instead of at the end of the loop turn."""

    def close(self, reason: str, *, flush: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class ExchangeOptions:
    """Windows and bounds. Windows are (messages, bytes)."""

    session_messages: int = 65536
    session_bytes: int = 12 << 20
    link_messages: int = 131072
    link_bytes: int = 16 << 20
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    link_delivery: DeliveryOptions = field(default_factory=lambda: DeliveryOptions(bytes_max=64 << 20))
    sessions_per_pipe_max: int = 1024


class Tally:
    """Counters of an exchange that outlive whom they counted."""

    __slots__ = ("bytes_in", "bytes_out", "delivered", "drops", "messages_in", "messages_out", "refused")

    def __init__(self) -> None:
        self.delivered = 0
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.drops: dict[str, int] = {}
        self.refused: dict[str, int] = {}

    def drop(self, reason: str, count: int) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + count


class Turn:
    """What one input of the exchange leaves to be done at its end."""

    __slots__ = ("dirty", "due", "waiting")

    def __init__(self) -> None:
        self.dirty: list[Session | Peer] = []
        """Ports with frames for their pipes."""
        self.due: list[Source] = []
        """Sources to which a grant of credit is owed."""
        self.waiting: dict[Outlet, None] = {}
        """Outlets in which blocks wait; kept from turn to turn."""


class LinkStatistics(NamedTuple):
    """Counters of the link to one broker, cumulative over its connections. A tuple, as there are many."""

    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    lost: int
    """Blocks missing in the link's sequence: dropped by the other side."""
    queued: int


class Session:
    """One client, from its HELLO on."""

    __slots__ = (
        "acks",
        "agreed",
        "boot",
        "bytes_in",
        "client",
        "closed",
        "handed_over_at",
        "id",
        "keepalive",
        "messages_in",
        "name",
        "partial",
        "pipe",
        "prefix",
        "questions",
        "ready",
        "source",
        "subscriptions",
        "turn",
        "unread",
    )

    def __init__(self, turn: Turn, pipe: Pipe, prefix: bytes, id: int) -> None:
        self.turn = turn
        self.pipe = pipe
        self.prefix = prefix
        self.id = id
        self.ready: list[bytes] = []
        self.handed_over_at = 0.0
        self.name = ""
        self.client = 0
        """Whom its blocks name as their publisher."""
        self.boot = 0
        self.agreed = Agreed(FIRST.newest, FIRST.capabilities)
        self.keepalive = Keepalive(0.0, 0.0)
        self.source = Source(self, ReceiveWindow(0, 0), turn.due, is_link=False)
        self.closed = False
        self.subscriptions: dict[int, Subscription] = {}
        self.partial: tuple[int, list[str]] = (0, [])
        """The subscription whose SUBSCRIBE is still to come, and its patterns so far."""
        self.acks: list[list[int]] = []
        self.questions = 0
        self.unread = 0
        self.messages_in = 0
        self.bytes_in = 0

    def add_part(self, number: int, patterns: list[str]) -> None:
        """Patterns of a SUBSCRIBE to come. Raises `SessionError` when there are too many of them."""
        parts = self.take_parts(number)
        if len(parts) + len(patterns) > PARTS_MAX:
            raise SessionError(f"more than {PARTS_MAX} patterns came before the SUBSCRIBE they belong to")
        parts += patterns
        self.partial = (number, parts)

    def take_parts(self, number: int) -> list[str]:
        """The patterns of a subscription that came in parts, none if it has no parts. Raises `SessionError`
        when the parts are another's."""
        begun, parts = self.partial
        if parts and begun != number:
            raise SessionError(f"frames of subscription {number} came amid the parts of subscription {begun}")
        self.partial = (0, [])
        return parts

    def wake(self) -> None:
        self.turn.dirty.append(self)

    def waits(self, outlet: Outlet) -> None:
        self.turn.waiting[outlet] = None

    def send(self, frame: bytes) -> None:
        """In order with the data. Not under credit: ``unread`` is what has piled up since the pipe was
        empty."""
        if not self.ready:
            self.wake()
            if not self.pipe.queued:
                self.unread = 0
        self.unread += len(frame)
        self.ready.append(self.prefix + frame)

    def send_control(self, frame: bytes) -> None:
        """Ahead of the data."""
        self.pipe.send_control(self.prefix + frame)


class Subscription(Outlet):
    """One client's subscription: an outlet with patterns, a role and its session."""

    __slots__ = ("patterns", "role", "session")

    def __init__(
        self,
        session: Session,
        number: int,
        patterns: list[str],
        role: int,
        options: DeliveryOptions,
        now: float,
    ) -> None:
        super().__init__(session, number, options, now)
        self.session = session
        self.patterns = patterns
        self.role = role


class LinkOutlet(Outlet):
    """The outlet of a link."""

    __slots__ = ("peer",)

    def __init__(self, peer: Peer, options: DeliveryOptions, now: float) -> None:
        super().__init__(peer, 0, options, now)
        self.peer = peer


class Tap:
    """A stock subscriber's view: whole messages, each block opened and handed to a callback."""

    __slots__ = ("_assembler", "callback", "delivered", "id", "patterns")

    def __init__(self, id: int, patterns: list[str], callback: Callable[[str, list[bytes]], None]) -> None:
        self.id = id
        self.patterns = patterns
        self.callback = callback
        self.delivered = 0
        self._assembler = blocks.Assembler()

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        try:
            opened = blocks.open_block(bytes(block))
        except BlockError:
            return True  # a peer's; blocks of clients were checked when they came in
        bodies = list(opened.bodies)
        if opened.whole_size:
            whole = self._assembler.add(opened)
            if whole is None:
                return True
            bodies = [whole[0]]
        self.delivered += len(bodies)
        self.callback(opened.topic.decode("ascii"), bodies)
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: Held | None, now: float
    ) -> None:
        """Never called: a tap takes all it is offered."""


class Responder:
    """Answers requests and surveys inside the broker itself."""

    __slots__ = ("handler", "patterns")

    def __init__(self, patterns: list[str], handler: Callable[[str, bytes], bytes]) -> None:
        self.patterns = patterns
        self.handler = handler

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """Published messages are not for it."""
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: Held | None, now: float
    ) -> None:
        """Never called."""


class Peer:
    """Another broker. Its interest and counters outlive its link; ``outlet`` is None while there is no
    link."""

    __slots__ = (
        "bytes_in",
        "drops",
        "expected",
        "handed_over_at",
        "id",
        "interest_known",
        "lost",
        "messages_in",
        "name",
        "outlet",
        "pipe",
        "prefix",
        "ready",
        "retired",
        "rtt_s",
        "source",
        "turn",
    )

    def __init__(self, turn: Turn, id: int, name: str) -> None:
        self.turn = turn
        self.id = id
        self.name = name
        self.prefix = b""
        self.ready: list[bytes] = []
        self.handed_over_at = 0.0
        self.pipe: Pipe | None = None
        self.outlet: LinkOutlet | None = None
        self.source = Source(self, ReceiveWindow(0, 0), turn.due, is_link=True)
        self.rtt_s = 0.0
        self.interest_known = False
        self.expected = 1
        self.lost = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.retired = [0, 0]  # messages and bytes out of earlier links
        self.drops: dict[str, int] = {}

    def wake(self) -> None:
        self.turn.dirty.append(self)

    def waits(self, outlet: Outlet) -> None:
        self.turn.waiting[outlet] = None

    def send(self, frame: bytes) -> None:
        if self.pipe is None:
            return
        if not self.ready:
            self.wake()
        self.ready.append(frame)

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        if self.outlet is None:
            self.drop("no_link", messages)
            return True
        return self.outlet.offer(block, messages, hops, flags)

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: Held | None, now: float
    ) -> None:
        if self.outlet is not None:
            self.outlet.wait(block, messages, hops, flags, held, now)

    def drop(self, reason: str, messages: int) -> None:
        if messages:
            self.drops[reason] = self.drops.get(reason, 0) + messages

    def statistics(self) -> LinkStatistics:
        outlet = self.outlet
        out, size = self.retired
        dropped = sum(self.drops.values())
        queued = 0
        if outlet is not None:
            out += outlet.messages_out
            size += outlet.bytes_out
            dropped += outlet.dropped
            queued = outlet.queued_messages
        return LinkStatistics(
            self.messages_in,
            out,
            self.bytes_in,
            size,
            dropped,
            self.lost,
            queued,
        )


class LocalAsker:
    """A question asked by the program around the broker: ``callback(status, body)`` is called once."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[int, bytes], None]) -> None:
        self.callback = callback
