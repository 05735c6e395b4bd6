"""Counters of the data plane, and the snapshots made of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

NO_LOSS: Final = (
    "duplicate",
    "answer_unknown",
    "not_asked",
    "not_returned",
    "link_down_in",
    "publisher_forgotten",
    "stored_given_up",
    "not_told",
)
"""Reasons to drop that do not cost anybody a message."""


class Tally:
    """Counters of an exchange that outlive the sessions and links that they counted."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "delivered",
        "drops",
        "messages_in",
        "messages_out",
        "published",
        "refused",
        "unresolved",
        "unwanted",
    )

    def __init__(self) -> None:
        self.published = 0
        self.unwanted = 0
        self.delivered = 0
        self.unresolved = 0
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.drops: dict[str, int] = {}
        self.refused: dict[str, int] = {}

    def drop(self, reason: str, count: int) -> None:
        """Count dropped messages."""
        if count:
            self.drops[reason] = self.drops.get(reason, 0) + count

    def refuse(self, reason: str) -> None:
        """Count a session that was refused or ended for a broken rule."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class LinkStatistics(NamedTuple):
    """Counters of the link to one broker, cumulative over its connections. A tuple, since there are many."""

    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    lost: int
    """Blocks missing in the link's sequence because the other side dropped them."""
    queued: int


class LinkLoss(NamedTuple):
    """Messages for one broker, since boot, that did not arrive there and that no receipt names."""

    dropped: int
    unresolved: int
    """At most so many were in flight when a link ended. The other side has not yet reported what it
    received."""


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Counters of the data plane. They are cumulative unless the line says "now"."""

    published: int
    """Messages that entered the mesh here."""
    delivered: int
    """Messages handed to the connections of this broker's own subscribers, without the ``unresolved``."""
    dropped: int
    unwanted: int
    """Messages that nobody wanted when they arrived."""
    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    sessions: int
    """Now."""
    subscriptions: int
    """Now."""
    drops: dict[str, int]
    refused: dict[str, int]
    taps: list[str]
    """Patterns of stock subscribers, now."""
    questions: int
    """Requests and surveys that have no result yet, now."""
    publishers: int
    """Publishers checked for repeated messages, now."""
    storing: int
    """Blocks and large bodies of level stored that some of their homes have not kept yet, now."""
    queued: int
    """Messages that wait for links, now."""
    unresolved: int
    """Messages that may be lost, at most, now. Some were in flight when links ended, and the other brokers
    have not yet reported what arrived. The rest belonged to sessions that ended without BYE, which nobody
    will report."""
