"""The options of a membership machine: times and bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Times are seconds."""

    period_s: float = 1.0
    """From one round to the next."""
    deadline_s: float = 0.5
    """Answers count within this time."""
    misses_max: int = 3
    """Missed rounds in a row after which a member is dead, a link is dropped, and this broker is isolated."""
    members_max: int = 1024
    """Number of records. Beyond them the oldest tombstone is removed; without one an unknown member is not
    added."""
    tombstone_s: float = 86400.0
