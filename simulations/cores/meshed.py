"""The production cores of membership and dialling (`mesh.membership`, `mesh.overlay`) on a `Field`.

It stands where `mesh.peering`, `mesh.rounds` and `mesh.news` stand in a broker, and does what they do to the
instructions of the machines, with tuples instead of frames. A link is one wire here instead of three
connections: it takes a greeting each way and a READY to come up. Each link has a number, so that what belongs
to an earlier one is not taken for the present one, and a message to a link that is not there is answered with
a reset, as a kernel would.

Interest, which a full mesh spreads by the same links, is left out: it decides nothing about who is alive.
"""

from __future__ import annotations

import random
from enum import IntEnum
from typing import ClassVar, Final

from mesh.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberMoved,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeChanged,
    NodeState,
    Redial,
    SelfChanged,
    State,
    Survey,
    Tell,
    TellAll,
)
from mesh.overlay import Dial, Overlay, OverlayOptions
from simulations.cores.field import Field, Message, Place, Wire
from simulations.scheduler import SECOND, nanoseconds


class MessageKind(IntEnum):
    """The first element of a message; the second is the link's number."""

    HELLO = 0
    WELCOME = 1
    READY = 2
    REFUSED = 3
    CLOSE = 4
    SURVEY = 5
    ANSWER = 6
    MEMBERS = 7


HELLO, WELCOME, READY, REFUSED, CLOSE, SURVEY, ANSWER, MEMBERS = MessageKind

NEWS_PAUSE_S: Final = 0.03
JOIN_S: Final = 2.0
NEVER: Final = float("inf")


