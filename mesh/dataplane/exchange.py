"""The broker's data plane: all its inputs, and the work at the end of each. Pure.

The exchange deals with clients, other brokers and stock SP sockets. It hands each input to a part of its own:

* `mesh.dataplane.client_reading`: what clients send;
* `mesh.dataplane.intake`: blocks in; `mesh.dataplane.outlets`: blocks out; between them
  `mesh.dataplane.backlogs`, `mesh.dataplane.credit` and `mesh.dataplane.ports`;
* `mesh.dataplane.session_control`: clients' sessions; `mesh.dataplane.peer_control`: other brokers;
  `mesh.dataplane.members`: the records of brokers and their links;
* `mesh.dataplane.foreign_subscribers`: consumers of other protocols; `mesh.dataplane.own_messages`: messages
  that this broker publishes itself;
* `mesh.dataplane.requests`: requests and surveys; `mesh.dataplane.local_interest`: what this broker wants;
* `mesh.dataplane.totals`: what all of them counted.

To drive it, call `client_frames`, `peer_frames`, `peer_up` and so on, each with ``now``. Frames are queued on
the pipes before the call returns; each pipe gets its frames in one call. Call `tick` at the time that it
returned. Nothing here waits, reads a clock or decides what the shell decides.

A client that breaks a rule loses its session. It also loses its connection, unless others share that behind
an SP device. A peer that breaks a rule makes `peer_frames` raise `PeerError`, and the owner of the link drops
it.

Pipes are duck-typed: see `mesh.dataplane.ports.Pipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

from mesh.access import Policy
from mesh.access.door import Door, Origin
from mesh.dataplane.client_reading import ClientReading
from mesh.dataplane.counters import ExchangeStatistics, LinkLoss, LinkStatistics, Tally
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.draining import Draining
from mesh.dataplane.durable_routes import DurableRoutes
from mesh.dataplane.entry_broker import EntryBroker
from mesh.dataplane.foreign_subscribers import ForeignSubscribers
from mesh.dataplane.gate import Gate
from mesh.dataplane.held_blocks import HeldBlocks
from mesh.dataplane.home import Home
from mesh.dataplane.home_for_peers import HomeForPeers
from mesh.dataplane.intake import Intake
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.looking import Looking
from mesh.dataplane.members import Member, Members
from mesh.dataplane.opening import OriginOf
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.own_messages import OwnMessages
from mesh.dataplane.peer_control import PeerControl
from mesh.dataplane.ports import Pipe, Port, Turn
from mesh.dataplane.questions import LocalAsker, Query
from mesh.dataplane.requests import Requests
from mesh.dataplane.session_control import SessionControl
from mesh.dataplane.sessions import Guarded, Handler, LocalTaker, Responder
from mesh.dataplane.totals import Totals
from mesh.topics import check_pattern
from mesh.topics.routing import Router
from mesh.wire.session_frames import Kind, Receipt, Role, encode

SCAN_S: Final = 0.5
"""Interval between checks of keepalives and stalled consumers."""


class Hooks(Protocol):
    """The exchange calls these methods of the broker around it."""

    def local_interest_changed(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        """This broker also wants the ``added`` (pattern, role) pairs, which are new or have a new role. It no
        longer wants the ``removed`` patterns. Called for each new subscription, even if nothing changes.

        Returns the interest version that includes the change. Once every live broker has acknowledged that
        version, or time has run out, the broker calls `Exchange.barrier_reached(version, unreached)`.
        """

    def work_pending(self) -> None:
        """Long work is pending: call `Exchange.work` in another loop turn. May be called more than once."""

    def stood_still(self) -> bool:
        """`Exchange.tick` was not called for ``still_s``. True if other brokers may believe this one dead.
        Then what is published waits until the broker calls `Exchange.open_gate`, in a later turn."""


class Exchange:
    """One broker's data plane. The module's docstring says how to drive it.

    ``still_s``: other brokers may believe this one dead once it was not called for so long. ``door`` decides
    which clients may enter, by the origin that ``origin_of`` returns. Without a door everybody may do
    everything.
    """

    def __init__(
        self,
        *,
        id: int,
        boot: int,
        name: str,
        mesh: str,
        hooks: Hooks,
        options: ExchangeOptions | None = None,
        still_s: float = inf,
        now: float = 0.0,
        door: Door | None = None,
        origin_of: OriginOf = lambda pipe: Origin(),
    ) -> None:
        self.id = id
        self.door = door = door or Door(Policy(anonymous="everywhere"))
        self.boot = boot
        self.name = name
        self.mesh = mesh
        self.options = options = options or ExchangeOptions()
        self.gate = Gate()
        """Closed while this broker does not know the interest of the others. Check `holds` before each
        publish."""
        self._hooks = hooks
        self._turn = turn = Turn()
        self._tally = Tally()
        self._members = Members(turn, options, self._tally)
        self._router: Router[LocalTaker, Member] = Router(
            self._members.taker_of,
            cache_bytes_max=options.route_cache_bytes_max,
            steps_exceeded=lambda: self.reading.leave_rest(),
        )
        self._publishers = Publishers(options.publishers_max)
        self._home = HomeForPeers(turn, self._tally, hooks.work_pending)
        self._intake = Intake(self._router, self._publishers, self._home, self._tally)
        self._entry = self._intake.stored = EntryBroker(
            id=id,
            name=name,
            members=self._members,
            intake=self._intake,
            own=self._home,
            turn=turn,
            tally=self._tally,
            work_pending=hooks.work_pending,
        )
        self._requests = Requests(id, boot, name, self._router, self._members, self.gate, options)
        self._draining = Draining(self._members)
        self._peers = PeerControl(
            members=self._members,
            router=self._router,
            intake=self._intake,
            requests=self._requests,
            entry=self._entry,
            home=self._home,
            draining=self._draining,
            turn=turn,
            tally=self._tally,
            work_pending=hooks.work_pending,
        )
        self._interest = LocalInterest(hooks.local_interest_changed)
        self._sessions = SessionControl(
            id=id,
            name=name,
            mesh=mesh,
            options=options,
            turn=turn,
            router=self._router,
            interest=self._interest,
            requests=self._requests,
            publishers=self._publishers,
            draining=self._draining,
            tally=self._tally,
            session_over=self._entry.session_over,
            heard_lowest=self._entry.heard_lowest,
            door=door,
            origin_of=origin_of,
        )
        self._held = HeldBlocks(
            name, self.gate, self._intake, self._publishers, self._tally, self._sessions.refuse
        )
        self.reading = ClientReading(self._sessions, self._intake, self._held, self._router, turn)
        self.subscribers = ForeignSubscribers(options, turn, self._router, self._interest, self._tally)
        """Subscribers of other protocols."""
        self._own = OwnMessages(id, boot, name, self._router, self._intake, self._tally)
        self.totals = Totals(
            tally=self._tally,
            sessions=self._sessions,
            subscribers=self.subscribers,
            members=self._members,
            requests=self._requests,
            publishers=self._publishers,
            entry=self._entry,
        )
        self.looking = Looking(
            id=id,
            name=name,
            sessions=self._sessions,
            subscribers=self.subscribers,
            interest=self._interest,
            router=self._router,
            publishers=self._publishers,
            durables=self.durable_routes,
            gate=self.gate,
        )
        self._pipes = self._sessions.pipes
        self._next_scan = now + SCAN_S
        self._still_s = still_s
        self._still_at = inf
        """At this time the broker has stood still, unless `tick` is called earlier."""

    # ------------------------------------------------------------------ clients

    def client_frames(self, pipe: Pipe, frames: list[bytes], now: float) -> list[bytes]:
        """Take frames, with their backtraces, from a pipe that clients use. Returns those that are not
        session frames.

        The broker serves the returned frames: each is a stock client's ``topic payload`` behind its
        backtrace. A read that is too much for one turn leaves its rest in ``reading.left``. Pass that to this
        method in another turn, before any other frames of the pipe.
        """
        strays = self.reading.read(pipe, frames, self.holds(now), now)
        self._hand_over(now)
        return strays

    def client_gone(self, pipe: Pipe, now: float) -> None:
        """A pipe that clients used has closed."""
        self._sessions.gone(pipe, now)
        self._hand_over(now)

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        """The connection took a pipe's queue; the pipe has room again."""
        port = self._port_of(pipe)
        if port is None:
            return
        if not pipe.unsent:
            port.written()
        if port.ready:
            self._turn.dirty.append(port)
        for outlet in list(port.blocked):
            del port.blocked[outlet]
            outlet.resume(now)
        self._hand_over(now)

    def absent(self) -> tuple[str, ...]:
        """Names of live brokers that a publish cannot reach now, or whose interest is not known here."""
        return self._intake.absent

    def barrier_reached(self, version: int, unreached: Sequence[str] = ()) -> None:
        """Every live broker knows this broker's interest up to ``version``, except those named."""
        self._interest.reached(version, unreached)
        self._hand_over(0.0)

    def interrupted(self, now: float) -> None:
        """Brokers that had forgotten this one know its interest again. Tells clients, whose subscriptions may
        lack messages."""
        self._sessions.tell_interrupted()
        self._hand_over(now)

    def set_policy(self, policy: Policy, now: float) -> None:
        """Replace principals and rights, for existing sessions too."""
        self.door.set_policy(policy, now)
        self._sessions.rights_changed(now)
        self._hand_over(now)

    # ------------------------------------------------------------------ while interest is not known

    def drop(self, reason: str, count: int) -> None:
        """Count messages that the surrounding broker dropped before they reached the exchange."""
        self._tally.drop(reason, count)

    def holds(self, now: float) -> bool:
        """True if a message published now has to wait at the gate."""
        if now >= self._still_at:
            self._go_on(now)
        return self.gate.closed

    def _go_on(self, now: float) -> None:
        """This broker stood still, so what it knows of interest may be old."""
        self._still_at = now + self._still_s
        if not self._intake.refusing and self._hooks.stood_still():
            self.gate.close()

    def open_gate(self, now: float) -> None:
        """The interest of others is known, or `set_absent` has named the brokers that are missing: route what
        was held."""
        try:
            self._held.step(now)
        finally:
            self._hand_over(now)

    # ------------------------------------------------------------------ the program around the broker

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> Receipt:
        """Publish messages of a stock client or of the broker itself; see `mesh.dataplane.own_messages`.

        Raises `TopicError`, `NotAccepted` while the broker leaves, and ValueError for a body above the limit.
        """
        receipt = self._own.publish(topic, bodies, level, now)
        self._hand_over(now)
        return receipt

    def respond(self, pattern: str, handler: Callable[[str, bytes], bytes]) -> None:
        """Answer requests and surveys on a pattern inside this broker, for as long as it runs."""
        self.respond_later(pattern, lambda topic, body, answer: answer(handler(topic, body)))

    def respond_later(self, pattern: str, handler: Handler) -> None:
        """Like `respond`, with a handler that may answer in a later turn, before that turn's output is handed
        over."""
        self._add_responder(Responder([check_pattern(pattern)], handler))

    def respond_to(
        self, pattern: str, handler: Callable[[str, bytes], bytes], admits: Callable[[Pipe], bool]
    ) -> None:
        """Like `respond`, but only for clients of this broker whose pipe ``admits`` accepts."""
        guarded = Guarded(
            [check_pattern(pattern)], lambda topic, body, answer: answer(handler(topic, body)), admits
        )
        self._add_responder(guarded)

    def _add_responder(self, responder: Responder) -> None:
        self._router.subscribe(responder.patterns, Role.ANSWERS, responder)
        self._interest.add(responder.patterns, Role.ANSWERS)
        self._interest.flush()

    def request(
        self,
        topic: str,
        body: bytes,
        timeout_s: float,
        callback: Callable[[int, bytes], None],
        now: float,
    ) -> None:
        """Send a request for a stock client. ``callback(status, body)`` is called once, perhaps before this
        returns.

        ``status`` is a `mesh.wire.session_frames.Status`. Raises `TopicError`.
        """
        self._requests.ask(LocalAsker(callback), 0, Query(topic, body, b""), timeout_s, False, now)
        self._hand_over(now)

    def survey(
        self,
        topic: str,
        body: bytes,
        timeout_s: float,
        callback: Callable[[int, bytes], None],
        over: Callable[[Sequence[str]], None],
        now: float,
    ) -> None:
        """Send a survey for the program around the broker. ``callback(status, body)`` is called with each
        answer that is in time. Then ``over`` is called once, with the names of those that did not answer.
        Raises `TopicError`.
        """
        self._requests.ask(LocalAsker(callback, over), 0, Query(topic, body, b""), timeout_s, True, now)
        self._hand_over(now)

    def drain(self, left_s: float, reason: str, now: float) -> None:
        """Move clients to other brokers before this one leaves. No new client may enter
        (`mesh.dataplane.draining`)."""
        self._sessions.leaving = reason
        self._draining.begin(self._sessions.all(), left_s, reason, now)
        self._hand_over(now)

    @property
    def draining(self) -> bool:
        return bool(self._draining.reason)

    @property
    def movable(self) -> int:
        """Number of clients that move to other brokers by themselves when this one leaves."""
        return sum(map(self._draining.may_move, self._sessions.all()))

    def drained(self, now: float) -> bool:
        """True if all clients that are moving have left, and nothing waits for other brokers."""
        return not any(
            self._draining.waits_for(session, now) for session in self._sessions.all()
        ) and not any(link.outlet.behind for link in self._members.neighbours())

    def leave(self, reason: str, now: float) -> None:
        """Tell every client that this broker leaves. Whatever is published from now on is refused."""
        self._sessions.leaving = self._intake.refusing = reason
        self._intake.refused_as = "leaving"
        while self.gate.closed:  # what was held is refused
            self._held.step(now)
        if self.home is not None:
            self.home.leave(reason, now)
        for session in self._sessions.all():
            session.send(encode(Kind.BYE, reason))
        for link in self._members.neighbours():
            link.ingress.grant()
        self._hand_over(now)

    # ------------------------------------------------------------------ other brokers

    def members_changed(self, live: Iterable[tuple[int, str]]) -> None:
        """``live`` names all brokers that are alive or suspect, without this one. The interest of all others
        is forgotten."""
        self._peers.set_live(live)

    def set_addresses(self, urls: Sequence[str]) -> None:
        """Addresses of the other live brokers for clients. A client that knows several addresses uses them
        when it loses this broker."""
        self._sessions.set_addresses(urls)

    def set_absent(self, names: Iterable[str]) -> None:
        """Live brokers whose interest is not known here or that have no link. Receipts name them."""
        self._intake.absent = tuple(names)

    def change_peer_interest(
        self,
        member_id: int,
        added: Iterable[tuple[str, int]],
        removed: Iterable[str] = (),
        *,
        known: bool = True,
    ) -> None:
        """A broker also wants the ``added`` (pattern, role) pairs, which are new or have a new role, and no
        longer the ``removed`` patterns. ``known``: this completes its interest; otherwise more follows."""
        self._peers.change_interest(member_id, added, removed, known=known)

    def set_next_hop(self, member_id: int, by: int) -> None:
        """Route blocks for a broker over the link of ``by`` from now on. With ``by`` equal to ``member_id``
        they take its own link."""
        self._members.set_next_hop(member_id, by)
        self._router.forget_routes()

    def peer_up(
        self,
        member_id: int,
        name: str,
        pipe: Pipe,
        rtt_s: float,
        now: float,
        *,
        boot: int = 0,
        counts: bool = False,
        durable: bool = False,
        marks: bool = False,
    ) -> None:
        """A link is admitted; its Bus pipe carries blocks from now on. It replaces an earlier link.

        ``counts``: the other side reports what it received in its run ``boot``
        (`mesh.wire.capabilities.RECEIVED`). ``durable``: it may be a home (`mesh.wire.capabilities.DURABLE`).
        ``marks``: it sends marks back (`mesh.wire.capabilities.MARK`).
        """
        self._peers.link_up(
            member_id, name, pipe, rtt_s, now, boot=boot, counts=counts, durable=durable, marks=marks
        )
        self._hand_over(now)

    def peer_down(self, member_id: int, now: float) -> None:
        """A link has ended. The broker's interest is kept until `members_changed` no longer names it."""
        self._peers.link_down(member_id, now)
        self._hand_over(now)

    def peer_rtt(self, member_id: int, rtt_s: float) -> None:
        """A new round-trip time to a broker. Requests go to the nearest first."""
        member = self._members.table.get(member_id)
        if member is not None and member.neighbour is not None:
            member.neighbour.rtt_s = rtt_s

    def home_changed(
        self,
        home_id: int,
        home_name: str,
        client_url: str,
        added: Mapping[str, Iterable[str]],
        removed: Iterable[str] = (),
    ) -> None:
        """Durable subscriptions at a home changed; the home may be this broker. ``added`` maps each new or
        changed name to its patterns. The subscriptions stay when the home leaves. Raises `TopicError` before
        any change."""
        self._entry.home_changed(home_id, home_name, client_url, added, removed)
        self._hand_over(0.0)

    def set_unknown_homes(self, names: Iterable[str]) -> None:
        """Live brokers that may be homes and whose durable subscriptions are not known here."""
        self._entry.unknown = tuple(names)
        self._hand_over(0.0)

    def _unsure(self) -> str:
        """Why it is not known what other brokers keep; empty if it is known."""
        if self._entry.unknown:
            return f"it is not known yet what is kept at {', '.join(self._entry.unknown)}"
        return "this broker does not know yet what others keep" if self.gate.closed else ""

    @property
    def durable_routes(self) -> DurableRoutes:
        """All known durable subscriptions and their homes."""
        return self._entry.routes

    @property
    def home(self) -> Home | None:
        """Keeps messages on this broker's disk. None if it keeps none."""
        return self._sessions.home

    @home.setter
    def home(self, home: Home | None) -> None:
        self._home.home = self._sessions.home = home
        if home is not None:
            routes = self._entry.routes
            home.set_elsewhere(partial(routes.elsewhere, self.id), partial(routes.senior, self.id))
            home.set_unsure(self._unsure)
            home.set_homes(routes.homes_of, partial(routes.away, self.id))

    def peer_frames(self, member_id: int, frames: list[bytes], now: float) -> None:
        """Take session frames (kinds 0 to 31, and from 64) from a broker's Bus pipe. Raises `PeerError` if
        the link must be dropped."""
        try:
            self._peers.frames(member_id, frames, now)
        finally:
            self._hand_over(now)

    # ------------------------------------------------------------------ time and output

    def tick(self, now: float) -> float:
        """Do the work that is due. Returns the time of the next call, at most half a second from now."""
        if now >= self._still_at:
            self._go_on(now)
        self._still_at = now + self._still_s
        due = self._requests.expire(now)
        paced = self.door.tick(now)
        if now >= self._next_scan:
            late_s = now - self._next_scan
            self._next_scan = now + SCAN_S
            self._scan(now, late_s)
        turn = self._turn
        home = self.home
        due_at_home = home is not None and home.due(now)  # timers may fire early
        if turn.dirty or turn.due or turn.ends or due_at_home or self._interest.changed or self.draining:
            self._hand_over(now)
        return min(paced, self._next_scan, self._next_scan if due is None else due)

    def _scan(self, now: float, late_s: float) -> None:
        for outlet in list(self._turn.waiting):
            outlet.backlog.check_stall(now)
        for link in self._members.neighbours():
            link.ingress.grant()  # granted credit also tells the other side what has arrived
            if link.marks_owed:
                link.send_marks()
        self._sessions.scan(now, late_s)
        self._entry.scan(now)

    def _port_of(self, pipe: Pipe) -> Port | None:
        if pipe in self._pipes:
            return self._pipes[pipe].port
        if pipe in self.subscribers.by_pipe:
            return self.subscribers.by_pipe[pipe].port
        link = self._members.linked_by(pipe)
        return None if link is None else link.port

    def _hand_over(self, now: float) -> None:
        """Finish this turn: do its work, store, publish interest, and hand each pipe its frames in one call.
        Then grant credit to the senders that earned it."""
        turn, home = self._turn, self._sessions.home
        if home is not None:
            home.hand_over(now)
        if self._draining.reason:
            self._draining.step()
        if self._interest.changed:
            self._interest.flush()
        if turn.unread:
            self._sessions.end_unread(now)
        if turn.ends:
            ends, turn.ends = turn.ends, []
            for end in ends:
                end()
        if turn.first:
            first, turn.first = turn.first, {}
            self._grant()
            for pipe in first:
                pipe.flush()
        if turn.dirty:
            dirty, turn.dirty = turn.dirty, []
            for port in dirty:
                port.hand_over(now)
        if turn.due:
            self._grant()
        if turn.jobs or self.gate.opening:
            self._hooks.work_pending()

    def _grant(self) -> None:
        due = self._turn.due.copy()
        self._turn.due.clear()  # a port in it keeps a reference to this very list
        for ingress in due:
            ingress.grant()

    def work(self, now: float) -> None:
        """Do one step of long work, some milliseconds, and one step of the gate, which grows each turn."""
        try:
            if self.gate.opening:
                self._held.step(now)
            self._turn.work(now)
        finally:
            self._hand_over(now)

    # ------------------------------------------------------------------ numbers

    @property
    def wanted(self) -> Collection[str]:
        """The patterns that this broker wants; a live view."""
        return self._interest.patterns

    @property
    def refusals_held(self) -> int:
        """Refusals of wrong proofs that are held back."""
        return self._sessions.refusals_held

    def link_statistics(self, member_id: int) -> LinkStatistics:
        """Counters of the link to a broker; zeros if it was never linked."""
        return self._members.statistics(member_id)

    def link_losses(self) -> dict[int, LinkLoss]:
        """Messages that did not arrive at other brokers, by broker id."""
        return self._members.losses()

    def statistics(self) -> ExchangeStatistics:
        """All counters. The cost grows with the number of subscriptions."""
        return self.totals.statistics()
