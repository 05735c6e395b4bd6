"""Clients of this broker as records: sessions, their subscriptions, and what answers inside the broker.

A route's takers are subscriptions, stock subscribers and responders. Each has its own way of taking a block
(`offer`), so that the exchange hands it a block without asking what it is.

Pure. What a client may do is decided in `mesh.dataplane.session_control`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mesh.access.door import Guest
from mesh.dataplane.backlogs import Budget, Buffer, LiveQueue, NoQueue
from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.deduplication import Publisher
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.outlets import Encoder, Outlet, block_encoder, unlimited
from mesh.dataplane.ports import Pipe, Port
from mesh.wire.capabilities import Agreed
from mesh.wire.session_frames import Keepalive, ReceiveWindow, SendCredit

if TYPE_CHECKING:
    from mesh.dataplane.workers import Attachment

Handler = Callable[[str, bytes, Callable[[bytes], None]], None]
"""Takes a question's topic and body, and what is to be called with the answer."""


class Parts:
    """Patterns of a subscription whose SUBSCRIBE is still to come. ``count`` is of all that came, the first
    at ``began_at``, the last at ``heard_at``; none are ``kept`` once there is a ``refusal``: why SUBSCRIBE
    will be refused."""

    __slots__ = ("began_at", "count", "heard_at", "kept", "number", "refusal")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.count = 0
        self.kept: list[str] = []
        self.began_at = self.heard_at = now
        self.refusal = ""


class Session:
    """One client, from its HELLO on."""

    __slots__ = (
        "_answer_bytes_max",
        "_unread",
        "_unread_since",
        "acks",
        "agreed",
        "boot",
        "budget",
        "bytes_in",
        "client",
        "closed",
        "cut_bodies",
        "guest",
        "id",
        "ingress",
        "keepalive",
        "late_questions",
        "messages_in",
        "missed_by",
        "name",
        "parts",
        "patterns",
        "port",
        "prefix",
        "publisher",
        "question_bytes",
        "questions",
        "refused",
        "standing",
        "starred",
        "subscriptions",
        "work",
    )

    def __init__(
        self,
        id: int,
        port: Port,
        prefix: bytes,
        *,
        name: str,
        agreed: Agreed,
        publisher: Publisher,
        keepalive: Keepalive,
        options: ExchangeOptions,
        guest: Guest,
    ) -> None:
        self.id = id
        self.guest = guest
        self.standing = standing = guest.standing
        """What it may do, with all others of its principal."""
        self.port = port
        self.prefix = prefix
        """The SP backtrace, which goes before every frame."""
        self.name = name
        self.publisher = publisher
        self.client, self.boot = publisher.key
        """Whom its blocks name as their publisher."""
        self.agreed = agreed
        self.keepalive = keepalive
        window = ReceiveWindow(standing.window(options.session_messages), options.session_bytes)
        self.ingress = Ingress(self, window, port.turn.due, is_link=False, pace=standing)
        self.closed = False
        self.subscriptions: dict[int, ClientSubscription] = {}
        self.work: dict[int, Attachment] = {}
        """Its places at durable subscriptions, by its numbers."""
        self.patterns = 0
        """Patterns of all subscriptions, including those that are still to be added."""
        self.starred = 0
        """How many of these have many stars."""
        self.parts: Parts | None = None
        """The subscription whose SUBSCRIBE is still to come."""
        self.budget = Budget(options.waiting_bytes_max)
        self.acks: list[list[int]] = []
        """Ranges of sequence numbers that are committed and not acknowledged yet."""
        self.missed_by: dict[str, None] = {}
        """Names of brokers that were absent when duplicates among these were accepted."""
        self.refused: dict[str, list[list[int]]] = {}
        """Ranges that are refused and whose publisher is not told yet, by the reason."""
        self.cut_bodies: dict[int, None] = {}
        """Numbers of large bodies of which a piece was refused; the others are refused, too."""
        self.questions: dict[int, int] = {}
        """Tokens of requests and surveys without a result, each with the bytes of its body."""
        self.question_bytes = 0
        self.late_questions: dict[int, None] = {}
        """Tokens of surveys that are over and may still get late answers."""
        self.messages_in = 0
        self.bytes_in = 0
        self._answer_bytes_max = options.answer_bytes_max
        self._unread = 0
        self._unread_since = 0

    def send(self, frame: bytes) -> None:
        """In order with the data, and not under credit."""
        port = self.port
        if self._unread_since != port.writes:
            self._unread_since = port.writes
            self._unread = 0
        self._unread += len(frame)
        if self._unread > self._answer_bytes_max:
            port.turn.unread[self] = None
        port.send(self.prefix + frame)

    @property
    def unread(self) -> int:
        """Bytes of answers that were sent since the connection was last seen to have taken all."""
        return self._unread if self._unread_since == self.port.writes else 0

    def send_control(self, frame: bytes) -> None:
        """Ahead of the data."""
        if not self.closed:
            self.port.pipe.send_control(self.prefix + frame)


class ClientSubscription(Outlet):
    """One client's subscription: an outlet with patterns, a role and its session."""

    __slots__ = ("added", "number", "owes", "patterns", "role", "session", "starred")

    def __init__(
        self,
        session: Session,
        number: int,
        patterns: list[str],
        role: int,
        options: ExchangeOptions,
        now: float,
    ) -> None:
        backlog = LiveQueue(options.delivery, session.budget, now)
        encode = block_encoder(session.prefix, number)
        super().__init__(session.port, SendCredit(), backlog, encode, session.prefix)
        self.session = session
        self.number = number
        self.patterns = patterns
        self.added = 0
        """How many of the patterns have been added; a large subscription is added in parts."""
        self.starred: list[str] = []
        """Those of the patterns that have many stars."""
        self.role = role
        self.owes: dict[int, None] = {}
        """Tokens of the questions it was asked and has not answered."""


class Subscriber(Outlet):
    """A consumer of another protocol: patterns, and an encoder for what it reads. It has no credit; what its
    connection does not take is dropped."""

    __slots__ = ("patterns",)

    def __init__(self, port: Port, patterns: list[str], encode: Encoder) -> None:
        super().__init__(port, unlimited(), NoQueue(), encode)
        self.patterns = patterns


class Responder:
    """Answers requests and surveys inside the broker itself: ``handler(topic, body, answer)`` calls
    ``answer`` once, perhaps before it returns."""

    __slots__ = ("handler", "patterns")

    def __init__(self, patterns: list[str], handler: Handler) -> None:
        self.patterns = patterns
        self.handler = handler

    def ask(self, topic: str, body: bytes, answer: Callable[[bytes], None], asker: object) -> None:
        """``asker``: as of `mesh.dataplane.requests`."""
        self.handler(topic, body, answer)

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """Published messages are not for it."""
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: HeldCredit | None, now: float
    ) -> None:
        """Never called."""


class Guarded(Responder):
    """Answers the sessions of clients that it ``admits``, by their pipe, and refuses all others."""

    __slots__ = ("admits",)

    def __init__(self, patterns: list[str], handler: Handler, admits: Callable[[Pipe], bool]) -> None:
        super().__init__(patterns, handler)
        self.admits = admits

    def ask(self, topic: str, body: bytes, answer: Callable[[bytes], None], asker: object) -> None:
        if isinstance(asker, Session) and self.admits(asker.port.pipe):
            self.handler(topic, body, answer)
        else:
            answer(REFUSED_HERE)


REFUSED_HERE: Final = b'{"error": "only clients of the same host may ask this, at this broker itself"}'
LocalTaker = ClientSubscription | Subscriber | Responder
