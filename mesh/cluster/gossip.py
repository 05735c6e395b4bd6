"""Gossip: what every link carries besides rounds and data, that is, members and the interest of brokers.

**Members.** `mesh.cluster.core` decides what to tell each link, and when. **Interest.** A link begins with
this broker's whole interest and continues with changes. The other side acknowledges its version, and asks for
the whole interest after it missed a change. A barrier is reached when all live brokers hold a version. Frames
with many patterns are sent and handled one a loop turn, so that rounds and dials run in between. They go out
at once and then at most every `INTEREST_PAUSE_S`, so that many changes make few frames. Members and interest
go ahead of data. **Durable interest** is handled by `mesh.cluster.durable_gossip`; its frames wait here for
their turn. **Leaving** is also news, but goes behind queued data, since its receiver may close the
connection. Each receiver answers GOODBYE.

`mesh.cluster.core` and `mesh.cluster.remote_interest` decide what is announced and held. This module sends it
on links and hands received frames to these machines.
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
"""Short, since subscribers wait for it. It only keeps a burst of subscriptions from becoming a burst of
frames."""
DEAD_NAMED_S: Final = 30.0
"""How long receipts name a broker that was linked to this one and is believed dead. It may only stand still,
and its subscribers miss what is published meanwhile."""
INTEREST_KINDS: Final = (int(LinkKind.INTEREST), int(LinkKind.INTEREST_CHANGE), *DURABLE_KINDS)
LONG_FRAME: Final = 2048
"""A frame of interest from this size counts as long work: one is sent or handled each loop turn."""
RECEIVED_MAX: Final = 32 << 20
"""Bytes of such frames that may wait on one link."""


class GossipHooks(Protocol):
    """Callbacks of the broker about the interest of others."""

    def interest_changed(self, member: int, change: Change) -> None:
        """Another broker's interest changed."""

    def absent_changed(self, names: tuple[str, ...]) -> None:
        """Names of live brokers without a link, or whose interest is not known."""

    def separation_over(self) -> None:
        """Others that lived on apart from this broker (`mesh.cluster.separation`) have its interest again."""

    def barrier_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        """All live brokers, except those named, know this broker's interest up to ``version``."""


class _Backlog:
    """Frames of one link that wait to be handled."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.size = 0


class Gossip:
    """Members and interest on the links of one broker.

    Args:
        links: the links that are up.
        execute: executes orders of the core.
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
        """The names of absent members that are dead."""
        self._separation = Separation()
        self._unchecked = False
        self._all_heard: asyncio.Future[None] | None = None

    # --- sending

    def send(self, order: Send) -> None:
        """Send records to one member if it still has a link."""
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
        """This broker also wants the ``added`` patterns, which are new or have a new role, and no longer the
        ``removed`` ones. Returns the version that includes the change."""
        before = self._interest.version
        version = self._interest.change_own(added, removed)
        if version != before:
            self._wants.ask()
        done = self._interest.wait(version, self._loop.time())
        if done is not None:
            self._loop.call_soon(self.reached, [done])
        return version

    def _send_interest(self) -> None:
        """Send one frame to each link that lacks something. The rest waits for other work."""
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
        """Report barriers that no longer wait."""
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
        """Report the members whose interest is missing now. If a joining broker waits for nothing else, it
        has joined."""
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
        """Stop naming members that have been dead for long enough, and report a separation that is over.
        Called once a round."""
        if self._dead and self._dead_of_late() != self._dead:
            self.check_absent()
        if self._separation.end(self._loop.time(), held=self._interest.is_held()):
            self._hooks.separation_over()

    def member_changed(self, change: MemberChanged) -> None:
        """The state of a member changed. A member that was dead and is alive in the same run was apart from
        this broker."""
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
        """A timer of this broker was so late. A broker that is silent for two rounds or more is dead to
        others."""
        options, others = self._core.membership.options, self._core.membership.live_ids()
        if others and late_s >= options.period_s + options.deadline_s:
            self._separation.begin(self._loop.time())

    @contextmanager
    def absence_unchecked(self) -> Iterator[None]:
        """Make `check_absent` do nothing meanwhile. The caller of this calls it afterwards."""
        self._unchecked = True
        try:
            yield
        finally:
            self._unchecked = False

    # --- receiving

    def received(self, link: Link, frame: bytes) -> None:
        """Handle one frame of the link itself. Raises `LinkError`."""
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
        """Short frames are handled at once unless others of the link wait; long ones one a loop turn."""
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
        """Handle one waiting frame, of the links in turn."""
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
        finally:  # a defect costs this frame; its version is missed, and the whole is asked for
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
            link.goodbye = True  # it waits for nobody that leaves as well
            self.check_heard()
        self._execute(self._core.heard(records, member, self._loop.time()))

    # --- leaving

    def stop(self) -> None:
        """Send no more interest."""
        self._wants.cancel()
        self._durable.stop()
        self._received.clear()

    async def wait_heard(self, timeout_s: float) -> None:
        """Return when all linked brokers have learned that this broker leaves, at the latest after
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
        """A link sent GOODBYE, or has ended."""
        future = self._all_heard
        if future is not None and not future.done() and all(link.goodbye for link in self._links.values()):
            future.set_result(None)


def _check_owner(owner: int, sender: int) -> None:
    """0 means that the peer does not name owners and announces its own interest."""
    if owner and not may_tell_interest(sender, owner):
        raise LinkError(f"interest of {owner:016x} came over the link of {sender:016x}, which is not its own")
