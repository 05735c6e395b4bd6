"""What publishers sent and subscribers received in a run, kept outside the processes, where no fault reaches
it.

Every body is published once and names its publisher, life and number. So a body that one subscriber saw twice
is a duplicate, and a body that nobody published is damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.wire.blocks import HeaderValue


class Outcome(StrEnum):
    """The answer to the publisher."""

    PENDING = "pending"
    """Nothing yet, or never: it was killed while it waited."""
    SENT = "sent"
    """The message was handed over at level sent, or by a plain socket: nobody reports its fate."""
    ACCEPTED = "accepted"
    STORED = "stored"
    OUTBOX = "outbox"
    """The publisher's outbox has it."""
    REFUSED = "refused"
    """Certainly not taken; at level stored, certainly not kept."""
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Publication:
    """One body, on its way from ``at_s`` on."""

    publisher: str
    life: int
    number: int
    topic: str
    body: bytes
    at_s: float
    outcome: Outcome = Outcome.PENDING
    accepted_s: float | None = None
    """When its publisher was told so."""
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    """The brokers that its receipt names as absent: deliveries there may fail."""
    may_repeat: bool = False
    """True if its publisher repeats unanswered messages without marking them as repetitions."""
    stored: bool = False
    """At level stored: true if it goes through its publisher's outbox."""
    outbox: bool = False
    """True for messages through an outbox, which may stay there for long."""
    homes: tuple[str, ...] = ()
    """The brokers that keep it, as its receipt says."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One body that reached a subscription."""

    subscriber: str
    life: int
    topic: str
    body: bytes
    at_s: float
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    stock: bool = False
    """True if it came by a plain SUB socket, which has no headers."""


@dataclass(slots=True)
class Subscribed:
    """One subscription of one life of a subscriber; ``since_s`` is when it passed the barrier."""

    subscriber: str
    life: int
    patterns: tuple[str, ...]
    since_s: float
    unreached: tuple[str, ...] = ()
    until_s: float = float("inf")
    stock: bool = False
    """True for a plain SUB socket, to which nothing is owed."""
    lost: int = 0
    """The number of messages that the subscription counted as lost."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A worker attached to a durable subscription, which exists at that home from then on."""

    worker: str
    life: int
    queue: str
    patterns: tuple[str, ...]
    home: str
    at_s: float
    unreached: tuple[str, ...] = ()


class Said(StrEnum):
    """A worker's answer to a message."""

    NOTHING = ""
    """No answer: it still has the message, was killed with it, or left."""
    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    """It left its loop by an exception."""
    DROP = "drop"


@dataclass(slots=True)
class Job:
    """One message that a worker received."""

    worker: str
    life: int
    queue: str
    home: str
    id: str
    topic: str
    body: bytes
    headers: Mapping[str, HeaderValue]
    attempt: int
    redelivered: bool
    at_s: float
    said: Said = Said.NOTHING
    told: bool = False
    """True if its answer is on its way to the home: the session of the message was still open."""
    said_s: float | None = None
    due_s: float = 0.0
    """When it asked to get the message again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer to a survey: its sender, the question that it names, and its time."""

    responder: str
    question: str
    at_s: float


@dataclass(slots=True)
class Question:
    """One survey of a client, with a name that its answers repeat.

    ``ended_s`` is when the caller had its result, of whatever kind.
    """

    asker: str
    life: int
    name: str
    asked_s: float
    timeout_s: float
    answers: list[Answered] = field(default_factory=list)
    ended_s: float | None = None


class Ledger:
    """All of it, in the order in which it happened."""

    def __init__(self) -> None:
        self.publications: dict[bytes, Publication] = {}
        """Publications by body."""
        self.receipts: list[Receipt] = []
        self.subscriptions: list[Subscribed] = []
        self.questions: list[Question] = []
        self.attached: list[Attached] = []
        self.jobs: list[Job] = []
        self.forgotten: dict[int, float] = {}
        """Ids of homes that an operator declared lost for good, and when that was declared first."""

    def publish(
        self, publisher: str, life: int, number: int, topic: str, filler: str, at_s: float
    ) -> Publication:
        """Record a new publication with a unique body, before it is sent."""
        body = f"{publisher}/{life}/{number}/{filler}".encode()
        publication = Publication(publisher, life, number, topic, body, at_s)
        self.publications[body] = publication
        return publication

    def count(self, outcome: Outcome) -> int:
        return sum(publication.outcome is outcome for publication in self.publications.values())
