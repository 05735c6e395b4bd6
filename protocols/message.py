"""A message with what a body alone does not say: whom it came by, and the words in front of it."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.pipe import Pipe


@dataclass(slots=True)
class Message:
    """What raw sockets exchange one at a time.

    ``pipe`` is the peer it came from or goes to; ``header`` the backtrace as on the wire, empty for patterns
    without one.
    """

    pipe: Pipe
    header: bytes
    body: bytes

    @property
    def frame(self) -> bytes:
        """As it is on the wire."""
        return self.header + self.body if self.header else self.body
