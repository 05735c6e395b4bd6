"""Counters of a durable subscription's work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class WorkCounters:
    """Messages, since this broker started. The last three count settlements by consumers that could not
    settle them.

    ``late``: settled by a session that had held them before, and no longer did.
    """

    delivered: int = 0
    redelivered: int = 0
    settled: int = 0
    late: int = 0
    retried: int = 0
    buried: int = 0
    unreadable: int = 0
    unknown: int = 0
    settled_before: int = 0
    not_held: int = 0

    @property
    def in_vain(self) -> int:
        """Messages settled by consumers that could not settle them."""
        return self.unknown + self.settled_before + self.not_held


@dataclass(frozen=True, slots=True)
class WorkSnapshot:
    """Messages in memory by place. Those that wait in the journal alone are in none of these."""

    consumers: int
    fresh: int
    in_flight: int
    returned: int
    suspects: int
    delayed: int
