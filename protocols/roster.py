"""The peers of one socket by their ids, and the counters of all its peers, present and past.

Pure. Sockets of an event loop and blocking sockets share it; they differ in connections and waiting callers.
"""

from __future__ import annotations

from typing import Final

from protocols.errors import PipeRefused
from protocols.patterns.base import Pattern
from protocols.pipe import Connection, Pipe, PipeOwner
from protocols.statistics import Departures, SocketStatistics, sum_of

PIPE_ID_MAX: Final = 0x7FFFFFFF


class Roster:
    """See the module."""

    def __init__(self, pattern: Pattern) -> None:
        self.pipes: dict[int, Pipe] = {}
        """Attached pipes, oldest first."""
        self.connected: dict[Pipe, None] = {}
        """Attached pipes, and those that drain after their close."""
        self.last_pipe_id = pattern.rng.getrandbits(31)
        self._pattern = pattern
        self._attached = 0
        self._departed = Departures()

    def new_pipe(
        self, connection: Connection, owner: PipeOwner, *, url: str, dialed: bool, weighed: bool = True
    ) -> Pipe:
        """Make a pipe of ``owner``, not yet attached. Raises `PipeRefused` at the limit."""
        options = self._pattern.options
        if len(self.pipes) >= options.peers_max:
            sentence = f"the limit of {len(self.pipes)} peers is reached (peers_max)"
            raise PipeRefused(sentence, reason="too many peers")
        pipe = Pipe(
            self._new_id(),
            connection,
            owner,
            url=url,
            dialed=dialed,
            limit=options.send_queue,
            weighed=weighed,
        )
        pipe.linger_s = options.linger_s
        return pipe

    def attach(self, pipe: Pipe, now: float) -> None:
        """Tell the pattern about the pipe. It may raise `PipeRefused`."""
        self._pattern.pipe_attached(pipe, now)
        self.pipes[pipe.id] = pipe
        self._attached += 1

    def undo_attach(self, pipe: Pipe, now: float) -> None:
        """Remove a pipe, if it is still there, as if it had never been attached."""
        if self.pipes.pop(pipe.id, None) is not None:
            self._attached -= 1
            self._pattern.pipe_detached(pipe, now)

    def detach(self, pipe: Pipe, now: float, *, closing: bool) -> bool:
        """A pipe has ended; return False if it was not attached.

        Its queued messages count as lost, unless the socket is ``closing``.
        """
        if self.pipes.pop(pipe.id, None) is None:
            return False
        self._departed.add(pipe)
        if not closing:
            self._pattern.count_lost(pipe)
        self._pattern.pipe_detached(pipe, now)
        return True

    def statistics(self) -> SocketStatistics:
        present = [pipe.statistics() for pipe in self.pipes.values()]
        total = sum_of(self._departed.counters, *present)
        return SocketStatistics(
            protocol=self._pattern.name,
            peers=len(present),
            attached=self._attached,
            detached=self._attached - len(present),
            frames_in=total.frames_in,
            bytes_in=total.bytes_in,
            frames_out=total.frames_out,
            bytes_out=total.bytes_out,
            refused=total.refused,
            queued=sum(pipe.queued for pipe in present),
            drops=dict(self._pattern.drops),
            closed=dict(self._departed.by_cause),
            recently_closed=tuple(self._departed.recent),
        )

    def _new_id(self) -> int:
        """Counted from a random start, so that ids of two runs differ; unique among this socket's pipes."""
        while True:
            self.last_pipe_id = self.last_pipe_id % PIPE_ID_MAX + 1
            if self.last_pipe_id not in self.pipes:
                return self.last_pipe_id
