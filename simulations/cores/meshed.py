"""The production core of the cluster (`mesh.cluster.core`) on a `Field`.

It takes the place of `mesh.cluster.peering` in a broker: it tells the core what happened, and executes the
orders of the core, with tuples instead of frames. It imitates only the parts that are no core. A link is one
wire here instead of three connections, and needs a greeting each way and a READY to come up. Each link has a
number, so that a message of an earlier link is not taken for one of the present link. A message to a missing
link is answered with a reset, as by a kernel.

Interest, which a full mesh spreads over the same links, is left out: it does not affect membership.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from mesh.cluster.core import ClusterCore, Order, Send
from mesh.cluster.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberRecord,
    MembershipOptions,
    NodeChanged,
    NodeState,
    SelfChanged,
    State,
    Survey,
)
from mesh.cluster.overlay import Dial
from simulations.cores.core import Message
from simulations.cores.field import NEVER_NS, Field, PlaceState
from simulations.kernel.scheduler import MILLISECOND, SECOND, nanoseconds


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

NEVER: Final = float("inf")
PAUSED_NS: Final = 10 * MILLISECOND
"""Seconds between checks whether a paused place runs again, to do then what it missed."""


class Identity:
    """The data that survives a restart: the id, and the incarnation to begin with."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.id = rng.getrandbits(48) << 14 | number
        self.incarnation = 0


class Link:
    """A link that is up."""

    __slots__ = ("member", "number", "wire")

    def __init__(self, wire: int, number: int, member: int) -> None:
        self.wire = wire
        self.number = number
        self.member = member


class Meshed:
    """The brokers of a field, run by the real machines: the life at each place, and the lives before it."""

    def __init__(self, field: Field) -> None:
        self._field = field
        joins = random.Random(f"{field.seed}:joins")
        self.joins: list[tuple[str, ...]] = [
            (field.names[joins.randrange(max(0, place - 2), place)],) if place else ()
            for place in range(len(field.names))
        ]
        """The broker that each one joins: one of the two before it, unless the scenario says otherwise."""
        self.identities = [
            Identity(number, random.Random(f"{field.seed}:id:{name}"))
            for number, name in enumerate(field.names, 1)
        ]
        self.lives: dict[int, Life] = {}
        """The last life of each place, by its number."""

    def begin(self, place: int, now_ns: int) -> None:
        if place in self.lives:
            self.lives[place].ended = True
        field = self._field
        rng = random.Random(f"{field.seed}:node:{field.names[place]}:{field.lives[place]}")
        life = Life(field, place, self.identities[place], join=self.joins[place], rng=rng)
        self.lives[place] = life
        life.begin()

    def receive(self, wire: int, message: Message, now_ns: int) -> Message | None:
        return self.lives[self._field.wires.targets[wire]].receive(wire, message)

    def tick(self, place: int, now_ns: int) -> None:
        self.lives[place].tick()

    def lost(self, wire: int, now_ns: int) -> None:
        self.lives[self._field.wires.source(wire)].lost(wire)

    def view(self, place: int) -> dict[str, str]:
        return self.lives[place].view()


