"""How clients move from a broker that is about to leave, without loss or duplicates. Pure.

The broker sends GOAWAY and continues to serve. A client that can move opens a second session at another
broker, subscribes there, and waits for that barrier. From then on every broker sends the client's messages to
the other broker. Then the client sends MOVED here and publishes nothing more here.

Messages that other brokers sent to this one before they knew the new subscription may still be in flight. So
this broker sends each of them a MARK behind all blocks for it. The other broker returns the MARK behind all
its blocks for this one. Then the client gets the messages that wait for it, answers to its questions
included, and then BYE. From then on it reads and publishes only at the other broker: all brokers have read
what it published here.

One round of marks serves all clients that moved in a turn. Brokers without the capability `mark` are not
waited for. The owner of the exchange limits the time of all this.

A client that promised no keepalive may be a program that computes and does not hear GOAWAY. It is waited for
only if it says something within `AWAKE_S`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mesh.wire.capabilities import GOAWAY, MOVES
from mesh.wire.session_frames import Kind, Leaving, encode, milliseconds

if TYPE_CHECKING:
    from mesh.dataplane.members import Members, Neighbour
    from mesh.dataplane.sessions import Session

AWAKE_S: Final = 1.0


class _Round:
    """Links whose mark has not returned, and the sessions that wait for it."""

    __slots__ = ("links", "sessions")

    def __init__(self, links: Iterable[Neighbour], sessions: Iterable[Session]) -> None:
        self.links = dict.fromkeys(links)
        self.sessions = dict.fromkeys(sessions)


class Draining:
    """See the module."""

    def __init__(self, members: Members) -> None:
        self.reason = ""
        """Why this broker leaves; empty while it stays."""
        self._members = members
        self._began = 0.0
        self._stamp = 0
        self._moved: dict[Session, None] = {}
        self._rounds: dict[int, _Round] = {}
        self._last: dict[Session, None] = {}
        """Sessions that get their waiting messages, and then BYE."""

    def begin(self, sessions: Iterable[Session], left_s: float, reason: str, now: float) -> None:
        """Tell all clients that understand it."""
        self.reason = reason
        self._began = now
        frame = encode(Kind.LEAVING, Leaving.GOAWAY, milliseconds(left_s), reason)
        for session in sessions:
            if session.agreed.has(GOAWAY):
                session.send_control(frame)

    @staticmethod
    def may_move(session: Session) -> bool:
        """True if its client can leave by itself."""
        return not session.closed and session.agreed.has(MOVES)

    def waits_for(self, session: Session, now: float) -> bool:
        """True if its client is leaving, or may be about to."""
        keepalive = session.keepalive
        awake = keepalive.interval_s or now < self._began + AWAKE_S or keepalive.heard_at > self._began
        return bool(awake) and self.may_move(session)

    def moved(self, session: Session) -> None:
        """MOVED: its client is now elsewhere, and reads here only what still waits for it."""
        if self.reason:
            self._moved[session] = None

    def step(self) -> None:
        """Do what is possible next, at the end of a turn."""
        if self._moved:
            self._begin_round()
        if self._last:
            self._last = {session: None for session in self._last if not self._ended(session)}

    def _begin_round(self) -> None:
        links = [link for link in self._members.neighbours() if link.marks]
        if any(link.outlet.behind for link in links):
            return
        self._stamp += 1
        for link in links:
            link.send(encode(Kind.LEAVING, Leaving.MARK, self._stamp, ""))
        self._rounds[self._stamp] = _Round(links, self._moved)
        self._moved = {}
        self._end_round(self._stamp)

    def marked(self, link: Neighbour, stamp: int) -> None:
        """A mark has returned."""
        if stamp in self._rounds:
            self._rounds[stamp].links.pop(link, None)
            self._end_round(stamp)

    def link_down(self, link: Neighbour) -> None:
        """The marks of this link will not return."""
        for stamp in list(self._rounds):
            self.marked(link, stamp)

    def _end_round(self, stamp: int) -> None:
        if not self._rounds[stamp].links:
            self._last |= self._rounds.pop(stamp).sessions

    def _ended(self, session: Session) -> bool:
        if session.closed:
            return True
        subscriptions = session.subscriptions.values()
        if session.questions or any(each.behind or each.owes for each in subscriptions):
            return False
        session.send(encode(Kind.BYE, self.reason))
        return True
