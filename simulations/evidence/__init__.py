"""The evidence that a run leaves for its checks: the brokers' logs, the real events, and the brokers'
state.
"""

from simulations.evidence.evidence import (
    FLUSH_S,
    PHASES,
    VIEW_STATES,
    Dialled,
    Evidence,
    Life,
    Stream,
)
from simulations.evidence.logs import Row
from simulations.evidence.reading import EVERY, Reader, read
from simulations.evidence.recorder import Recorder
from simulations.evidence.view import Change, Sample, View

__all__ = [
    "EVERY",
    "FLUSH_S",
    "PHASES",
    "VIEW_STATES",
    "Change",
    "Dialled",
    "Evidence",
    "Life",
    "Reader",
    "Recorder",
    "Row",
    "Sample",
    "Stream",
    "View",
    "read",
]
