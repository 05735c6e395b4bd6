"""The other brokers: the shell that gives the cluster's pure core its links.

`mesh.cluster.core` gets what arrives on links, and `Peering._execute` executes its orders. `PeeringHooks`
tell the broker about changes. These modules do the work on links:

* `mesh.cluster.links`: which connections make a link, which peers are admitted, when a link ends;
* `mesh.cluster.link_dialer`: attempts to make links where the overlay says;
* `mesh.cluster.heartbeat`: surveys and their answers;
* `mesh.cluster.bus_probe`: checks that the Bus, which does not carry surveys, is alive;
* `mesh.cluster.gossip`: tables, changes of members and of interest, and their acknowledgements;
* `mesh.cluster.durable_gossip`: durable subscriptions, which outlive their homes;
* `mesh.cluster.own_address`: the address of this broker for others;
* `mesh.cluster.view`: the state that others may read.

This module joins them: one timer, the order in which each learns about a link, and the phases of a broker
from joining to leaving. Frames of sessions (kinds 0 to 31) are passed on unopened. One of them, PING, is also
sent here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from mesh.cluster.bus_probe import SILENT_ROUNDS_MAX
from mesh.cluster.core import ClusterCore, JoiningChanged, KnownPeerLike, MayRoute, Order, Send
from mesh.cluster.durable_gossip import DurableGossip, DurableHooks
from mesh.cluster.durable_table import HomeTable
from mesh.cluster.gossip import Gossip, GossipHooks
from mesh.cluster.heartbeat import RoundHooks, Rounds
from mesh.cluster.link import Link
from mesh.cluster.link_dialer import LinkDialer
from mesh.cluster.links import LinkManager
from mesh.cluster.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberRecord,
    MembershipOptions,
    NodeChanged,
    NodeState,
    SelfChanged,
    State,
    Survey,
)
from mesh.cluster.overlay import Dial
from mesh.cluster.own_address import OwnAddress
from mesh.cluster.remote_interest import InterestTable, Pattern
from mesh.cluster.standstill import Standstill
from mesh.cluster.view import PeeringView
from mesh.environment import Environment
from mesh.errors import LinkError
from mesh.wire.capabilities import Agreed
from mesh.wire.durable_frames import KIND_MAX, KIND_MIN
from mesh.wire.link_frames import LINK_KIND_MAX, SESSION_KIND_MAX, LinkKind, decode
from mesh.wire.session_frames import Kind, encode
from protocols import Pipe, RawSocket, TlsConfig

FAULT_PAUSE_S: Final = 0.1
"""Pause after a timer that raised."""
REPORTS_MAX: Final = 100
"""Faults reported in a run. Further ones are only counted, so that they cannot fill a disk."""
LEAVE_S: Final = 1.0
"""How long a leaving broker waits until the others have learned about it."""


class IdentityLike(Protocol):
    """The identity of this broker, such as `mesh.broker.identity.Identity`."""

    @property
    def id(self) -> int: ...
    @property
    def boot(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def peers(self) -> Sequence[KnownPeerLike]: ...


class PeeringHooks(GossipHooks, DurableHooks, RoundHooks, Protocol):
    """Callbacks of the broker, including those about interest (`GossipHooks`, `DurableHooks`) and rounds
    (`RoundHooks`). All are synchronous; none may raise."""

    def member_changed(self, record: MemberRecord, from_state: State, reason: str, via: int) -> None:
        """Another broker changed its state, or began a new run."""

    def live_changed(self, live: list[tuple[int, str]]) -> None:
        """Ids and names of the others that are alive or suspect."""

    def link_up(self, member: int, boot: int, name: str, pipe: Pipe, rtt_s: float, agreed: Agreed) -> None:
        """A link to the run ``boot`` of a member is admitted. The `link_down` of a link that it replaces
        comes first.

        ``pipe`` is its Bus, free for session frames from now on. ``agreed`` is the version and the
        capabilities that both sides use.
        """

    def link_down(self, member: int, reason: str, dialed: bool) -> None: ...

    def link_frames(self, member: int, frames: list[bytes]) -> None:
        """Session frames of kinds 0 to 31, unopened."""

    def link_writable(self, pipe: Pipe) -> None:
        """A Bus pipe that refused frames has room again."""

    def self_changed(self, record: MemberRecord) -> None:
        """This broker's own record changed: a greater incarnation, another address, or it left."""

    def state_changed(self, state: NodeState) -> None:
        """The state of this broker: joining, ready, isolated or leaving."""

    def may_route(self) -> None:
        """Published messages can be routed from now on: all interest is known, or `absent_changed` has named
        the missing brokers. Called once if this broker began as joining, and after each
        `Peering.stood_still`."""


