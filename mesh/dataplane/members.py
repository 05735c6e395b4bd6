"""The other brokers: members, links to them, and the next hop to each.

These three are the same only in a full mesh:

* a `Member` is a broker of the mesh. Its interest decides which messages and questions it gets.
* a `Neighbour` is a link that is up: its pipe, its outlet and its credit.
* the *next hop* of a member is the neighbour that takes the blocks for it. By default that is the member's
  own link; `Members.set_next_hop` names another. Several members behind one neighbour get one copy of a
  block.

A block for a member without a next hop is dropped and counted with the member (``no_link``).

**Messages in flight when a link ends.** Messages that waited here are lost and counted at once
(``link_down``). Messages that were handed to the connection may still arrive: a broker that stood still and
was believed dead reads them when it continues. Its grants of credit tell how many arrived at least. The rest
is *unresolved* until the other side reports over its next link how many messages it has received from here in
total (RECEIVED). Then the loss is counted exactly (``link_lost``). No time limit settles it, since a broker
may stand still for any time. All of it counts as lost when another run of that broker is linked, when the
other side cannot report what it received, or when the member has been forgotten.

Pure. Counters of former members stay in case they return.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from mesh.dataplane.backlogs import Budget, Buffer, LiveQueue
from mesh.dataplane.counters import LinkLoss, LinkStatistics, Tally
from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.outlets import Outlet, block_encoder
from mesh.dataplane.ports import Pipe, Port, Turn
from mesh.errors import SessionError
from mesh.wire.session_frames import (
    Kind,
    Leaving,
    ReceiveWindow,
    SendCredit,
    credit_frame,
    encode,
    messages_in,
)

MARKS_MAX: Final = 1024
"""Marks that one link may queue. A broker that leaves sends a few."""
GONE_MAX: Final = 1024
"""Former members whose counters are kept one by one."""


class Member:
    """One broker of the mesh, with the counters of all its links."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "drops",
        "id",
        "interest_known",
        "lost",
        "messages_in",
        "messages_out",
        "name",
        "neighbour",
        "next_hop",
        "unresolved",
        "unwanted",
    )

    def __init__(self, id: int, name: str) -> None:
        self.id = id
        self.name = name
        self.interest_known = False
        self.neighbour: Neighbour | None = None
        """Its own link while that is up."""
        self.next_hop: Neighbour | None = None
        """The neighbour that takes the blocks for it."""
        self.lost = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        """Bytes sent and received over earlier links."""
        self.drops: dict[str, int] = {}
        self.unresolved: Unresolved | None = None
        self.unwanted: dict[str, None] = {}
        """Patterns that it no longer wants and that are not removed yet."""

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """A member is a route's taker only without a next hop: the block is dropped and counted."""
        self.drop("no_link", messages)
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: HeldCredit | None, now: float
    ) -> None:
        """Never called, since `offer` drops every block."""

    def drop(self, reason: str, messages: int) -> None:
        if messages:
            self.drops[reason] = self.drops.get(reason, 0) + messages

    def statistics(self) -> LinkStatistics:
        out, size, dropped, queued = self.messages_out, self.bytes_out, sum(self.drops.values()), 0
        link = self.neighbour
        if link is not None:
            out += link.port.messages_out
            size += link.port.bytes_out
            dropped += link.outlet.dropped
            queued = link.outlet.backlog.messages
        return LinkStatistics(self.messages_in, out, self.bytes_in, size, dropped, self.lost, queued)

    def loss(self) -> LinkLoss:
        dropped = sum(self.drops.values()) - self.drops.get("no_link", 0)
        if self.neighbour is not None:
            dropped += self.neighbour.outlet.dropped
        return LinkLoss(dropped, 0 if self.unresolved is None else self.unresolved.at_most)


