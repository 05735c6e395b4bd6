"""Records of this broker's clients: sessions, their subscriptions, and responders inside the broker.

A route's takers are subscriptions, stock subscribers and responders. Each has its own `offer` for blocks, so
the exchange need not know what it is.

Pure. `mesh.dataplane.session_control` decides what a client may do.
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
"""Takes a question's topic and body, and a function to call with the answer."""


class Parts:
    """Patterns of a subscription that waits for its SUBSCRIBE. ``count`` includes all that came, the first at
    ``began_at``, the last at ``heard_at``. None are ``kept`` once there is a ``refusal``, the reason for
    which SUBSCRIBE will be refused."""

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
        """The rights and limits that it shares with all other sessions of its principal."""
        self.port = port
        self.prefix = prefix
        """The SP backtrace before every frame."""
        self.name = name
        self.publisher = publisher
        self.client, self.boot = publisher.key
        """The publisher that its blocks name."""
        self.agreed = agreed
        self.keepalive = keepalive
        window = ReceiveWindow(standing.window(options.session_messages), options.session_bytes)
        self.ingress = Ingress(self, window, port.turn.due, is_link=False, pace=standing)
        self.closed = False
        self.subscriptions: dict[int, ClientSubscription] = {}
        self.work: dict[int, Attachment] = {}
        """Its attachments to durable subscriptions, by its own numbers."""
        self.patterns = 0
        """Patterns of all subscriptions, including those not yet added."""
        self.starred = 0
        """How many of these have many stars."""
        self.parts: Parts | None = None
        """The subscription that waits for its SUBSCRIBE."""
        self.budget = Budget(options.waiting_bytes_max)
        self.acks: list[list[int]] = []
        """Ranges of sequence numbers that are committed but not acknowledged."""
        self.missed_by: dict[str, None] = {}
        """Names of brokers that were absent when duplicates among these were accepted."""
        self.refused: dict[str, list[list[int]]] = {}
        """Refused ranges that the publisher has not been told about, by reason."""
        self.cut_bodies: dict[int, None] = {}
        """Numbers of large bodies with a refused piece; their other pieces are refused too."""
        self.questions: dict[int, int] = {}
        """Tokens of requests and surveys without a result, with the bytes of their bodies."""
        self.question_bytes = 0
        self.late_questions: dict[int, None] = {}
        """Tokens of ended surveys that may still get late answers."""
        self.messages_in = 0
        self.bytes_in = 0
        self._answer_bytes_max = options.answer_bytes_max
        self._unread = 0
        self._unread_since = 0

    def send(self, frame: bytes) -> None:
        """Send a frame in order with the data, without credit."""
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
        """Bytes of answers sent since the connection was last seen empty."""
        return self._unread if self._unread_since == self.port.writes else 0

    def send_control(self, frame: bytes) -> None:
        """Send a frame ahead of the data."""
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
        """How many of the patterns have been added. A large subscription is added in parts."""
        self.starred: list[str] = []
        """The patterns that have many stars."""
        self.role = role
        self.owes: dict[int, None] = {}
        """Tokens of the questions that it has not answered."""


class Subscriber(Outlet):
    """A consumer of another protocol: patterns, and an encoder for its frames. It has no credit. Messages
    that its connection cannot take are dropped."""

    __slots__ = ("patterns",)

    def __init__(self, port: Port, patterns: list[str], encode: Encoder) -> None:
        super().__init__(port, unlimited(), NoQueue(), encode)
        self.patterns = patterns


class Responder:
    """Answers requests and surveys inside the broker. ``handler(topic, body, answer)`` calls ``answer`` once,
    perhaps before it returns."""

    __slots__ = ("handler", "patterns")

    def __init__(self, patterns: list[str], handler: Handler) -> None:
        self.patterns = patterns
        self.handler = handler

    def ask(self, topic: str, body: bytes, answer: Callable[[bytes], None], asker: object) -> None:
        """Ask the handler. ``asker`` is as in `mesh.dataplane.requests`."""
        self.handler(topic, body, answer)

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """Takes no published messages."""
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: HeldCredit | None, now: float
    ) -> None:
        """Never called."""


class Guarded(Responder):
    """Answers only clients whose pipe it ``admits``, and refuses all others."""

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
