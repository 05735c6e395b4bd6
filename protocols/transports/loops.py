"""What all connections of one event loop share: a receive buffer with a budget, the names of inproc,
what TLS dialers have loaded, the ports that WebSocket listeners share, and the warnings about peers that were
dialled once.

This is the one module with state, keyed by loop and gone with it: several brokers in one process, each on a
loop of its own, must not meet here, and nothing outlives ``asyncio.run``.

The budget (design decision 12). A loop turn reads each ready connection once, so timers are late by the
time it takes to handle *all* of them: with asyncio's 256 KiB a read, 200 flooding connections made timers
476 ms late. The sum is what must be bounded, so the size of one read shrinks as more connections are
active:

* a *turn* is told without a clock and without a callback: within one no connection reads twice, so the first
  that does begins the next, and the number that read in the former is how many are active;
* each may then read ``TURN_BUDGET / active`` bytes, at least `READ_MIN`, at most its own ``read_budget``.

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
"""Bytes read in one turn by all connections together, as far as `READ_MIN` allows."""
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
        if self._seen > self._active:  # a flood that begins is not first seen when its first turn is over
            self._set_active(self._seen)
        return self.share

    def _set_active(self, active: int) -> None:
        self._active = active
        self.share = max(TURN_BUDGET // active, READ_MIN)


class LoopState:
    """One per event loop."""

    __slots__ = ("certificates", "inproc", "reads", "wakes", "warnings", "websocket_lock", "websocket_ports")

    def __init__(self) -> None:
        self.reads = ReadBudget()
        self.wakes = Wakes(asyncio.get_running_loop())
        self.warnings = PeerWarnings()
        """About peers that `protocols.dialling.dial_once` connected to; endpoints have their own."""
        # Listeners are found here and live as long as whoever listens. Held from here, they would keep their
        # loop.
        self.inproc: WeakValueDictionary[str, InprocBinding] = WeakValueDictionary()
        self.certificates: dict[TlsConfig, Certificates] = {}
        """Those of TLS dialers: the system's authorities take 20 ms to load, too long for every attempt."""
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
