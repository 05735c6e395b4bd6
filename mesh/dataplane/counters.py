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
"""Reasons to drop that lose nobody a message."""


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
        """Messages that were dropped."""
        if count:
            self.drops[reason] = self.drops.get(reason, 0) + count

    def refuse(self, reason: str) -> None:
        """A session that was refused or ended for a broken rule."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


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


class LinkLoss(NamedTuple):
    """Messages for one broker that did not arrive there and that no receipt names, since boot."""

    dropped: int
    unresolved: int
    """Under way when a link ended, at most: the other side has not said yet what it has received."""


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Counters of the data plane, cumulative where the line does not say "now"."""

    published: int
    """Messages that entered the mesh here."""
    delivered: int
    """Messages handed to the connections of this broker's own subscribers, without those ``unresolved``."""
    dropped: int
    unwanted: int
    """Messages that nobody wanted when they came."""
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
    """What stock subscribers want, now."""
    questions: int
    """Requests and surveys without a result yet, now."""
    publishers: int
    """Publishers whose messages are checked for repetition, now."""
    storing: int
    """Blocks and large bodies of level stored that are not kept by all of their homes, now."""
    queued: int
    """Messages that wait for links, now."""
    unresolved: int
    """Messages under way when links ended, at most: the other brokers have not said yet what arrived, now.
    And when sessions ended without BYE, of which nobody will say."""