class Identity:
    """What outlives a restart: the id, and the incarnation to begin with."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.id = rng.getrandbits(48) << 14 | number
        self.incarnation = 0


class Link:
    """One that is up."""

    __slots__ = ("member", "news", "number", "wire")

    def __init__(self, wire: Wire, number: int, member: int) -> None:
        self.wire = wire
        self.number = number
        self.member = member
        self.news: dict[int, MemberRecord] = {}


class Meshed:
    """One life of a broker, by the real machines."""

    def __init__(
        self,
        field: Field,
        place: Place,
        identity: Identity,
        *,
        join: tuple[str, ...],
        rng: random.Random,
    ) -> None:
        self._field = field
        self._place = place
        self._identity = identity
        options = field.options
        self._dial_s = max(1.0, options.period_s)
        now = self._now()
        identity.incarnation += 1
        me = MemberRecord(
            identity.id,
            identity.incarnation,
            State.ALIVE,
            rng.getrandbits(63),
            place.name,
            place.name,
            place.name,
            place.name,
        )
        self.membership = Membership(
            me,
            options=MembershipOptions(period_s=options.period_s, deadline_s=options.deadline_s),
            join=bool(join),
            rng=rng,
            now=now,
        )
        self.overlay = Overlay(
            me.id, join=join, options=OverlayOptions.of(options.period_s), rng=rng, now=now
        )
        self.links: dict[int, Link] = {}
        """By member."""
        self._by_wire: dict[int, Link] = {}
        self._dials: dict[int, tuple[Dial, int]] = {}
        """Under way, by the number of the place: the dial, and the number the link would have."""
        self._join_due = NEVER if join else now + 2 * options.period_s
        self._linked_once = False
        self._news_due = NEVER
        self._news_last = -1.0
        self._table_heard = False
        self.due_ns = field.now_ns

    def _now(self) -> float:
        return self._field.now_ns / SECOND

    # --- the runner's side

    def tick(self, now_ns: int) -> None:
        now = self._now()
        if now >= self._news_due:
            self._send_news(now)
        self._act(self.membership.tick(now))
        if now >= self._join_due:
            self._act(self.membership.joined())
        self._pump()

    def receive(self, wire: Wire, message: Message, now_ns: int) -> Message | None:
        kind, number = message[0], message[1]
        there = wire.source.number
        link = self._by_wire.get(there)
        if kind >= SURVEY:
            if link is None or link.number != number:
                return (CLOSE, number)
            return self._said(link, message)
        match kind:
            case MessageKind.HELLO:
                return self._greeted(wire, number, message[2])
            case MessageKind.WELCOME:
                return self._welcomed(wire, number, message[2])
            case MessageKind.READY:
                self._link_up(wire.back, number, message[2], None)
            case MessageKind.REFUSED:
                self._dial_failed(there, number, message[2])
            case MessageKind.CLOSE if link is not None and link.number == number:
                self._gone(link)
        self._pump()
        return None

    def lost(self, wire: Wire, now_ns: int) -> None:
        """The process there died: its kernel reset the link, or refused a dial."""
        there = wire.target.number
        link = self._by_wire.get(there)
        if link is not None:
            self._gone(link)
        if there in self._dials:
            self._dial_failed(there, self._dials[there][1], 0)
        self._pump()

    # --- links

    def _begin_dial(self, dial: Dial) -> None:
        target = self._field.places[dial.url]
        wire = self._place.wires.get(target.number)
        if wire is None:
            self.overlay.is_self(dial.url)
            return
        number = self._field.next_serial()
        self._dials[target.number] = (dial, number)
        self._field.renew(wire)
        self._field.send(wire, (HELLO, number, self.membership.me))
        self._field.after(nanoseconds(self._dial_s), self._dial_timed_out, target.number, number)

    def _dial_timed_out(self, there: int, number: int) -> None:
        if self._place.core is self and self._place.running:
            self._dial_failed(there, number, 0)
            self._pump()

    def _dial_failed(self, there: int, number: int, met: int) -> None:
        """``met``: who is there, though there is no link by this dial."""
        dial, current = self._dials.get(there, (None, 0))
        if dial is None or current != number:
            return
        del self._dials[there]
        if met:
            self.overlay.met(dial.url, met)
        self.overlay.dial_failed(dial.url, dial.member, self._now())

    def _greeted(self, wire: Wire, number: int, hello: MemberRecord) -> Message:
        """Somebody dials; of two that dial each other the lower id's dial stays."""
        there = wire.source.number
        link = self._by_wire.get(there)
        crossed = there in self._dials and self._identity.id < hello.id
        known = self.membership.record(hello.id)
        if crossed or (link is not None and known is not None and known.boot == hello.boot):
            return (REFUSED, number, self._identity.id)
        if link is not None:
            self._gone(link)  # of an earlier run
        self._field.renew(wire.back)
        return (WELCOME, number, self.membership.me)

    def _welcomed(self, wire: Wire, number: int, hello: MemberRecord) -> Message | None:
        there = wire.source.number
        dial, current = self._dials.get(there, (None, 0))
        if dial is None or current != number:
            return (CLOSE, number)
        del self._dials[there]
        self._field.send(wire.back, (READY, number, self.membership.me))
        self._link_up(wire.back, number, hello, dial)
        self._pump()
        return None

    def _link_up(self, wire: Wire, number: int, hello: MemberRecord, dial: Dial | None) -> None:
        now = self._now()
        before = self._by_wire.get(wire.target.number)
        if before is not None:
            self._forget(before)
        self.links[hello.id] = self._by_wire[wire.target.number] = Link(wire, number, hello.id)
        if not self._linked_once:
            self._linked_once = True
            self._join_due = now + JOIN_S
        self.overlay.link_up(hello.id, dial, now)
        self._act(self.membership.link_up(hello, now))

    def _forget(self, link: Link) -> None:
        if self.links.get(link.member) is link:
            del self.links[link.member]
        if self._by_wire.get(link.wire.target.number) is link:
            del self._by_wire[link.wire.target.number]

    def _gone(self, link: Link) -> None:
        self._forget(link)
        now = self._now()
        self.overlay.link_down(link.member, now)
        self._act(self.membership.link_down(link.member, now))

    # --- what is said on them

    def _said(self, link: Link, message: Message) -> Message | None:
        now = self._now()
        match message:
            case (MessageKind.SURVEY, number, round, digest):
                reply = (ANSWER, number, round, self.membership.digest)
                self._act(self.membership.heard_digest(link.member, digest, now))
                return reply
            case (MessageKind.ANSWER, _, round, digest):
                if self.membership.is_open(round):
                    self._act(self.membership.answered(link.member, round, now))
                self._act(self.membership.heard_digest(link.member, digest, now))
            case (_, _, reply, records):
                self._act(self.membership.heard(records, link.member, now))
                if reply and link.member in self.links:
                    self._tell_all(link, False)
                if not self._table_heard:
                    self._table_heard = True
                    self._act(self.membership.joined())
        return None

    def _tell_all(self, link: Link, reply: bool) -> None:
        link.news = {}
        self._field.send(link.wire, (MEMBERS, link.number, reply, tuple(self.membership.records())))

    def _tell(self, records: tuple[MemberRecord, ...], except_member: int, now: float) -> None:
        for member, link in self.links.items():
            if member != except_member:
                for record in records:
                    link.news[record.id] = record
        if self._news_due == NEVER:
            self._news_due = max(now, self._news_last + NEWS_PAUSE_S)

    def _send_news(self, now: float) -> None:
        self._news_due, self._news_last = NEVER, now
        for link in self.links.values():
            if link.news:
                news, link.news = tuple(link.news.values()), {}
                self._field.send(link.wire, (MEMBERS, link.number, False, news))

    # --- the machines' wishes, as `mesh.peering` grants them

    def _act(self, instructions: list[Instruction]) -> None:
        if not instructions:
            return
        now = self._now()
        for instruction in instructions:
            match instruction:
                case Survey(round, members):
                    self._ask(round, members)
                case Tell(records, except_member):
                    self._tell(records, except_member, now)
                case TellAll(member, reply):
                    if (link := self.links.get(member)) is not None:
                        self._tell_all(link, reply)
                case MemberChanged(record, from_state, reason, _):
                    self.overlay.member_changed(record, now)
                    self._field.changed(
                        self._place.name, record.name, str(from_state), str(record.state), reason
                    )
                case MemberMoved(record):
                    self.overlay.member_changed(record, now)
                case MemberForgotten(record):
                    self.overlay.forget(record.id)
                case SelfChanged(record):
                    self._identity.incarnation = record.incarnation
                case DropLink(member, _):
                    if (link := self.links.get(member)) is not None:
                        self._field.send(link.wire, (CLOSE, link.number))
                        self._gone(link)
                case Redial():
                    self.overlay.redial(now)
                case NodeChanged(_, state):
                    if state is NodeState.ISOLATED:
                        self._field.changed(
                            self._place.name, self._place.name, "ready", "isolated", "silence"
                        )
        self._pump()

    def _ask(self, round: int, members: tuple[int, ...]) -> None:
        digest = self.membership.digest
        for member in members:
            link = self.links.get(member)
            if link is not None:
                self._field.send(link.wire, (SURVEY, link.number, round, digest))

    def _pump(self) -> None:
        """Dial what is due and say when to be called."""
        for dial in self.overlay.tick(self._now()):
            self._begin_dial(dial)
        due = min(self.membership.next_deadline(), self.overlay.next_deadline(), self._news_due)
        if self.membership.node_state is NodeState.JOINING:
            due = min(due, self._join_due)
        due_ns = nanoseconds(due) + 1 if due < NEVER else 1 << 62
        if due_ns != self.due_ns:
            self.due_ns = due_ns
            self._field.rearm(self._place)

    sparse: ClassVar[bool] = False

    def view(self) -> dict[str, str]:
        """The table: name of a member to its state, this broker included."""
        return {record.name: str(record.state) for record in self.membership.records()}
