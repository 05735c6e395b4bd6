"""Whether the Bus of a link still carries anything. Heartbeats have connections of their own, and pass.

One connection between two hosts can die without a word while others live: a firewall forgot it, or a packet
that is too large for some line on the way stands before all others. TCP waits a quarter of an hour for it.

So whoever has said something on a Bus since it last heard something there says PING behind it, once a
round, and the other side answers PONG. A Bus on which nothing at all has come, not a byte, for
`SILENT_ROUNDS_MAX` rounds after a PING is dead, and its link with it. If one direction alone is dead, the
side whose words have no echo finds it. What is said while something is heard is an answer and needs no echo,
or two brokers would ask each other for ever. A Bus at rest is asked nothing and costs nothing: if it is
dead, the next word finds out.

Pure: fed with the counters of the pipe.
"""

from __future__ import annotations

from typing import Final

SILENT_ROUNDS_MAX: Final = 3


class Keepalive:
    """Of one Bus; see the module. ``said`` is how many frames this side has said so far."""

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
