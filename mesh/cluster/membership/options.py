"""What a membership machine can be told: its rhythm and its bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Times are seconds."""

    period_s: float = 1.0
    """From one round to the next."""
    deadline_s: float = 0.5
    """Within which an answer counts."""
    misses_max: int = 3
    """Rounds missed in a row that make a member dead, a link worthless and this broker isolated."""
    members_max: int = 1024
    """Records held; beyond them the oldest tombstone goes, and without one a stranger is not taken in."""
    tombstone_s: float = 86400.0
