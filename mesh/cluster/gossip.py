"""What goes to every link besides rounds and data: who is in the mesh, and what each broker wants.

**Members.** What is told to which link, and when, is decided by `mesh.cluster.core`. **Interest.** A link
begins with all that this broker wants and goes on with changes; the other side says which version it holds,
and asks for the whole when it missed one. A barrier is reached when all live brokers hold a version. Frames
with many patterns are sent and taken one a loop turn, so that rounds and dials come between them. They go out
at once and then at most every `INTEREST_PAUSE_S`, so that many changes are few frames. Both go ahead of data.
**Durable interest** is said and heard by `mesh.cluster.durable_gossip`; its frames wait here for their turn.
**Leaving** is news too, but goes behind what is queued, since who hears it may hang up; each that has heard
says GOODBYE.

What is told and held is decided by `mesh.cluster.core` and `mesh.cluster.remote_interest`. Here it is put on
links, and what comes from them is handed to these machines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from mesh.cluster.barriers import NAME_SHOWN_MAX, BarrierDone
from mesh.cluster.core import ClusterCore, Order, Send
from mesh.cluster.durable_gossip import KINDS as DURABLE_KINDS
from mesh.cluster.durable_gossip import DurableGossip
from mesh.cluster.full_mesh import may_tell_interest
from mesh.cluster.link import Link
from mesh.cluster.membership import MemberChanged, MemberRecord, NodeState, State
from mesh.cluster.paced_call import PacedCall
from mesh.cluster.remote_interest import Change, InterestTable, Pattern
from mesh.cluster.separation import Separation
from mesh.errors import LinkError
from mesh.wire.capabilities import INTEREST_OWNER
from mesh.wire.link_frames import LinkKind, decode, encode, members_frames

INTEREST_PAUSE_S: Final = 0.005
"""Subscribers wait for it, so it is shorter; it only keeps a storm of subscriptions from being a storm of
frames."""
DEAD_NAMED_S: Final = 30.0
"""How long receipts name a broker that this one was linked to and holds for dead. It may only stand still,
and its subscribers miss what is published meanwhile."""
INTEREST_KINDS: Final = (int(LinkKind.INTEREST), int(LinkKind.INTEREST_CHANGE), *DURABLE_KINDS)
LONG_FRAME: Final = 2048
"""Bytes of a frame of interest from which on it counts as long work: one is sent or taken a loop turn."""
RECEIVED_MAX: Final = 32 << 20
"""Bytes of such frames that one link may have waiting."""


class GossipHooks(Protocol):
    """What the broker hears of the others' interest."""

    def interest_changed(self, member: int, change: Change) -> None:
        """What another broker wants differently."""

    def absent_changed(self, names: tuple[str, ...]) -> None:
        """Live brokers without a link, or whose interest is not known."""

    def separation_over(self) -> None:
        """Others lived on apart from this broker (`mesh.cluster.separation`), and have its interest again."""

    def barrier_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        """All live brokers but those named know this broker's interest up to ``version``."""


