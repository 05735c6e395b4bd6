"""What a run leaves for judging: the brokers' own words, what really happened, and what they looked like."""

from simulations.evidence.evidence import (
    FLUSH_S,
    PHASES,
    VIEW_STATES,
    Dialled,
    Evidence,
    Life,
    Row,
    Sample,
    Stream,
    View,
)
from simulations.evidence.recorder import Recorder

__all__ = [
    "FLUSH_S",
    "PHASES",
    "VIEW_STATES",
    "Dialled",
    "Evidence",
    "Life",
    "Recorder",
    "Row",
    "Sample",
    "Stream",
    "View",
]
