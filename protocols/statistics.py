"""A socket's counters: its present peers, and what it remembers of those that left."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from protocols.pipe import Pipe, PipeStatistics

REMEMBERED: Final = 16
"""The number of closed pipes that a socket's statistics list one by one; all of them are counted."""


@dataclass(frozen=True, slots=True)
class ClosedPipe:
    """The record of a peer that is gone."""

    id: int
    url: str
    remote_address: str
    cause: str
    """A word for counters; see `Pipe.close_cause`."""
    reason: str
    """The same as a sentence."""


@dataclass(frozen=True, slots=True)
class SocketStatistics:
    """A snapshot. Frames and bytes are cumulative over all peers, including those that left.

    ``refused`` counts frames that found a pipe full, even if their ``send`` then waited. ``drops`` counts
    messages given up, by reason (see ``docs/reference/patterns``). ``closed`` counts peers that are gone, by
    cause, and ``recently_closed`` has the last `REMEMBERED` of them, oldest first.
    """

    protocol: str
    peers: int
    attached: int
    detached: int
    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    refused: int
    queued: int
    drops: dict[str, int]
    closed: dict[str, int]
    recently_closed: tuple[ClosedPipe, ...]


class Departures:
    """The peers that left: the sum of their counters, the causes, and the last ones by name."""

    def __init__(self) -> None:
        self.counters = PipeStatistics(0, 0, 0, 0, 0, 0)
        self.by_cause: dict[str, int] = {}
        self.recent: deque[ClosedPipe] = deque(maxlen=REMEMBERED)

    def add(self, pipe: Pipe) -> None:
        self.counters = sum_of(self.counters, pipe.statistics())
        cause = pipe.close_cause
        self.by_cause[cause] = self.by_cause.get(cause, 0) + 1
        self.recent.append(ClosedPipe(pipe.id, pipe.url, pipe.remote_address, cause, pipe.close_reason))


_counts: Final = attrgetter(*(field.name for field in fields(PipeStatistics)))


def sum_of(*counters: PipeStatistics) -> PipeStatistics:
    return PipeStatistics(*map(sum, zip(*map(_counts, counters), strict=True)))
