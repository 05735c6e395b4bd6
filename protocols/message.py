"""A message with what a body alone does not say: whom it came by, and the words in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.pipe import Pipe
from protocols.pipe_view import PipeView

P = TypeVar("P", Pipe, PipeView)


@dataclass(slots=True)
class Message(Generic[P]):
    """What ``recv_message`` gives, and what raw sockets send.

    ``pipe`` is the peer it came from or goes to: a `Pipe` of a raw socket, a `PipeView` of any other.
    ``header`` is the backtrace or hop count as on the wire; empty for patterns without one, and for all but
    raw sockets.
    """

    pipe: P
    header: bytes
    body: bytes

    @property
    def frame(self) -> bytes:
        """As it is on the wire."""
        return self.header + self.body if self.header else self.body
