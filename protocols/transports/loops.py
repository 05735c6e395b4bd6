"""The state that all connections of one event loop share.

It has a receive buffer with a budget, the names of inproc, the loaded certificates of TLS dialers, the shared
ports of WebSocket listeners, and warnings about peers that were dialled once.

This is the one module with state. The state is keyed by loop and disappears with it: several brokers in one
process, each on its own loop, must not share it, and nothing outlives ``asyncio.run``.

The budget (design decision 12). A loop turn reads each ready connection once, so timers are late by the time
it takes to handle *all* of them. With asyncio's 256 KiB a read, 200 flooding connections made timers 476 ms
late. The sum must be bounded, so the size of one read shrinks as more connections are active:

* A *turn* is detected without a clock and without a callback. No connection reads twice within one turn, so
  the first that does so begins the next. The number that read in the former turn is the number of active
  ones.
* Each may then read ``TURN_BUDGET / active`` bytes, at least `READ_MIN`, at most its own ``read_budget``.

The buffer is shared because a stream hands on what it read before the loop continues; 1 000 idle connections
would otherwise hold 64 MiB.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from protocols.peer_warnings import PeerWarnings
from protocols.waking import Wakes

if TYPE_CHECKING:
    from protocols.tls import TlsConfig
    from protocols.transports.certificates import Certificates
    from protocols.transports.inproc import InprocBinding
    from protocols.transports.websocket import PortKey, WebSocketPort

TURN_BUDGET: Final = 2 << 20
"""Bytes that all connections together read in one turn, as far as `READ_MIN` allows."""
READ_MIN: Final = 4096


class ReadBudget:
    """The shared receive buffer, and how much of it one connection may use in this turn."""

    __slots__ = ("_active", "_seen", "buffer", "share", "turn")

    def __init__(self) -> None:
        self.turn = 1
        self.share = TURN_BUDGET
        """Bytes one connection may read in this turn."""
        self.buffer = memoryview(bytearray(65536))
        self._active = 1
        self._seen = 0

    def require(self, size: int) -> None:
        """Make the buffer at least this large."""
        if size > len(self.buffer):
            self.buffer = memoryview(bytearray(size))

    def take(self, last_turn: int) -> int:
        """The share of a connection that last read in ``last_turn`` and now reads in ``self.turn``."""
        if last_turn == self.turn:
            self.turn += 1
            if self._seen != self._active:
                self._set_active(self._seen)
            self._seen = 1
            return self.share
        self._seen += 1
        if self._seen > self._active:  # detects a new flood before its first turn is over
            self._set_active(self._seen)
        return self.share

    def _set_active(self, active: int) -> None:
        self._active = active
        self.share = max(TURN_BUDGET // active, READ_MIN)


class LoopState:
    """One for each event loop."""

    __slots__ = ("certificates", "inproc", "reads", "wakes", "warnings", "websocket_lock", "websocket_ports")

    def __init__(self) -> None:
        self.reads = ReadBudget()
        self.wakes = Wakes(asyncio.get_running_loop())
        self.warnings = PeerWarnings()
        """Warnings about peers that `protocols.dialling.dial_once` connected to; endpoints have their own."""
        # Listeners are found here and live as long as their owners. A strong reference would keep their loop
        # alive.
        self.inproc: WeakValueDictionary[str, InprocBinding] = WeakValueDictionary()
        self.certificates: dict[TlsConfig, Certificates] = {}
        """The certificates of TLS dialers: the system's authorities take 20 ms to load, too long for every
        attempt.
        """
        self.websocket_ports: WeakValueDictionary[PortKey, WebSocketPort] = WeakValueDictionary()
        self.websocket_lock = asyncio.Lock()
        """Held while a port is being opened."""


_STATES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState]] = WeakKeyDictionary()


def loop_state() -> LoopState:
    """The state of the running loop, made at the first call."""
    loop = asyncio.get_running_loop()
    state = _STATES.get(loop)
    if state is None:
        state = _STATES[loop] = LoopState()
    return state
