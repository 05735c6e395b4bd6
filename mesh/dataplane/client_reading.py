"""A read from a pipe that clients use: the session of each frame, and the cost limit of a read. Pure.

A pipe carries one client, or many behind an SP device. A frame's backtrace identifies its session. A frame
that is not a session frame comes from a stock client and goes back to the caller. A client that breaks a rule
loses its session, and also the rest of the read if the connection is its own.

New topics have to be looked up, which takes long with many starred patterns. After `STEPS_MAX` steps of
look-ups the read ends, and the remaining frames are `left` for another turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mesh.dataplane.held_blocks import HeldBlocks
from mesh.dataplane.intake import Intake
from mesh.dataplane.members import Member
from mesh.dataplane.ports import Pipe, Turn
from mesh.dataplane.session_control import SessionControl
from mesh.dataplane.sessions import LocalTaker, Session
from mesh.errors import PeerError, TopicError
from mesh.topics.routing import Router
from mesh.wire.session_frames import DATA, Kind, decode
from protocols.wire import backtrace

HELLO: Final = int(Kind.HELLO)
STEPS_MAX: Final = 100_000
"""Steps of look-ups (`Router.steps`) after which the rest of a read waits for another turn; some 20 ms."""


class ClientReading:
    """See the module."""

    def __init__(
        self,
        sessions: SessionControl,
        intake: Intake,
        held: HeldBlocks,
        router: Router[LocalTaker, Member],
        turn: Turn,
    ) -> None:
        self.left: list[bytes] = []
        self._reading: Iterator[bytes] = iter(())
        self._sessions = sessions
        self._pipes = sessions.pipes
        self._intake = intake
        self._held = held
        self._router = router
        self._turn = turn

    def read(self, pipe: Pipe, frames: list[bytes], holds: bool, now: float) -> list[bytes]:
        """Handle frames with their backtraces. Returns those that are not session frames. ``holds``: blocks
        wait at the gate."""
        strays: list[bytes] = []
        rest = self._reading = iter(frames)
        self._router.limit_steps(STEPS_MAX)
        client = self._pipes.get(pipe)
        sessions = client.sessions if client is not None else {}
        touched: dict[Session, None] = {}
        for frame in rest:
            start = 4 if len(frame) > 5 and frame[0] & 0x80 else backtrace.split(frame)
            if start < 4:
                continue  # a raw Rep0 lets no such frame through
            if len(frame) <= start or frame[start] & 0xF0 != 0x90:
                strays.append(frame)
                continue
            prefix = frame[:start]
            session = sessions.get(prefix)
            try:
                if session is None or len(frame) < start + 2 or frame[start + 1] == HELLO:
                    session = self._sessions.open(pipe, prefix, frame, now)
                    if session is None:
                        sessions.pop(prefix, None)
                        continue  # its client is challenged
                    client = self._pipes[pipe]
                    sessions = client.sessions
                elif frame[start + 1] == DATA:
                    if holds:
                        self._held.hold(session, frame, start, now)
                    else:
                        self._intake.client_block(session, frame, start, now)
                else:
                    self._sessions.control(session, decode(frame, start), now)
                    if self._turn.unread:  # not only at the end of the turn: one read may ask for gigabytes
                        self._sessions.end_unread(now)
                    if self._pipes.get(pipe) is not client:
                        break  # an answer closed the pipe meanwhile
                touched[session] = None
            except (PeerError, TopicError) as error:
                if session is not None:
                    self._intake.acknowledge(session)
                self._sessions.refuse(pipe, prefix, error, now)
                if len(prefix) == 4:
                    break
        self._router.limit_steps(None)
        for session in touched:
            session.keepalive.heard_at = now
            self._intake.acknowledge(session)
        return strays

    def leave_rest(self) -> None:
        """Look-ups in this read have taken long. Empties the iterator of `read`, which costs nothing for each
        frame."""
        self.left = list(self._reading)
