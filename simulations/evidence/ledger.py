"""What publishers sent and subscribers got in a run, kept outside of the processes, where no fault reaches
it.

Every body is published once and says by whom, in which life and under which number; so a body seen twice by
one subscriber is a duplicate, and a body nobody published is damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.wire.blocks import HeaderValue


class Outcome(StrEnum):
    """What the publisher was told."""

    PENDING = "pending"
    """Nothing yet, or never: it was killed while it waited."""
    SENT = "sent"
    """It was handed over at level sent, or by a plain socket: nobody says what became of it."""
    ACCEPTED = "accepted"
    STORED = "stored"
    OUTBOX = "outbox"
    """Its publisher's outbox has it."""
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
    """The brokers that its receipt names: what is wanted there may not arrive."""
    may_repeat: bool = False
    """Its publisher sends again what was not answered, without saying that it is the same."""
    stored: bool = False
    """At level stored, if by way of its publisher's outbox."""
    outbox: bool = False
    """By that way, on which it may be for long."""
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
    """By a plain SUB socket, which knows no headers."""


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
    """By a plain SUB socket, to which nobody owes anything."""
    lost: int = 0
    """What the subscription counted as lost."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A worker came to a durable subscription, which stands at that home from then on."""

    worker: str
    life: int
    queue: str
    patterns: tuple[str, ...]
    home: str
    at_s: float
    unreached: tuple[str, ...] = ()


class Said(StrEnum):
    """What a worker said of a message."""

    NOTHING = ""
    """It has it in hand, or was killed with it, or left."""
    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    """It left its loop by an exception."""
    DROP = "drop"


@dataclass(slots=True)
class Job:
    """One message that a worker got."""

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
    """What it said is on its way to the home: the session in which the message came was not over."""
    said_s: float | None = None
    due_s: float = 0.0
    """When it asked to have it again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer that came to a survey: whose, to which question it says it belongs, and when."""

    responder: str
    question: str
    at_s: float


@dataclass(slots=True)
class Question:
    """One survey of a client, named so that its answers can name it; ``ended_s`` is when the caller had its
    result, of whatever kind."""

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
        """By body."""
        self.receipts: list[Receipt] = []
        self.subscriptions: list[Subscribed] = []
        self.questions: list[Question] = []
        self.attached: list[Attached] = []
        self.jobs: list[Job] = []
        self.forgotten: dict[int, float] = {}
        """Homes by id that an operator says will not come back, and when that was said first."""

    def publish(
        self, publisher: str, life: int, number: int, topic: str, filler: str, at_s: float
    ) -> Publication:
        """A new publication with a body of its own, before it is sent."""
        body = f"{publisher}/{life}/{number}/{filler}".encode()
        publication = Publication(publisher, life, number, topic, body, at_s)
        self.publications[body] = publication
        return publication

    def count(self, outcome: Outcome) -> int:
        return sum(publication.outcome is outcome for publication in self.publications.values())
