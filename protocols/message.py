"""A message with more than its body: the peer it came from, and the header words in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.pipe import Pipe
from protocols.pipe_view import PipeView

P = TypeVar("P", Pipe, PipeView)


@dataclass(slots=True)
class Message(Generic[P]):
    """The result of ``recv_message``, and what raw sockets send.

    ``pipe`` is the peer it came from or goes to: a `Pipe` for a raw socket, a `PipeView` for any other.
    ``header`` is the backtrace or hop count as on the wire. It is empty for patterns without one, and for all
    but raw sockets.
    """

    pipe: P
    header: bytes
    body: bytes

    @property
    def frame(self) -> bytes:
        """The frame as it is on the wire."""
        return self.header + self.body if self.header else self.body
