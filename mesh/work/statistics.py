"""Counters of a durable subscription's work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class WorkCounters:
    """Messages, since this broker started. The last three were settled by somebody who could not settle them.

    ``late``: settled by a session that held them once, and held them no more.
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


@dataclass(frozen=True, slots=True)
class WorkSnapshot:
    """Messages in memory by where they are. What waits in the journal alone is in none of these."""

    consumers: int
    fresh: int
    in_flight: int
    returned: int
    suspects: int
    delayed: int
