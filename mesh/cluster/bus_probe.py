"""Checks that the Bus of a link still carries frames. Heartbeats have their own connections.

One connection between two hosts can die silently while others live: a firewall dropped its state, or a packet
that is too large for some hop blocks all later ones. TCP gives up only after a quarter of an hour.

So a side that has sent something on a Bus since it last received something sends PING once a round, and the
other side answers PONG. If no byte arrives on the Bus for `SILENT_ROUNDS_MAX` rounds after a PING, the Bus is
dead, and its link with it. If only one direction is dead, the side without an answer notices.

Frames sent while others arrive count as answers and are not probed. Otherwise two brokers would probe each
other forever. A Bus at rest is not probed and costs nothing; if it is dead, the next frame reveals that.

Pure: it is given the counters of the pipe.
"""

from __future__ import annotations

from typing import Final

SILENT_ROUNDS_MAX: Final = 3


class BusProbe:
    """Probes one Bus. ``said`` is the number of frames that this side has sent so far."""

    __slots__ = ("_asked", "_bytes_in", "_said", "_silent", "dead")

    def __init__(self) -> None:
        self._said = 0  # when something was last received
        self._bytes_in = 0
        self._asked = False
        self._silent = 0  # consecutive rounds
        self.dead = False
        """Nothing has arrived for too many rounds after a PING."""

    def heard(self, said: int) -> None:
        """Frames arrived and were answered."""
        self._said = said

    def round(self, said: int, bytes_in: int) -> bool:
        """A round begins. True if PING should be sent."""
        moved = bytes_in != self._bytes_in
        self._bytes_in = bytes_in
        waiting, self._asked = self._asked, said != self._said
        self._silent = self._silent + 1 if self._asked and waiting and not moved else 0
        self.dead = self._silent >= SILENT_ROUNDS_MAX
        return self._asked and not self.dead
