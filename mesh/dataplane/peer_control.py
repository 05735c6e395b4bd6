"""Frames and changes of other brokers: links come and go, and interest changes.

`mesh.dataplane.members` keeps the records of members and links. A broker that breaks a rule makes `frames`
raise `PeerError`, and the owner of the link drops it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mesh.dataplane.counters import Tally
from mesh.dataplane.draining import Draining
from mesh.dataplane.entry_broker import EntryBroker
from mesh.dataplane.home_for_peers import HomeForPeers
from mesh.dataplane.intake import Intake
from mesh.dataplane.members import Member, Members, Neighbour
from mesh.dataplane.ports import Pipe, Turn
from mesh.dataplane.questions import Answer, Query
from mesh.dataplane.requests import Requests
from mesh.dataplane.sessions import LocalTaker
from mesh.dataplane.subscribing import PATTERNS_AT_ONCE
from mesh.errors import SessionError, TopicError
from mesh.topics.routing import Router
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import DATA, Kind, Leaving, decode, encode, messages_in, name_of


class PeerControl:
    """Handles other brokers. ``work_pending`` is called when long work waits."""

    def __init__(
        self,
        *,
        members: Members,
        router: Router[LocalTaker, Member],
        intake: Intake,
        requests: Requests,
        entry: EntryBroker,
        home: HomeForPeers,
        draining: Draining,
        turn: Turn,
        tally: Tally,
        work_pending: Callable[[], None],
    ) -> None:
        self._members = members
        self._router = router
        self._intake = intake
        self._requests = requests
        self._entry = entry
        self._home = home
        self._draining = draining
        self._turn = turn
        self._tally = tally
        self._work_pending = work_pending

    # --- members and links

    def set_live(self, live: Iterable[tuple[int, str]]) -> None:
        """All brokers that are alive or suspect, by id and name. The interest of all others is forgotten."""
        for member in self._members.set_live(live):
            self._forget(member)

    def link_up(
        self,
        id: int,
        name: str,
        pipe: Pipe,
        rtt_s: float,
        now: float,
        *,
        boot: int,
        counts: bool,
        durable: bool,
        marks: bool,
    ) -> None:
        """A link is admitted. Replaces an earlier one."""
        earlier = self._members.get(id).neighbour
        if earlier is not None:
            self._link_over(earlier, now)
        link = self._members.link_up(
            id, name, pipe, boot=boot, rtt_s=rtt_s, counts=counts, durable=durable, marks=marks, now=now
        )
        self._router.forget_routes()
        self._entry.offering.link_up(link)

    def link_down(self, id: int, now: float) -> None:
        """A link has ended. The broker's interest is kept while it is live."""
        member = self._members.table.get(id)
        if member is None:
            return
        if member.neighbour is not None:
            self._link_over(member.neighbour, now)
        if id not in self._members.live:
            self._forget(member)

    def _link_over(self, link: Neighbour, now: float) -> None:
        self._members.link_down(link)
        self._entry.offering.link_down(link)
        self._draining.link_down(link)
        self._router.forget_routes()
        self._requests.broker_gone(link.member, now)

    def _forget(self, member: Member) -> None:
        """It is no longer a member. Its interest is removed; its counters stay in case it returns."""
        self._members.forget(member)
        member.unwanted.clear()
        wanted = self._router.forget_remote(member)
        if wanted is not None and self._router.discard(wanted, PATTERNS_AT_ONCE):
            self._turn.jobs.append(lambda _: self._router.discard(wanted, PATTERNS_AT_ONCE))
            self._work_pending()

    # --- interest

    def change_interest(
        self, id: int, added: Iterable[tuple[str, int]], removed: Iterable[str], *, known: bool
    ) -> None:
        """A broker also wants the ``added`` (pattern, role) pairs, which are new or have a new role, and no
        longer the ``removed`` patterns. ``known``: this completes its interest. Thousands of removals go in
        steps."""
        member = self._members.get(id)
        added, removed, unwanted = list(added), list(removed), member.unwanted
        for pattern, _ in added if unwanted else ():
            unwanted.pop(pattern, None)
        if len(removed) > PATTERNS_AT_ONCE:
            if not unwanted:
                self._turn.jobs.append(partial(self._remove_unwanted, member))
                self._work_pending()
            unwanted.update(dict.fromkeys(removed))
            removed = []
        self._router.change_remote(member, added, removed)
        member.interest_known = member.interest_known or known

    def _remove_unwanted(self, member: Member, now: float) -> bool:
        unwanted = member.unwanted
        part = [unwanted.popitem()[0] for _ in range(min(PATTERNS_AT_ONCE, len(unwanted)))]
        self._router.change_remote(member, (), part)
        return bool(unwanted)

    # --- frames

    def frames(self, id: int, frames: list[bytes], now: float) -> None:
        """Handle session frames of a broker. Raises `PeerError`."""
        link = self._members.get(id).neighbour
        if link is None:  # frames of a link that has ended
            self._tally.drop("link_down_in", sum(map(messages_in, frames)))
            return
        try:
            for frame in frames:
                if len(frame) > 1 and frame[1] == DATA and frame[0] & 0xF0 == 0x90:
                    self._intake.peer_block(link, frame, now)
                else:
                    self._control(link, decode(frame), now)
        except TopicError as error:
            raise SessionError(str(error)) from error

    def _control(self, link: Neighbour, frame: list[Any], now: float) -> None:
        member, requests = link.member, self._requests
        match frame:
            case [Kind.CREDIT, 0, messages, size]:
                link.granted(messages, size, now)
            case [Kind.RECEIVED, total]:
                self._members.received(link, total)
            case [Kind.FORWARD, token, survey, topic, body, headers, timeout_ms]:
                query = Query(topic, body, headers)
                requests.forwarded(member, token, bool(survey), query, timeout_ms / 1000, now)
            case [Kind.ASKED, token, names]:
                requests.peer_asked(member, token, names, now)
            case [Kind.RETURN, token, responder, status, body, headers, name]:
                requests.arrived(member.id, token, responder, Answer(status, body, headers, name), now)
            case [Kind.LONGER, token, more_ms]:
                requests.longer(token, more_ms, now)
            case [Kind.PING, stamp]:
                link.send(encode(Kind.PONG, stamp))
            case [Kind.LEAVING, Leaving.MARK, stamp, _] if link.marks:
                link.owe_mark(stamp)
            case [Kind.LEAVING, Leaving.MARKED, stamp, _] if link.marks:
                self._draining.marked(link, stamp)
            case [Durable.KEPT, answers] if link.durable:
                self._entry.kept(link, answers)
            case [Durable.LOWEST, publisher, boot, lowest] if link.durable:
                self._home.heard_lowest(link, publisher, boot, lowest)
            case [Kind.PONG, _]:
                pass
            case [kind, *_]:
                raise SessionError(f"a {name_of(kind)} frame is not for a broker to send")