class Neighbour:
    """A link that is up. ``counts``: the other side reports what it received in its run ``boot``.
    ``durable``: it may be a home of durable subscriptions. ``marks``: it sends marks back."""

    __slots__ = (
        "_asked",
        "_asked_max",
        "_asked_since",
        "boot",
        "counts",
        "durable",
        "expected",
        "ingress",
        "lowest_heard",
        "lowest_told",
        "marks",
        "marks_owed",
        "member",
        "outlet",
        "over",
        "port",
        "rtt_s",
        "told",
    )

    def __init__(
        self,
        member: Member,
        pipe: Pipe,
        turn: Turn,
        options: ExchangeOptions,
        *,
        boot: int,
        rtt_s: float,
        counts: bool,
        durable: bool,
        marks: bool,
        now: float,
    ) -> None:
        self.member = member
        self.boot = boot
        self.port = Port(turn, pipe, options.link_unwritten_bytes_max, messages_in)
        backlog = LiveQueue(options.link_delivery, Budget(options.link_delivery.bytes_max), now)
        self.outlet = Outlet(self.port, SendCredit(), backlog, block_encoder(b"", 0))
        window = ReceiveWindow(options.link_messages, options.link_bytes)
        self.ingress = Ingress(self, window, turn.due, is_link=True)
        self.rtt_s = rtt_s
        self.counts = counts
        self.durable = durable
        self.marks = marks
        self.marks_owed: list[int] = []
        """Marks that go back once nothing waits here."""
        self.lowest_heard: OrderedDict[tuple[int, int], int] = OrderedDict()
        self.lowest_told: OrderedDict[tuple[int, int], int] = OrderedDict()
        """By publisher and boot: the lowest number that the publisher waits for, as either side said."""
        self.expected = 1
        """Sequence number of the next block."""
        self.told: int | None = None
        """Messages that the other side had received in total when this link came up."""
        self.over = False
        self._asked_max = options.link_unwritten_bytes_max
        self._asked = 0
        """Bytes of questions and answers sent since the connection was last seen empty."""
        self._asked_since = 0

    def send(self, frame: bytes) -> None:
        """Send a frame in order with the blocks."""
        if not self.over:
            self.port.send(frame)

    def ask(self, frame: bytes) -> bool:
        """Send a question or an answer, in order with the blocks, without credit. False if too many bytes of
        these are unwritten."""
        writes = self.port.writes
        if self._asked_since != writes:
            self._asked_since, self._asked = writes, 0
        if self._asked and self._asked + len(frame) > self._asked_max:
            return False
        self._asked += len(frame)
        self.send(frame)
        return True

    def send_control(self, frame: bytes) -> None:
        """Send a frame ahead of the blocks."""
        if not self.over:
            self.port.pipe.send_control(frame)

    def granted(self, messages: int, size: int, now: float) -> None:
        """The other side granted credit."""
        self.outlet.granted(messages, size, now)
        if self.marks_owed:
            self.send_marks()

    def owe_mark(self, stamp: int) -> None:
        """MARK came. Raises `SessionError` if too many wait at once."""
        if len(self.marks_owed) >= MARKS_MAX:
            raise SessionError(f"more than {MARKS_MAX} marks wait to be sent back")
        self.marks_owed.append(stamp)
        self.send_marks()

    def send_marks(self) -> None:
        """Send back the marks that are due, behind all blocks that wait here."""
        if not self.outlet.behind:
            owed, self.marks_owed = self.marks_owed, []
            for stamp in owed:
                self.send(encode(Kind.LEAVING, Leaving.MARKED, stamp, ""))


class Unresolved:
    """Messages that were in flight when links to a member ended."""

    __slots__ = ("at_most", "base", "boot", "written")

    def __init__(self, boot: int, base: int | None) -> None:
        self.boot = boot
        """The run of the member that these links led to. Another run counts from zero."""
        self.base = base
        """Messages that the member had received in total when the first of these links came up. None: not
        known."""
        self.written = 0
        """Messages handed to these links."""
        self.at_most = 0
        """How many of them may be lost."""

    def lost(self, received: int) -> int:
        """Messages lost, if that run of the member has received this total by now."""
        if self.base is None:
            return self.at_most
        return min(self.at_most, max(0, self.written - (received - self.base)))


