"""Whether the Bus of a link still carries anything. Heartbeats have connections of their own.

One connection between two hosts can die without a word while others live: a firewall forgot it, or a packet
that is too large for some line on the way blocks all those behind it. TCP gives up after a quarter of an
hour.

So a side that has said something on a Bus since it last heard something says PING once a round, and the other
side answers PONG. If not a byte comes on the Bus for `SILENT_ROUNDS_MAX` rounds after a PING, it is dead, and
its link with it. If only one direction is dead, the side that gets no answer finds it.

What is said while something is heard counts as an answer and needs none, or two brokers would ask each other
for ever. A Bus at rest is not probed and costs nothing: if it is dead, the next frame finds out.

Pure: fed with the counters of the pipe.
"""

from __future__ import annotations

from typing import Final

SILENT_ROUNDS_MAX: Final = 3


class BusProbe:
    """Probes one Bus; see the module. ``said`` is how many frames this side has said so far."""

    __slots__ = ("_asked", "_bytes_in", "_said", "_silent", "dead")

    def __init__(self) -> None:
        self._said = 0  # when something was last heard
        self._bytes_in = 0
        self._asked = False
        self._silent = 0  # rounds in a row
        self.dead = False
        """Nothing has come for so many rounds after a PING."""

    def heard(self, said: int) -> None:
        """Frames came, and have been answered."""
        self._said = said

    def round(self, said: int, bytes_in: int) -> bool:
        """A round begins. Returns whether to say PING."""
        moved = bytes_in != self._bytes_in
        self._bytes_in = bytes_in
        waiting, self._asked = self._asked, said != self._said
        self._silent = self._silent + 1 if self._asked and waiting and not moved else 0
        self.dead = self._silent >= SILENT_ROUNDS_MAX
        return self._asked and not self.dead
