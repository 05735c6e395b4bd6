"""Default bounds of times and numbers, where a scenario sets none."""

from __future__ import annotations

from typing import Final

from simulations.evidence import Evidence

DETECTION_PERIODS: Final = 4
"""Three missed rounds in a row make a death: within three periods and a deadline, plus one for delays."""
GRACE_PERIODS: Final = 10
"""Seconds in which a fault's consequences may last: links are dialled again after up to this time."""
ROUND_LATE_MAX: Final = 1.5
"""An answer after so many deadlines counts only in a round that is void."""
QUICK_S: Final = 0.005
"""A delivery is never called slow before this."""
TOMBSTONE_S: Final = 86400.0
STRANGERS_MAX: Final = 128
SEEN_MAX: Final = 1024
WAITING_MAX: Final = 65_536
"""Messages that one link may hold back for a slow receiver (`mesh.dataplane.outlets`)."""


def detection_s(evidence: Evidence) -> float:
    """Seconds within which a lost broker is declared dead."""
    return DETECTION_PERIODS * evidence.period_s + evidence.deadline_s


def detection_at_rest_s(evidence: Evidence) -> float:
    """The same for healthy observers that reach a majority: half a deadline is enough for all delays."""
    return (DETECTION_PERIODS - 1) * evidence.period_s + 1.5 * evidence.deadline_s


def connection_s(evidence: Evidence) -> float:
    """Seconds within which a dial becomes a connection or is given up (`mesh.cluster.link_dialer`)."""
    return max(1.0, evidence.period_s)


def admission_s(evidence: Evidence) -> float:
    """Seconds within which a connection becomes a link or is given up (`mesh.cluster.links`)."""
    return 2 * connection_s(evidence)


def grace_s(evidence: Evidence) -> float:
    return GRACE_PERIODS * evidence.period_s
