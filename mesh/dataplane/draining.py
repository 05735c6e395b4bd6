"""How clients leave a broker that is about to leave, so that nothing is lost or comes twice. Pure.

The broker says GOAWAY, and goes on serving. A client that can move makes a session at another broker beside
this one, subscribes there, and waits for that barrier. From then on every broker sends the other broker what
the client wants. Then it says MOVED here, and publishes nothing more here.

What other brokers sent to this one before they knew of the other subscription may still be on its way. So
this broker sends each of them a MARK behind everything it has for it, and gets it back behind everything they
have for this one. Then the client gets what waits for it, answers to its questions among it, and BYE behind
that. It reads on at the other broker and publishes there: all brokers have read what it published here.

One round of marks serves all clients that moved in a turn. A broker without the capability `mark` is not
waited for. The owner of the exchange bounds the time of all this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mesh.wire.capabilities import GOAWAY, MOVES
from mesh.wire.session_frames import Kind, Leaving, encode, milliseconds

if TYPE_CHECKING:
    from mesh.dataplane.members import Members, Neighbour
    from mesh.dataplane.sessions import Session


class _Round:
    """Links whose mark is not back, and the sessions that wait for it."""

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
        self._stamp = 0
        self._moved: dict[Session, None] = {}
        self._rounds: dict[int, _Round] = {}
        self._last: dict[Session, None] = {}
        """Sessions that get what waits for them, and then BYE."""

    def begin(self, sessions: Iterable[Session], left_s: float, reason: str) -> None:
        """Tell all clients that understand it."""
        self.reason = reason
        frame = encode(Kind.LEAVING, Leaving.GOAWAY, milliseconds(left_s), reason)
        for session in sessions:
            if session.agreed.has(GOAWAY):
                session.send_control(frame)

    @staticmethod
    def may_move(session: Session) -> bool:
        """Whether its client leaves by itself."""
        return not session.closed and session.agreed.has(MOVES)

    def moved(self, session: Session) -> None:
        """MOVED: its client is somewhere else, and reads here what is still for it."""
        if self.reason:
            self._moved[session] = None

    def step(self) -> None:
        """At the end of a turn: what can be done next."""
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
        """A mark is back."""
        if stamp in self._rounds:
            self._rounds[stamp].links.pop(link, None)
            self._end_round(stamp)

    def link_down(self, link: Neighbour) -> None:
        """Its marks do not come back."""
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
