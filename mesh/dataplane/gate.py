"""What is published while this broker does not know yet who wants it: held, in order, until it does.

A broker that has just started knows nobody's interest. It could accept a message only by guessing that nobody
wants it. So the gate is closed then, and whatever needs a route waits behind it: blocks and questions of
clients, and what stock sockets publish. `mesh.cluster.joining` says when the gate opens; that takes
milliseconds where the other brokers answer, and a few seconds at most.

Bounds: `BYTES_MAX` and `COUNT_MAX`. What does not fit is not taken: its sender is told so (`NotAccepted`),
or, where nobody waits for an answer, it is counted as dropped. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

BYTES_MAX: Final = 32 << 20
"""Bytes held, of all clients together."""
COUNT_MAX: Final = 65_536
"""Frames held."""
REASON: Final = "is joining and holds as much as it can; publish again in a few seconds"

Act = Callable[[float], None]
"""Does with what was held what is done with it when the gate is open; takes the time."""


class Gate:
    """See the module. Open at first."""

    def __init__(self) -> None:
        self.closed = False
        self.held = 0
        """Frames held since the start."""
        self._waiting: deque[Act] = deque()
        self._bytes = 0

    def close(self) -> None:
        self.closed = True

    def hold(self, size: int, act: Act) -> bool:
        """Keep something of ``size`` bytes; False if it does not fit."""
        if self._bytes + size > BYTES_MAX or len(self._waiting) >= COUNT_MAX:
            return False
        self._bytes += size
        self._waiting.append(act)
        self.held += 1
        return True

    def open(self, now: float) -> None:
        """Let everything pass, in the order in which it came."""
        self.closed = False
        self._bytes = 0
        while self._waiting:
            self._waiting.popleft()(now)
