"""Moves a blocking client from a broker that is about to leave to another one, while its session goes on.

A `Landing` decides what is said there. Threads that wait in `BlockingSession.pump` take its steps, and read
both connections meanwhile. A program whose calls never wait, such as one that only calls ``publish_nowait``,
gets a thread for the move (`BlockingSession.catch_up`). A program that makes no call does not move. It goes
to another broker at its next call, when its own is gone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.clients.blocking_connection import BlockingConnection
from mesh.clients.finding import dialable
from mesh.clients.landing import Landing
from mesh.errors import PeerError
from protocols.errors import SPError

if TYPE_CHECKING:
    from mesh.clients.blocking_session import BlockingSession

PAUSE_S: Final = 0.1
"""Pause after a round of addresses in vain, in seconds, for as long as the broker stays."""
INF: Final = float("inf")


@dataclass(slots=True)
class Move:
    """One attempt: a landing at ``url``, its connection, and when it is given up."""

    url: str
    landing: Landing
    wire: BlockingConnection
    until: float
    told: bool = False
    """True if the current broker was told that the client has moved."""


class BlockingMover:
    """The moves of one session, one after the other. Use it with the session's lock held."""

    def __init__(self, session: BlockingSession) -> None:
        self._session = session
        self._move: Move | None = None
        self._round: list[str] = []
        self._retry_at = 0.0
        self._leaves_at = INF
        """The ``leaves_at`` of the broker that was told that this client is awake."""

    @property
    def wire(self) -> BlockingConnection | None:
        """The connection to the next broker, to be read beside the current one."""
        return None if self._move is None else self._move.wire

    def due(self, now: float) -> float:
        """When to take the next step if nothing arrives."""
        move, session = self._move, self._session
        if move is not None:
            return INF if move.landing.ready else move.until
        if not session.conversation.settled:
            return INF
        return now + PAUSE_S if session.dialling else self._retry_at

    def step(self, limit: float) -> bool:
        """Take the next step. ``limit`` is how long a new connection may take. False if nothing can be done
        now."""
        session, conversation, now = self._session, self._session.conversation, time.monotonic()
        move = self._move
        if move is None:
            if now >= limit or now < self._retry_at or session.dialling or not conversation.settled:
                return False
            self._begin(limit, now)
            return True
        if not move.landing.ready:
            if not move.landing.over and now < move.until:
                return False
            self.drop()
        elif conversation.said_bye:
            self.land()
        elif not move.told and conversation.settled:
            move.told = True
            conversation.moved()
        else:
            return False
        return True

    def _begin(self, limit: float, now: float) -> None:
        """Connect to the next address, without the lock, and begin a landing there."""
        session, conversation = self._session, self._session.conversation
        if conversation.leaves_at != self._leaves_at:  # the broker waits for clients that it hears
            self._leaves_at = conversation.leaves_at
            conversation.ping()
            session.send()
        if not self._round:
            session.addresses.told(dialable(conversation.told))
            self._round = session.addresses.others()
        url = self._round.pop() if self._round else ""
        if not self._round:
            self._retry_at = now + PAUSE_S
        wire = session.connect_beside(url, limit - now) if url else None
        if wire is None:
            return
        landing = conversation.new_landing()
        self._move = Move(url, landing, wire, time.monotonic() + session.connect_timeout_s)
        self.send()
        session.nudge()  # a thread may be reading the current connection only

    def send(self) -> None:
        """Send what the landing has to say."""
        move = self._move
        if move is not None:
            try:
                move.wire.send(move.landing.take_frames())
            except OSError as error:
                move.landing.over = str(error)

    def read(self) -> None:
        """Read what has come for the landing."""
        move = self._move
        if move is None:
            return
        try:
            frames = move.wire.receive()
            if frames:
                move.landing.received(frames)
        except (OSError, SPError, PeerError) as error:
            move.landing.over = str(error)
            if move.landing.ready:  # its session is lost before it was used
                self.drop()
            return
        self.send()

    @property
    def is_ready(self) -> bool:
        return self._move is not None and self._move.landing.ready

    def land(self) -> None:
        """Let the session go on at the next broker."""
        move, self._move = self._move, None
        assert move is not None, "there is one"
        self._session.conversation.landing = None
        self._retry_at = 0.0
        self._session.land(move.url, move.landing, move.wire)

    def drop(self) -> None:
        """End the landing: it is of no use."""
        move, self._move = self._move, None
        if move is not None:
            self._session.conversation.landing = None
            move.wire.close()

    def leave(self) -> None:
        """Close this process's copy of the descriptor only; the connection belongs to another process."""
        if self._move is not None:
            self._move.wire.leave()
