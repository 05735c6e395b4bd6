"""The view of a peer that a cooked socket shows.

A `Pipe` takes frames, which must have the header words of their pattern in front. Cooked sockets write those
themselves, so their views of peers cannot send.
"""

from __future__ import annotations

from protocols.identity import PeerIdentity
from protocols.pipe import Pipe, PipeStatistics


class PipeView:
    """One peer of a cooked socket, to inspect and to close. Each pipe has one view, which equals it."""

    __slots__ = ("_pipe",)

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._pipe

    def __hash__(self) -> int:
        return hash(self._pipe)

    def __repr__(self) -> str:
        state = f"closed: {self.close_reason}" if self.closed else "open"
        return f"<PipeView {self.id} {self.remote_address or self.url} {state}>"

    @property
    def id(self) -> int:
        """31 bits, not zero, unique among the socket's peers."""
        return self._pipe.id

    @property
    def url(self) -> str:
        """The address that was dialled or listened on."""
        return self._pipe.url

    @property
    def dialed(self) -> bool:
        """True if this socket dialled the peer."""
        return self._pipe.dialed

    @property
    def peer(self) -> int:
        """The peer's protocol number."""
        return self._pipe.peer

    @property
    def remote_address(self) -> str:
        return self._pipe.remote_address

    @property
    def local_address(self) -> str:
        return self._pipe.local_address

    @property
    def identity(self) -> PeerIdentity | None:
        """The peer's identity, if the transport can tell: its certificate, or its process over ipc."""
        return self._pipe.identity

    @property
    def full(self) -> bool:
        """True if its queue would refuse a message."""
        return self._pipe.full

    @property
    def queued(self) -> int:
        """Messages that wait for the connection."""
        return self._pipe.queued

    @property
    def bytes_in(self) -> int:
        return self._pipe.bytes_in

    @property
    def bytes_out(self) -> int:
        return self._pipe.bytes_out

    @property
    def closed(self) -> bool:
        return self._pipe.closed

    @property
    def close_cause(self) -> str:
        """Why the pipe ended, as one of a few fixed words for counters; empty while it is open."""
        return self._pipe.close_cause

    @property
    def close_reason(self) -> str:
        """The same as a sentence, for people."""
        return self._pipe.close_reason

    def statistics(self) -> PipeStatistics:
        return self._pipe.statistics()

    def close(self, reason: str, *, flush: bool = False) -> None:
        """Drop the peer now, or with ``flush`` once everything queued has been written."""
        self._pipe.close(reason, flush=flush)


def view_of(pipe: Pipe) -> PipeView:
    """The one view of this pipe."""
    view = pipe.view
    if not isinstance(view, PipeView):
        view = pipe.view = PipeView(pipe)
    return view