class Peering:
    """The other brokers of one broker. Make it inside a running event loop, let its `sockets` listen, then
    call `start`.

    Args:
        identity: id, boot, incarnation and the peers of an earlier run; only read.
        tls: used to dial TLS addresses of brokers.
        admit: called for each broker that dials; raises `PipeRefused` for one at the wrong address.
        join: URLs of brokers to join.
        advertise: the URL that others are told. None: one of the URLs listened on or, for a wildcard, the
            local address of the first link.
        durable: the durable subscriptions of each home, as an earlier run kept them.
        hooks: callbacks of the broker.
    """

    def __init__(
        self,
        *,
        identity: IdentityLike,
        name: str,
        mesh: str,
        mesh_key: bytes | None = None,
        tls: TlsConfig | None = None,
        admit: Callable[[Pipe], None],
        join: Sequence[str] = (),
        advertise: str | None = None,
        period_s: float = 1.0,
        deadline_s: float = 0.5,
        environment: Environment,
        durable: Mapping[int, HomeTable] | None = None,
        hooks: PeeringHooks,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._clock = loop.time
        self._hooks = hooks
        rng = environment.rng
        me = MemberRecord(
            identity.id, identity.incarnation, State.ALIVE, identity.boot, name, environment.host, "", ""
        )
        self.core = core = ClusterCore(
            me,
            options=MembershipOptions(period_s=period_s, deadline_s=deadline_s),
            join=join,
            known=identity.peers,
            rng=rng,
            now=loop.time(),
        )
        self.membership, self.overlay, self.joining = core.membership, core.overlay, core.joining
        self.interest = InterestTable(me.id)
        self._standstill = Standstill()
        self.rounds = Rounds(self.membership, self.interest, act=self._act, hooks=hooks)
        dial_s = max(1.0, period_s)
        self.link_manager = LinkManager(
            mesh=mesh,
            mesh_key=mesh_key,
            tls=tls,
            admit=admit,
            dial_s=dial_s,
            membership=self.membership,
            overlay=self.overlay,
            environment=environment,
            owner=self,
            surveys=self.rounds.surveys_received,
            answers=self.rounds.answers_received,
        )
        self.dialer = LinkDialer(self.link_manager, self.overlay, dial_s=dial_s, failed=self._dial_failed)
        self._links = self.link_manager.up
        self.durable = DurableGossip(
            me.id, name, self._links, wall_time=environment.wall_time, tables=durable or {}, hooks=hooks
        )
        self.gossip = Gossip(
            core,
            self.interest,
            self.durable,
            self._links,
            execute=self._execute,
            fail=self.link_manager.broke_a_rule,
            met={text for peer in identity.peers for text in (peer.name, peer.url)},
            hooks=hooks,
        )
        self.view = PeeringView(core, self.interest, self.rounds, self.link_manager, self.dialer)
        self._address = OwnAddress(advertise)
        self._client_address = OwnAddress(None)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        """When it is due: uvloop's handle of one that is due at once cannot tell."""
        self._started = False
        self._closed = False
        self.faults = 0
        """Timers and orders that raised, since the start."""

    # --- state for the broker

    @property
    def sockets(self) -> list[RawSocket]:
        """Sockets for the broker's listeners."""
        return self.link_manager.sockets

    @property
    def url(self) -> str:
        """The URL at which others are told to find this broker. Its loopback address while a wildcard has no
        other."""
        return self.membership.me.peer_url or self._address.on_loopback()

    @property
    def client_url(self) -> str:
        """The URL of this broker for clients."""
        return self.membership.me.client_url or self._client_address.on_loopback()

    @property
    def state(self) -> NodeState:
        return self.membership.node_state

    @property
    def incarnation(self) -> int:
        return self.membership.me.incarnation

    def live(self) -> list[tuple[int, str]]:
        """Ids and names of the others that are alive or suspect."""
        return [(record.id, record.name) for record in self.membership.live()]

    def client_urls(self) -> list[str]:
        """URLs of the other live brokers for clients. They are ordered by id from this broker's on, so that
        each broker of a large mesh begins with different ones."""
        me = self.membership.me.id
        records = sorted(self.membership.live(), key=lambda record: (record.id < me, record.id))
        return [each.client_url for each in records if each.client_url and each.state is State.ALIVE]

    # --- calls of the broker

    async def start(self, urls: Sequence[str], client_urls: Sequence[str]) -> None:
        """Begin. ``urls`` and ``client_urls`` are the URLs listened on for brokers and for clients, as bound.
        Dials the brokers to join; does not wait."""
        peer_url = self._address.listening(urls)
        if urls == client_urls:
            self._client_address = self._address
            client_url = peer_url
        else:
            client_url = self._client_address.listening(client_urls)
        self.link_manager.open()
        self._started = True
        self.durable.identify(client_url)
        self._execute(self.core.begin(peer_url, client_url, self._clock()))

    def change_interest(self, added: Iterable[Pattern], removed: Iterable[str] = ()) -> int:
        """Also want the ``added`` (pattern, role) pairs, which are new or have a new role, and no longer the
        ``removed`` patterns.

        Returns the version that includes the change. `PeeringHooks.barrier_reached` follows in a later loop
        turn, even if nothing changed.
        """
        version = self.gossip.change_interest(added, removed)
        self._arm()
        return version

    def drop_link(self, member: int, reason: str) -> None:
        """The session on a link broke a rule. The link ends and is dialled again."""
        self.link_manager.drop(member, reason)

    def stood_still(self) -> bool:
        """This broker did nothing for so long that others may believe it dead. True if published messages
        have to wait for `PeeringHooks.may_route`."""
        membership, links = self.membership, self._links
        if membership.node_state is NodeState.LEAVING or not membership.live_ids():
            return False
        self._standstill.begin(links, self._clock())
        for link in links.values():
            self._ask_again(link)
        self._arm()
        return True

    def _ask_again(self, link: Link) -> None:
        link.say([encode(Kind.PING, self._standstill.stamp)])

    def _check_standstill(self, now: float) -> None:
        live, missing = self.membership.live_ids(), bool(self.interest.absent())
        if self._standstill.end(now, live=live, missing=missing) and not self.joining.holds:
            self._hooks.may_route()

    async def leave(self) -> None:
        """Tell all others that this broker leaves, wait up to `LEAVE_S` for their answers, and hang up.

        If cancelled, it waits no longer; queued frames are still sent.
        """
        if self.membership.node_state is NodeState.LEAVING:
            return
        self.gossip.stop()
        self._execute(self.core.leave(self._clock()))
        try:
            await self.gossip.wait_heard(LEAVE_S)
            await self.dialer.stop()
        finally:
            self.link_manager.hang_up("left", flush=True)

    async def aclose(self) -> None:
        """Release everything, without a goodbye if `leave` was not called."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.gossip.stop()
        self.link_manager.shut()
        await self.dialer.stop()
        await self.link_manager.aclose()

    # --- the core's orders

    def _act(self, instructions: list[Instruction]) -> None:
        """Execute the instructions that direct calls of `membership` returned."""
        if instructions:
            self._execute(self.core.act(instructions, self._clock()))

    def _execute(self, orders: list[Order]) -> None:
        """Execute all orders: the core relies on each, such as a dial, and gives it once."""
        for order in orders:
            try:
                self._execute_one(order)
            except Exception as error:  # a defect of a machine or a hook
                self._report(error)
        self._arm()

    def _execute_one(self, order: Order) -> None:
        match order:
            case Survey(round, members):
                links = [self._links[id] for id in members if id in self._links]
                self.rounds.ask(round, links)
                self.gossip.check_round()
                self._keep_alive(links)
            case Send():
                self.gossip.send(order)
            case Dial():
                if not self._closed:
                    self.dialer.begin(order)
            case MemberChanged(record, from_state, reason, via):
                self.gossip.member_changed(order)
                self._hooks.member_changed(record, from_state, reason, via)
                self._live_changed()
            case MemberForgotten(record):
                self.link_manager.forget(record.id)
                self.dialer.forget(record.peer_url)
            case SelfChanged(record):
                self.durable.identify(record.client_url)
                self._hooks.self_changed(record)
            case DropLink(member, reason):
                link = self._links.get(member)
                if link is not None:
                    self.link_manager.end(link, reason, flush=True)
            case NodeChanged(_, state):
                self._hooks.state_changed(state)
                self.gossip.check_absent()
            case JoiningChanged():
                self.gossip.check_absent()
            case MayRoute():
                self.gossip.check_absent()
                if not self._standstill.waits:
                    self._hooks.may_route()

    def _keep_alive(self, links: list[Link]) -> None:
        """Ask for a sign of life on each Bus without one. A session answers PING."""
        for link in links:
            if link.bus_probe.round(link.bus.taken, link.bus.bytes_in):
                link.say([encode(Kind.PING, 0)])
            elif link.bus_probe.dead:
                reason = f"nothing came on its data connection in {SILENT_ROUNDS_MAX} rounds"
                self.link_manager.end(link, reason)

    def _dial_failed(self, dial: Dial) -> None:
        self._execute(self.core.dial_failed(dial, self._clock()))

    def _live_changed(self) -> None:
        live = self.live()
        self.gossip.reached(self.interest.members(dict(live)))
        self.durable.members(dict(live))
        self._hooks.live_changed(live)
        self.gossip.check_absent()

    def _arm(self) -> None:
        if self._closed or not self._started:
            return
        due = min(self.core.next_deadline(), self.interest.next_deadline(), self._standstill.next_deadline())
        timer = self._timer
        if timer is not None:
            if self._timer_due <= due:
                return  # a timer that fires early finds nothing due and is set again
            timer.cancel()
            self._timer = None
        if due < float("inf"):
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        now = self._clock()
        late_s = now - self._timer_due if self._timer is not None else 0.0
        self._timer = None
        try:
            self.gossip.reached(self.interest.tick(now))
            self.gossip.woke(late_s)
            if self._standstill.waits:
                self._check_standstill(now)
            self._execute(self.core.tick(now, late_s))
        except Exception as error:  # a defect of a machine or a hook must not end the rounds
            self._report(error)
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = now + FAULT_PAUSE_S
            self._timer = self._loop.call_at(self._timer_due, self._tick)

    def _report(self, error: Exception) -> None:
        self.faults += 1
        if self.faults <= REPORTS_MAX:
            last = "; further ones are only counted" if self.faults == REPORTS_MAX else ""
            message = f"fault {self.faults} in the work of rounds and links, which continues{last}"
            self._loop.call_exception_handler({"message": message, "exception": error})

    # --- reports of links: `mesh.cluster.links.LinkOwner`

    def connected(self, bus: Pipe) -> None:
        """The connection's local address may be the one to advertise."""
        me = self.membership.me
        peer_url = self._address.learned(bus.local_address, me.peer_url)
        client_url = self._client_address.learned(bus.local_address, me.client_url)
        if peer_url or client_url:
            self._act(self.membership.set_urls(peer_url or me.peer_url, client_url or me.client_url))

    def link_up(self, link: Link) -> None:
        hello = link.peer
        self.gossip.link_up(link)
        if self._standstill.waits:
            self._standstill.linked(hello.id, self._clock())
        with self.gossip.absence_unchecked():  # it may be all that was missing, and is not reported yet
            self._execute(self.core.link_up(hello.record, link.dial, self._clock()))
            if not link.ended:
                self._hooks.link_up(hello.id, hello.boot, hello.name, link.bus, link.rtt_s, link.agreed)
                if self._standstill.waits:
                    self._ask_again(link)
        self.gossip.check_absent()

    def link_down(self, link: Link, reason: str, *, replaced: bool) -> None:
        member = link.peer.id
        self._hooks.link_down(member, reason, link.bus.dialed)
        if replaced:
            return
        self.gossip.link_down(link)
        self._execute(self.core.link_down(member, self._clock()))
        self.gossip.check_absent()
        self.gossip.check_heard()

    def link_frames(self, link: Link, frames: list[bytes]) -> None:
        """The link's own frames are news; those of the session are the broker's. Raises `LinkError`."""
        session = []
        for frame in frames:
            if len(frame) < 2 or frame[0] & 0xF0 != 0x90:
                raise LinkError(f"a frame of {len(frame)} bytes on a link is not an array with a kind")
            if frame[1] <= SESSION_KIND_MAX or KIND_MIN <= frame[1] <= KIND_MAX:
                session.append(frame)
            elif frame[1] > LINK_KIND_MAX:
                raise LinkError(f"a link frame has kind {frame[1]}, at most {KIND_MAX} is known")
            elif frame[1] == LinkKind.REFUSED:
                # READY crossed it: the dialler has a better link meanwhile and gives this one up.
                _, reason, sentence = decode(frame)
                self.link_manager.end(link, reason if reason == "duplicate" else sentence)
            elif not link.ended:
                self.gossip.received(link, frame)
        if session and not link.ended:
            self._hooks.link_frames(link.member, session)
            if self._standstill.waits and encode(Kind.PONG, self._standstill.stamp) in session:
                self._standstill.answered(link.member)
                self._check_standstill(self._clock())
        link.bus_probe.heard(link.bus.taken)

    def link_writable(self, bus: Pipe) -> None:
        self._hooks.link_writable(bus)