class _Backlog:
    """Frames of one link that wait to be taken."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.size = 0


class Gossip:
    """See the module.

    Args:
        links: those that are up.
        execute: does what the core orders.
        fail: ends a link whose peer broke a rule.
        met: names and URLs of the peers of an earlier run.
    """

    def __init__(
        self,
        core: ClusterCore,
        interest: InterestTable,
        durable: DurableGossip,
        links: Mapping[int, Link],
        *,
        execute: Callable[[list[Order]], None],
        fail: Callable[[Link, LinkError], None],
        met: Collection[str],
        hooks: GossipHooks,
    ) -> None:
        self._core = core
        self._interest = interest
        self._durable = durable
        self._met = met
        self._links = links
        self._execute = execute
        self._fail = fail
        self._hooks = hooks
        self._received: dict[Link, _Backlog] = {}
        """Frames of interest that wait for their turn."""
        self._taking: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._wants = PacedCall(self._send_interest, INTEREST_PAUSE_S)
        self._absent: tuple[str, ...] = ()
        self._dead: tuple[str, ...] = ()
        """Those of them that are dead."""
        self._separation = Separation()
        self._unchecked = False
        self._all_heard: asyncio.Future[None] | None = None

    # --- saying

    def send(self, order: Send) -> None:
        """Records to one member, if it is linked still."""
        link = self._links.get(order.member)
        if link is None:
            return
        frames = members_frames(list(order.records), reply=order.reply)
        if not order.last:
            link.say(frames)
            return
        for frame in frames:
            if not link.bus.send(frame):
                link.bus.send_control(frame)

    def change_interest(self, added: Iterable[Pattern], removed: Iterable[str]) -> int:
        """This broker wants these patterns too, or in another role, and those no longer; returns the version
        that holds it."""
        before = self._interest.version
        version = self._interest.change_own(added, removed)
        if version != before:
            self._wants.ask()
        done = self._interest.wait(version, self._loop.time())
        if done is not None:
            self._loop.call_soon(self.reached, [done])
        return version

    def _send_interest(self) -> None:
        """One frame to each link that has not been sent all; what is left waits for other work."""
        for member in self._interest.behind():
            link = self._links.get(member)
            frame = self._interest.pending(member)
            if link is not None and frame is not None:
                link.say([frame])
                if len(frame) > LONG_FRAME:
                    break
        if self._interest.behind():
            self._wants.ask_soon()

    def reached(self, done: list[BarrierDone]) -> None:
        """Barriers that need not wait any longer."""
        for barrier in done:
            self._hooks.barrier_reached(barrier.version, barrier.unreached)

    # --- links

    def link_up(self, link: Link) -> None:
        member = link.peer.id
        self._interest.link_up(member, link.peer.boot, names_owner=link.agreed.has(INTEREST_OWNER))
        frame = self._interest.pending(member)
        if frame is not None:
            link.say([frame])
        if self._interest.behind():
            self._wants.ask_soon()
        self._durable.link_up(link)

    def link_down(self, link: Link) -> None:
        self._interest.link_down(link.peer.id)
        self._durable.link_down(link.peer.id)
        self._received.pop(link, None)

    def check_absent(self) -> None:
        """Say whose interest is missing now. If nothing is missing that a joining broker waits for, it has
        joined."""
        if self._unchecked:
            return
        is_joining = self._core.membership.node_state is NodeState.JOINING
        unheard = self._core.joining.unheard
        self.reached(self._interest.set_unheard(unheard, wait=is_joining))
        holds, met = self._core.joining.holds, self._met
        strange = unheard if holds else [each for each in unheard if each not in met]
        self._durable.set_unheard(unheard, strange, wait=is_joining)
        missing = self._interest.absent()
        self._dead = self._dead_of_late()
        absent = (*missing, *self._dead)
        if absent != self._absent:
            self._absent = absent
            self._hooks.absent_changed(absent)
        if is_joining:
            held = not missing and not self._durable.unknown()
            self._execute(self._core.settle(self._loop.time(), interest_held=held))

    def check_round(self) -> None:
        """Stop naming members that have been dead for long enough, and tell of a separation that is over.
        Called once a round."""
        if self._dead and self._dead_of_late() != self._dead:
            self.check_absent()
        if self._separation.end(self._loop.time(), held=self._interest.is_held()):
            self._hooks.separation_over()

    def member_changed(self, change: MemberChanged) -> None:
        """A member is in another state: one that was dead and lives in the same run was apart from this
        broker."""
        if change.from_state is State.DEAD and change.record.in_view and change.reason != "restarted":
            self._separation.begin(self._loop.time())

    def _dead_of_late(self) -> tuple[str, ...]:
        now, members = self._loop.time(), self._core.membership.roster.members.values()
        return tuple(
            member.record.name[:NAME_SHOWN_MAX]
            for member in members
            if member.record.state is State.DEAD and member.seen_linked and now - member.since < DEAD_NAMED_S
        )

    def woke(self, late_s: float) -> None:
        """A timer of this broker came so late: a broker that is silent for two rounds or more is dead to
        others."""
        options, others = self._core.membership.options, self._core.membership.live_ids()
        if others and late_s >= options.period_s + options.deadline_s:
            self._separation.begin(self._loop.time())

    @contextmanager
    def absence_unchecked(self) -> Iterator[None]:
        """Let `check_absent` do nothing; the caller of this calls it afterwards."""
        self._unchecked = True
        try:
            yield
        finally:
            self._unchecked = False

    # --- hearing

    def received(self, link: Link, frame: bytes) -> None:
        """One frame of the link itself. Raises `LinkError`."""
        if frame[1] in INTEREST_KINDS:
            self._interest_received(link, frame)
            return
        message: list[Any] = decode(frame)
        match message:
            case [LinkKind.MEMBERS, reply, records]:
                self._members_heard(link, records)
                if reply:
                    self._execute(self._core.asked_for_table(link.peer.id))
            case [LinkKind.INTEREST_HELD, version]:
                self.reached(self._interest.acknowledged(link.peer.id, version))
            case [LinkKind.INTEREST_WANTED]:
                self._interest.wanted(link.peer.id)
                self._wants.ask_soon()
            case [LinkKind.GOODBYE]:
                link.goodbye = True
                self.check_heard()
            case [kind, *_]:
                raise LinkError(f"{LinkKind(kind).name} is not allowed on a link that is up")

    def _interest_received(self, link: Link, frame: bytes) -> None:
        """Short frames are taken at once, unless others of the link wait; long ones one a loop turn."""
        waiting = self._received.get(link)
        if waiting is None and len(frame) <= LONG_FRAME:
            self._take_interest(link, frame)
            return
        if waiting is None:
            waiting = self._received[link] = _Backlog()
        waiting.frames.append(frame)
        waiting.size += len(frame)
        if waiting.size > RECEIVED_MAX:
            raise LinkError(f"more than {RECEIVED_MAX} bytes of interest wait to be taken")
        if self._taking is None:
            self._taking = self._loop.call_soon(self._take_next)

    def _take_next(self) -> None:
        """One frame that waits, of the links in turn."""
        self._taking = None
        if not self._received:
            return
        link, waiting = next(iter(self._received.items()))
        del self._received[link]
        frame = waiting.frames.popleft()
        waiting.size -= len(frame)
        try:
            if not link.ended:
                self._take_interest(link, frame)
        except LinkError as error:
            self._fail(link, error)
        finally:  # a defect costs this frame; its version is missed, and the whole asked for
            if waiting.frames and not link.ended:
                self._received[link] = waiting
            if self._received:
                self._taking = self._loop.call_soon(self._take_next)

    def _take_interest(self, link: Link, frame: bytes) -> None:
        if frame[1] in DURABLE_KINDS:
            self._durable.received(link, decode(frame))
            if self._core.membership.node_state is NodeState.JOINING:
                self.check_absent()
            return
        member, interest = link.peer.id, self._interest
        match decode(frame):
            case [LinkKind.INTEREST, version, part, last, patterns, owner]:
                _check_owner(owner, member)
                change = interest.whole_received(member, version, part, bool(last), patterns)
            case [_, base, version, added, removed, owner]:
                _check_owner(owner, member)
                change = interest.change_received(member, base, version, added, removed)
                if change is None and interest.ask(member):
                    link.say([encode(LinkKind.INTEREST_WANTED)])
        if change is None:
            return
        self._hooks.interest_changed(member, change)
        if change.complete:
            link.say([encode(LinkKind.INTEREST_HELD, interest.held_version(member))])
            self.check_absent()

    def _members_heard(self, link: Link, records: list[MemberRecord]) -> None:
        member, me = link.peer.id, self._core.membership.me
        if any(r.id == me.id and r.boot == me.boot and r.state is State.DEAD for r in records):
            self._separation.begin(self._loop.time())
        if any(record.id == member and record.state is State.LEFT for record in records):
            link.say([encode(LinkKind.GOODBYE)])
            link.goodbye = True  # it waits for nobody who leaves as well
            self.check_heard()
        self._execute(self._core.heard(records, member, self._loop.time()))

    # --- leaving

    def stop(self) -> None:
        """No interest goes out any more."""
        self._wants.cancel()
        self._durable.stop()
        self._received.clear()

    async def wait_heard(self, timeout_s: float) -> None:
        """Return when all that are linked have heard that this broker leaves, at the latest after
        ``timeout_s``."""
        if all(link.goodbye for link in self._links.values()):
            return
        self._all_heard = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_heard
        except TimeoutError:
            pass

    def check_heard(self) -> None:
        """A link said GOODBYE, or is gone."""
        future = self._all_heard
        if future is not None and not future.done() and all(link.goodbye for link in self._links.values()):
            future.set_result(None)


def _check_owner(owner: int, sender: int) -> None:
    """0 is a peer that does not name owners, and tells its own interest."""
    if owner and not may_tell_interest(sender, owner):
        raise LinkError(f"interest of {owner:016x} came over the link of {sender:016x}, which is not its own")
