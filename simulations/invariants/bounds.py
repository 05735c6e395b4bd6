"""How long things may take, and how many there may be, where a scenario says nothing else."""

from __future__ import annotations

from typing import Final

from simulations.evidence import Evidence

DETECTION_PERIODS: Final = 4
"""Three rounds missed in a row make a death: within three periods and a deadline, and one for delays."""
GRACE_PERIODS: Final = 10
"""So long after a fault its consequences may be felt: links are dialled again after up to so many."""
ROUND_LATE_MAX: Final = 1.5
"""An answer after so many deadlines counts only in a round that is void."""
QUICK_S: Final = 0.005
"""A delivery is never called slow before."""
TOMBSTONE_S: Final = 86400.0
STRANGERS_MAX: Final = 128
SEEN_MAX: Final = 1024
WAITING_MAX: Final = 65_536
"""Messages that one link may hold back for a slow receiver (`mesh.dataplane.outlets`)."""


def detection_s(evidence: Evidence) -> float:
    """Within this whoever is gone is called dead."""
    return DETECTION_PERIODS * evidence.period_s + evidence.deadline_s


def detection_at_rest_s(evidence: Evidence) -> float:
    """The same by those who are well and reach a majority: half a deadline is enough for all delays."""
    return (DETECTION_PERIODS - 1) * evidence.period_s + 1.5 * evidence.deadline_s


def connection_s(evidence: Evidence) -> float:
    """Within this a dial becomes a connection or is given up (`mesh.cluster.link_dialer`)."""
    return max(1.0, evidence.period_s)


def admission_s(evidence: Evidence) -> float:
    """Within this a connection becomes a link or is given up (`mesh.cluster.links`)."""
    return 2 * connection_s(evidence)


def grace_s(evidence: Evidence) -> float:
    return GRACE_PERIODS * evidence.period_s
