"""What all connections of one event loop share: a receive buffer with a budget, and the names of inproc.

This is the one module with state, keyed by loop and gone with it: several brokers in one process, each on a
loop of its own, must not meet here, and nothing outlives ``asyncio.run``.

The budget (design decision 12). A loop turn reads each ready connection once, so timers are late by the
time it takes to handle *all* of them: with asyncio's 256 KiB a read, 200 flooding connections made timers
476 ms late. The sum is what must be bounded, so the size of one read shrinks as more connections are
active:

* a *turn* is told without a clock and without a callback: within one no connection reads twice, so the first
  that does begins the next, and the number that read in the former is how many are active;
* each then gets ``TURN_BUDGET / active`` bytes, at most its own ``read_budget``, at least `READ_MIN`.

The buffer is shared because a stream hands on what it read before the loop continues; 1 000 idle connections
would otherwise hold 64 MiB.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from protocols.transports.inproc import InprocBinding

TURN_BUDGET: Final = 2 << 20
"""Bytes read in one turn by all connections together, as far as `READ_MIN` allows."""
READ_MIN: Final = 4096


class ReadBudget:
    """Hands out the shared receive buffer, cut to this turn's share."""

    __slots__ = ("_active", "_buffer", "_seen", "turn")

    def __init__(self) -> None:
        self.turn = 1
        self._active = 1
        self._seen = 0
        self._buffer = memoryview(bytearray(65536))

    def take(self, last_turn: int, read_budget: int) -> memoryview:
        """The buffer for a connection that last read in ``last_turn``; it now read in ``self.turn``."""
        if last_turn == self.turn:
            self.turn += 1
            self._active = self._seen
            self._seen = 0
        self._seen += 1
        share = TURN_BUDGET // max(self._active, self._seen)
        size = min(max(share, READ_MIN), max(read_budget, 1))
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        return self._buffer[:size]


class LoopState:
    """One per event loop."""

    __slots__ = ("inproc", "reads")

    def __init__(self) -> None:
        self.reads = ReadBudget()
        self.inproc: dict[str, InprocBinding] = {}


_STATES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState]] = WeakKeyDictionary()


def loop_state() -> LoopState:
    """The state of the running loop, made at the first call."""
    loop = asyncio.get_running_loop()
    state = _STATES.get(loop)
    if state is None:
        state = _STATES[loop] = LoopState()
    return state