class Life:
    """One life of a broker: the shell of its core."""

    def __init__(
        self,
        field: Field,
        place: int,
        identity: Identity,
        *,
        join: tuple[str, ...],
        rng: random.Random,
    ) -> None:
        self._field = field
        self._place = place
        self.ended = False
        """True if another life has begun here."""
        self._name = name = field.names[place]
        self._wires = field.wires
        self._identity = identity
        options = field.options
        self._dial_s = max(1.0, options.period_s)
        identity.incarnation += 1
        me = MemberRecord(
            identity.id, identity.incarnation, State.ALIVE, rng.getrandbits(63), name, name, "", ""
        )
        self.core = ClusterCore(
            me,
            options=MembershipOptions(period_s=options.period_s, deadline_s=options.deadline_s),
            join=join,
            rng=rng,
            now=self._now(),
        )
        self.membership = self.core.membership
        self.links: dict[int, Link] = {}
        """The links by member."""
        self._by_wire: dict[int, Link] = {}
        self._dials: dict[int, tuple[Dial, int]] = {}
        """Dials under way, by the number of the place: the dial, and the number that the link would have."""
        self._due = NEVER

    def _now(self) -> float:
        return self._field.now_ns / SECOND

    # --- the runner's side

    def begin(self) -> None:
        self._execute(self.core.begin(self._name, self._name, self._now()))
        self._settle()

    def tick(self) -> None:
        now = self._now()
        self._execute(self.core.tick(now, max(0.0, now - self._due)))
        self._settle()

    def receive(self, wire: int, message: Message) -> Message | None:
        kind, number = message[0], message[1]
        there = self._wires.source(wire)
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
                self._link_up(wire ^ 1, number, message[2], None)
            case MessageKind.REFUSED:
                self._dial_failed(there, number, message[2])
            case MessageKind.CLOSE if link is not None and link.number == number:
                self._gone(link)
        self._settle()
        return None

    def lost(self, wire: int) -> None:
        """The process there died: its kernel reset the link, or refused a dial."""
        there = self._wires.targets[wire]
        link = self._by_wire.get(there)
        if link is not None:
            self._gone(link)
        if there in self._dials:
            self._dial_failed(there, self._dials[there][1], 0)
        self._settle()

    def _settle(self) -> None:
        """Update after each input: a joining broker may have joined, and the core must be called again."""
        if self.membership.node_state is NodeState.JOINING:
            self._execute(self.core.settle(self._now()))
        self._due = due = self.core.next_deadline()
        self._field.wake(self._place, nanoseconds(due) + 1 if due < NEVER else NEVER_NS)

    # --- actions from outside

    def act(self, instructions: Sequence[Instruction]) -> None:
        """Execute the orders of `membership`, which was told something directly."""
        if instructions:
            self._execute(self.core.act(instructions, self._now()))
            self._settle()

    def drop(self, member: int) -> None:
        """Close the link to a member, if there is one."""
        self._drop(member)
        self._settle()

    def leave(self) -> None:
        """Say goodbye; the links stay until the process ends."""
        self._execute(self.core.leave(self._now()))
        self._settle()

    # --- links

    def _begin_dial(self, dial: Dial) -> None:
        target = self._field.numbers[dial.url]
        wire = self._wires.of[self._place].get(target)
        if wire is None:
            self.core.overlay.is_self(dial.url)
            self._execute(self.core.dial_failed(dial, self._now()))
            return
        number = self._field.next_serial()
        self._dials[target] = (dial, number)
        self._field.renew(wire)
        self._field.send(wire, (HELLO, number, self.membership.me))
        self._field.after(nanoseconds(self._dial_s), self._dial_timed_out, (target, number))

    def _dial_timed_out(self, what: tuple[int, int]) -> None:
        state = self._field.states[self._place]
        if self.ended or state is PlaceState.DOWN:
            return
        if state is PlaceState.PAUSED:
            self._field.after(PAUSED_NS, self._dial_timed_out, what)
            return
        self._dial_failed(*what, 0)
        self._settle()

    def _dial_failed(self, there: int, number: int, met: int) -> None:
        """``met`` is the member found there, even though this dial gives no link."""
        dial, current = self._dials.get(there, (None, 0))
        if dial is None or current != number:
            return
        del self._dials[there]
        if met:
            self.core.overlay.met(dial.url, met)
        self._execute(self.core.dial_failed(dial, self._now()))

    def _greeted(self, wire: int, number: int, hello: MemberRecord) -> Message:
        """Another broker dials. If two dial each other, the dial of the lower id stays."""
        there = self._wires.source(wire)
        link = self._by_wire.get(there)
        crossed = there in self._dials and self._identity.id < hello.id
        known = self.membership.record(hello.id)
        if crossed or (link is not None and known is not None and known.boot == hello.boot):
            return (REFUSED, number, self._identity.id)
        if link is not None:
            self._gone(link)  # of an earlier run
            self._settle()
        self._field.renew(wire ^ 1)
        return (WELCOME, number, self.membership.me)

    def _welcomed(self, wire: int, number: int, hello: MemberRecord) -> Message | None:
        there = self._wires.source(wire)
        dial, current = self._dials.get(there, (None, 0))
        if dial is None or current != number:
            return (CLOSE, number)
        del self._dials[there]
        self._field.send(wire ^ 1, (READY, number, self.membership.me))
        self._link_up(wire ^ 1, number, hello, dial)
        self._settle()
        return None

    def _link_up(self, wire: int, number: int, hello: MemberRecord, dial: Dial | None) -> None:
        there = self._wires.targets[wire]
        before = self._by_wire.get(there)
        if before is not None:
            self._forget(before)
        self.links[hello.id] = self._by_wire[there] = Link(wire, number, hello.id)
        self._execute(self.core.link_up(hello, dial, self._now()))

    def _forget(self, link: Link) -> None:
        if self.links.get(link.member) is link:
            del self.links[link.member]
        there = self._wires.targets[link.wire]
        if self._by_wire.get(there) is link:
            del self._by_wire[there]

    def _gone(self, link: Link) -> None:
        self._forget(link)
        self._execute(self.core.link_down(link.member, self._now()))

    def _drop(self, member: int) -> None:
        if (link := self.links.get(member)) is not None:
            self._field.send(link.wire, (CLOSE, link.number))
            self._gone(link)

    # --- messages on links

    def _said(self, link: Link, message: Message) -> Message | None:
        now = self._now()
        kind = message[0]
        if kind is MEMBERS:
            _, _, reply, records = message
            self._execute(self.core.heard(records, link.member, now))
            if reply:
                self._execute(self.core.asked_for_table(link.member))
            self._settle()
            return None
        _, number, round, digest = message
        answer = (ANSWER, number, round, self.membership.digest) if kind is SURVEY else None
        if kind is ANSWER:
            self.act(self.membership.answered(link.member, round, now))
        self.act(self.membership.heard_digest(link.member, digest, now))
        return answer

    # --- the core's orders, as `mesh.cluster.peering` executes them

    def _execute(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Survey(round, members):
                    self._ask(round, members)
                case Send(member, records, reply):
                    if (link := self.links.get(member)) is not None:
                        self._field.send(link.wire, (MEMBERS, link.number, reply, records))
                case Dial():
                    self._begin_dial(order)
                case MemberChanged(record, from_state, reason, _):
                    self._field.changed(self._place, record.name, str(from_state), str(record.state), reason)
                case SelfChanged(record):
                    self._identity.incarnation = record.incarnation
                case DropLink(member, _):
                    self._drop(member)
                case NodeChanged(_, NodeState.ISOLATED):
                    self._field.changed(self._place, self._name, "ready", "isolated", "silence")

    def _ask(self, round: int, members: tuple[int, ...]) -> None:
        digest = self.membership.digest
        for member in members:
            link = self.links.get(member)
            if link is not None:
                self._field.send(link.wire, (SURVEY, link.number, round, digest))

    def view(self) -> dict[str, str]:
        """The table: each member's state by name, including this broker."""
        return {record.name: str(record.state) for record in self.membership.records()}