class Members:
    """All other brokers by id."""

    def __init__(self, turn: Turn, options: ExchangeOptions, tally: Tally) -> None:
        self.table: dict[int, Member] = {}
        self.live: dict[int, str] = {}
        """Names of the members that are alive or suspect."""
        self._turn = turn
        self._options = options
        self._tally = tally
        self._links: dict[Pipe, Neighbour] = {}
        self._gone: dict[int, Member] = {}

    @staticmethod
    def taker_of(member: Member) -> Outlet | Member:
        """The outlet that takes the blocks for a member."""
        return member if member.next_hop is None else member.next_hop.outlet

    def get(self, id: int) -> Member:
        """The member; added if it was unknown."""
        member = self.table.get(id)
        if member is None:
            name = self.live.get(id, f"{id:016x}")
            member = self._gone.pop(id, None) or Member(id, name)
            member.name = name
            self.table[id] = member
        return member

    def neighbours(self) -> Iterable[Neighbour]:
        """All links that are up."""
        return self._links.values()

    def linked_by(self, pipe: Pipe) -> Neighbour | None:
        return self._links.get(pipe)

    def set_live(self, live: Iterable[tuple[int, str]]) -> list[Member]:
        """Replace the names of live and suspect members. Returns the members to `forget`."""
        self.live.clear()
        self.live.update(live)
        for id, name in self.live.items():
            if id in self.table:
                self.table[id].name = name
        return [m for m in self.table.values() if m.id not in self.live and m.neighbour is None]

    def link_up(
        self,
        id: int,
        name: str,
        pipe: Pipe,
        *,
        boot: int,
        rtt_s: float,
        counts: bool,
        durable: bool,
        marks: bool,
        now: float,
    ) -> Neighbour:
        """A link is admitted; the one before has ended."""
        member = self.get(id)
        member.name = name
        link = Neighbour(
            member,
            pipe,
            self._turn,
            self._options,
            boot=boot,
            rtt_s=rtt_s,
            counts=counts,
            durable=durable,
            marks=marks,
            now=now,
        )
        self._links[pipe] = link
        member.neighbour = member.next_hop = link
        unresolved = member.unresolved
        if unresolved is not None and not (counts and boot == unresolved.boot):
            self._settle(member, unresolved.at_most)
        if counts:  # before the credit, so that the other side sends nothing before it knows this
            link.send_control(encode(Kind.RECEIVED, member.messages_in))
        window = link.ingress.window
        link.send_control(credit_frame(0, window.messages, window.bytes))
        return link

    def link_down(self, link: Neighbour) -> None:
        """A link has ended."""
        member, port = link.member, link.port
        link.over = True
        waiting = link.outlet.close()
        kept, _ = port.close(flushed=True)
        del self._links[port.pipe]
        member.drop("slow_link", link.outlet.dropped)
        member.drop("link_down", waiting + kept)
        member.messages_out += port.messages_out
        member.bytes_out += port.bytes_out
        at_most = min(port.messages_out, max(0, link.outlet.under_way - kept))
        unresolved = member.unresolved
        if not link.counts:
            member.drop("link_lost", at_most)
        elif unresolved is None and at_most:
            unresolved = member.unresolved = Unresolved(link.boot, link.told)
        if unresolved is not None:
            unresolved.written += port.messages_out
            unresolved.at_most += at_most
        for other in self.table.values():
            if other.next_hop is link:
                other.next_hop = None
        member.neighbour = None

    def received(self, link: Neighbour, total: int) -> None:
        """RECEIVED: the messages that the other side has received from here in total, before this link."""
        link.told = total
        unresolved = link.member.unresolved
        if unresolved is not None:
            self._settle(link.member, unresolved.lost(total))

    def set_next_hop(self, id: int, by: int) -> None:
        """Route blocks for a member over another's link."""
        self.get(id).next_hop = self.get(by).neighbour

    def forget(self, member: Member) -> None:
        """It is no longer a member."""
        member.interest_known = False
        member.next_hop = None
        del self.table[member.id]
        self._gone[member.id] = member
        if len(self._gone) > GONE_MAX:
            self._retire(self._gone.pop(next(iter(self._gone))))

    def all(self) -> list[Member]:
        """All members, former ones too."""
        return [*self.table.values(), *self._gone.values()]

    def statistics(self, id: int) -> LinkStatistics:
        """Statistics of the link to one broker; zeros if it was never linked."""
        member = self.table.get(id) or self._gone.get(id)
        return member.statistics() if member is not None else LinkStatistics(0, 0, 0, 0, 0, 0, 0)

    def losses(self) -> dict[int, LinkLoss]:
        """Losses by member, for those that lost anything."""
        found = {member.id: member.loss() for member in self.all()}
        return {id: loss for id, loss in found.items() if any(loss)}

    @staticmethod
    def _settle(member: Member, lost: int) -> None:
        """The fate of the messages in flight is known."""
        member.unresolved = None
        member.drop("link_lost", lost)

    def _retire(self, member: Member) -> None:
        tally = self._tally
        if member.unresolved is not None:
            self._settle(member, member.unresolved.at_most)
        for reason, count in member.drops.items():
            tally.drop(reason, count)
        tally.messages_in += member.messages_in
        tally.bytes_in += member.bytes_in
        tally.messages_out += member.messages_out
        tally.bytes_out += member.bytes_out
