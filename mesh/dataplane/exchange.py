"""The broker's data plane: every input of it, and what follows at the end of each. Pure.

Around it a broker has clients, other brokers, and stock SP sockets. What arrives is decided elsewhere, by
subject:

* `mesh.dataplane.intake`: blocks in; `mesh.dataplane.outlets`: blocks out, and what is between
  (`mesh.dataplane.backlogs`, `mesh.dataplane.credit`, `mesh.dataplane.ports`);
* `mesh.dataplane.session_control`: clients' sessions; `mesh.dataplane.peer_control`: other brokers, and
  `mesh.dataplane.members`: the records of them and their links;
* `mesh.dataplane.requests`: requests and surveys; `mesh.dataplane.local_interest`: what this broker wants.

How it is driven: feed it (`client_frames`, `peer_frames`, `peer_up`, ...), each call with ``now``; it
queues frames on the pipes it was given before the call returns, collected per pipe and handed over once.
`tick` is called when it asks for it. Nothing here waits, reads a clock or holds policy of the shell's.

A rule broken by a client costs its session (and its connection, unless that is shared with others behind an
SP device); by a peer raises `PeerError` out of `peer_frames`, and the owner of the link drops it.

Pipes are duck-typed, see `mesh.dataplane.ports.Pipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, Protocol

from mesh.dataplane.counters import NO_LOSS, ExchangeStatistics, LinkLoss, LinkStatistics, Tally
from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.durable_routes import KnownHome
from mesh.dataplane.entry_broker import EntryBroker
from mesh.dataplane.gate import Gate
from mesh.dataplane.held_blocks import HeldBlocks
from mesh.dataplane.home import Home
from mesh.dataplane.home_for_peers import HomeForPeers
from mesh.dataplane.intake import Intake
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.members import Member, Members
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.outlets import Encoder
from mesh.dataplane.peer_control import PeerControl
from mesh.dataplane.ports import Pipe, Port, Turn
from mesh.dataplane.questions import LocalAsker, Query
from mesh.dataplane.requests import Requests
from mesh.dataplane.session_control import SessionControl
from mesh.dataplane.sessions import Handler, LocalTaker, Responder, Session, Subscriber
from mesh.errors import NotAccepted, PeerError, TopicError
from mesh.topics import check_pattern, check_topic
from mesh.topics.routing import Router
from mesh.wire import blocks
from mesh.wire.session_frames import (
    DATA,
    Kind,
    Receipt,
    Role,
    decode,
    encode,
)
from mesh.wire.session_opening import verified
from protocols.wire import backtrace

HELLO: Final = int(Kind.HELLO)
STEPS_MAX: Final = 100_000
"""Steps of look-ups (`Router.steps`) after which the rest of a read waits for another turn, some 20 ms."""
SCAN_S: Final = 0.5
"""How often keepalives and stalled consumers are looked at."""


class Hooks(Protocol):
    """What the exchange asks of the broker around it."""

    def local_interest_changed(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        """This broker wants these (pattern, role) pairs too, or in another role, and those patterns no
        longer; called for each new subscription, even if it changes nothing.

        Returns the interest version that holds it. Once every live broker has acknowledged that version,
        or the time for it is over, the broker calls `Exchange.barrier_reached(version, unreached)`.
        """

    def work_pending(self) -> None:
        """There is long work: call `Exchange.work` in another loop turn. May be called more than once."""

    def stood_still(self) -> bool:
        """`Exchange.tick` was not called for ``still_s``. True: other brokers may hold this one for dead,
        and what is published has to wait until the broker calls `Exchange.open_gate`, in a later turn."""


class Exchange:
    """One broker's data plane. See the module's docstring for how it is driven.

    ``still_s``: who is not called for so long may be dead to other brokers.
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
    ) -> None:
        self.id = id
        self.boot = boot
        self.name = name
        self.mesh = mesh
        self.options = options = options or ExchangeOptions()
        self.gate = Gate()
        """Closed while this broker does not know who wants what. Before something is published, `holds` says
        so."""
        self.left: list[bytes] = []
        """The rest of the last `client_frames`, to be given to it in another turn, before anything else of
        that pipe: many topics were new, and patterns with stars make their look-ups long."""
        self._reading: Iterator[bytes] = iter(())
        self._hooks = hooks
        self._turn = turn = Turn()
        self._tally = Tally()
        self._members = Members(turn, options, self._tally)
        self._router: Router[LocalTaker, Member] = Router(
            self._members.taker_of,
            cache_bytes_max=options.route_cache_bytes_max,
            steps_exceeded=self._leave_rest,
        )
        self._publishers = Publishers(options.publishers_max)
        self._home = HomeForPeers(name, turn, self._tally, hooks.work_pending)
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
        self._peers = PeerControl(
            members=self._members,
            router=self._router,
            intake=self._intake,
            requests=self._requests,
            entry=self._entry,
            home=self._home,
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
            tally=self._tally,
            session_over=self._entry.session_over,
        )
        self._held = HeldBlocks(
            name, self.gate, self._intake, self._publishers, self._tally, self._sessions.refuse
        )
        self._pipes = self._sessions.pipes
        self._subscribers: dict[Pipe, Subscriber] = {}
        self._publisher = verified(id)
        self._sequence = 0
        self._next_scan = now + SCAN_S
        self._still_s = still_s
        self._still_at = inf
        """From then on this broker has stood still, if `tick` is not called before."""

    # ------------------------------------------------------------------ clients

    def client_frames(self, pipe: Pipe, frames: list[bytes], now: float) -> list[bytes]:
        """Frames (backtrace and all) of a pipe that clients use; returns those that are no session frames.

        What comes back is a stock client's ``topic payload``, with its backtrace, for the broker to serve.
        Frames that are ``left`` after that were too much for one turn of the loop.
        """
        strays: list[bytes] = []
        rest = self._reading = iter(frames)
        self._router.limit_steps(STEPS_MAX)
        client = self._pipes.get(pipe)
        sessions = client.sessions if client is not None else {}
        holds = self.holds(now)
        touched: dict[Session, None] = {}
        for frame in rest:
            start = 4 if len(frame) > 5 and frame[0] & 0x80 else backtrace.split(frame)
            if start < 4:
                continue  # a raw Rep0 lets no such frame through
            if len(frame) <= start or frame[start] & 0xF0 != 0x90:
                strays.append(frame)
                continue
            prefix = frame[:start]
            session = sessions.get(prefix)
            try:
                if session is None or len(frame) < start + 2 or frame[start + 1] == HELLO:
                    session = self._sessions.hello(pipe, prefix, frame, now)
                    client = self._pipes[pipe]
                    sessions = client.sessions
                elif frame[start + 1] == DATA:
                    if holds:
                        self._held.hold(session, frame, start, now)
                    else:
                        self._intake.client_block(session, frame, start, now)
                else:
                    self._sessions.control(session, decode(frame, start), now)
                    if self._turn.unread:  # not at the end of the turn: one read may ask for gigabytes
                        self._end_unread(now)
                    if self._pipes.get(pipe) is not client:
                        break  # an answer closed the pipe under us
                touched[session] = None
            except (PeerError, TopicError) as error:
                if session is not None:
                    self._intake.acknowledge(session)
                self._sessions.refuse(pipe, prefix, error, now)
                if len(prefix) == 4:
                    break
        self._router.limit_steps(None)
        for session in touched:
            session.keepalive.heard_at = now
            self._intake.acknowledge(session)
        self._hand_over(now)
        return strays

    def _leave_rest(self) -> None:
        """Look-ups for what is read now have taken long. What `client_frames` iterates over ends by this, at
        no cost for each frame."""
        self.left = list(self._reading)

    def client_gone(self, pipe: Pipe, now: float) -> None:
        """A pipe that clients used is closed."""
        self._sessions.gone(pipe, now)
        self._hand_over(now)

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        """What waited in a pipe was taken; it has room again."""
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
        """Names of live brokers that a publish here cannot reach now, or whose interest is not known."""
        return self._intake.absent

    def barrier_reached(self, version: int, unreached: Sequence[str] = ()) -> None:
        """Every live broker knows this broker's interest up to ``version``, except those named."""
        self._interest.reached(version, unreached)
        self._hand_over(0.0)

    def interrupted(self, now: float) -> None:
        """Brokers that had forgotten this one know its interest again: tell clients, whose subscriptions may
        lack messages."""
        self._sessions.tell_interrupted()
        self._hand_over(now)

    # ------------------------------------------------------------------ while interest is not known

    def drop(self, reason: str, count: int) -> None:
        """Count messages that the broker around dropped before they came here."""
        self._tally.drop(reason, count)

    def holds(self, now: float) -> bool:
        """Whether what is published now has to wait at the gate."""
        if now >= self._still_at:
            self._go_on(now)
        return self.gate.closed

    def _go_on(self, now: float) -> None:
        """This broker stood still: what it knows of interest may be old."""
        self._still_at = now + self._still_s
        if not self._intake.refusing and self._hooks.stood_still():
            self.gate.close()

    def open_gate(self, now: float) -> None:
        """It is known who wants what, or who is missing (`set_absent`): route what was held."""
        try:
            self._held.step(now)
        finally:
            self._hand_over(now)

    # ------------------------------------------------------------------ consumers of other protocols

    def add_subscriber(self, pipe: Pipe, patterns: Sequence[str], encode: Encoder) -> None:
        """Send what matches to a pipe of another protocol, encoded its way, until `remove_subscriber`. The
        patterns are this broker's interest. What the pipe does not take is dropped and counted; the broker
        is to call `pipe_writable` for it. Raises `TopicError`."""
        checked = list(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
        port = Port(self._turn, pipe, self.options.stock_unwritten_bytes_max, lambda frame: 1)
        subscriber = self._subscribers[pipe] = Subscriber(port, checked, encode)
        self._router.subscribe(checked, Role.LISTEN, subscriber)
        self._interest.add(checked, Role.LISTEN)
        self._interest.flush()

    def change_subscriber(self, pipe: Pipe, patterns: Sequence[str]) -> None:
        """Send it what matches these patterns from now on. Raises `TopicError`."""
        checked = list(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
        subscriber = self._subscribers[pipe]
        self._interest.add(checked, Role.LISTEN)
        self._interest.remove(subscriber.patterns, Role.LISTEN)
        self._router.unsubscribe(subscriber.patterns, subscriber)
        self._router.subscribe(checked, Role.LISTEN, subscriber)
        subscriber.patterns = checked
        self._interest.flush()

    def remove_subscriber(self, pipe: Pipe) -> None:
        """Its pipe is closed."""
        subscriber = self._subscribers.pop(pipe, None)
        if subscriber is None:
            return
        port, tally = subscriber.port, self._tally
        self._router.unsubscribe(subscriber.patterns, subscriber)
        self._interest.remove(subscriber.patterns, Role.LISTEN)
        kept, _ = port.close()
        tally.drop("subscriber_gone", kept)
        tally.drop("slow_stock_subscriber", subscriber.dropped)
        tally.delivered += port.messages_out
        tally.messages_out += port.messages_out
        tally.bytes_out += port.bytes_out
        self._interest.flush()

    # ------------------------------------------------------------------ the program around the broker

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> Receipt:
        """Messages of a stock client, or the broker's own: this broker is their publisher.

        Raises `TopicError`, `NotAccepted` while the broker leaves, and ValueError for a body above the limit.
        """
        encoded = check_topic(topic)
        number = blocks.LEVELS.index(level)
        if number > blocks.ACCEPTED:
            raise ValueError(f"level {level} is for clients: only they send a message again until it is kept")
        for body in bodies:
            if len(body) > blocks.BODY_MAX:
                raise ValueError(f"a body of {len(body)} bytes is above the limit of {blocks.BODY_MAX}")
        if self._intake.refusing:
            if not number:  # its publisher waits for no answer
                self._tally.drop(self._intake.refused_as, len(bodies))
            raise NotAccepted(f"not accepted: {self._intake.refusing}")
        first = self._sequence + 1
        route = self._router.route(encoded)
        for start, stop in blocks.split(bodies) if bodies else ():
            for block, count in self._seal(encoded, bodies[start:stop], number):
                self._intake.hand_out(route.everybody, block, count, 0, 0, None, now)
        self._tally.published += len(bodies)
        self._hand_over(now)
        return Receipt(level, self.name, first, len(bodies), self.absent())

    def _seal(self, topic: bytes, bodies: Sequence[bytes], level: int) -> list[tuple[bytes, int]]:
        sequence = self._sequence + 1
        self._sequence += len(bodies)
        if len(bodies) == 1 and len(bodies[0]) > blocks.SPLIT:
            pieces = blocks.seal_pieces(
                topic, bodies[0], publisher=self._publisher, boot=self.boot, sequence=sequence, level=level
            )
            return [(piece, 1) for piece in pieces]
        block = blocks.seal(
            topic, bodies, publisher=self._publisher, boot=self.boot, sequence=sequence, level=level
        )
        return [(block, len(bodies))]

    def respond(self, pattern: str, handler: Callable[[str, bytes], bytes]) -> None:
        """Answer requests and surveys on a pattern inside this broker, for as long as it runs."""
        self.respond_later(pattern, lambda topic, body, answer: answer(handler(topic, body)))

    def respond_later(self, pattern: str, handler: Handler) -> None:
        """The same by a handler that may answer in a later turn, before that turn's output is handed over."""
        responder = Responder([check_pattern(pattern)], handler)
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
        """Ask for a stock client; ``callback(status, body)`` is called once, perhaps before this returns.

        ``status`` is a `mesh.wire.session_frames.Status`. Raises `TopicError`.
        """
        self._requests.ask(LocalAsker(callback), 0, Query(topic, body, b""), timeout_s, False, now)
        self._hand_over(now)

    def leave(self, reason: str, now: float) -> None:
        """Tell every client that this broker goes; what is published from now on is refused."""
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
        """All brokers that are alive or suspect, this one not among them; of the others interest is
        forgotten."""
        self._peers.set_live(live)

    def set_absent(self, names: Iterable[str]) -> None:
        """Live brokers whose interest is not known here or that have no link; receipts name them."""
        self._intake.absent = tuple(names)

    def change_peer_interest(
        self,
        member_id: int,
        added: Iterable[tuple[str, int]],
        removed: Iterable[str] = (),
        *,
        known: bool = True,
    ) -> None:
        """A broker wants these (pattern, role) pairs too, or in another role, and those patterns no longer.
        ``known``: that is all it wants; else more is to come."""
        self._peers.change_interest(member_id, added, removed, known=known)

    def set_next_hop(self, member_id: int, by: int) -> None:
        """What is meant for a broker goes by another's link; by its own: ``by`` is the broker itself."""
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
    ) -> None:
        """A link is admitted; its Bus pipe carries blocks from now on. Replaces an earlier link.

        ``counts``: the other side says what it received in its run ``boot``
        (`mesh.wire.capabilities.RECEIVED`). ``durable``: it may be a home (`mesh.wire.capabilities.DURABLE`).
        """
        self._peers.link_up(member_id, name, pipe, rtt_s, now, boot=boot, counts=counts, durable=durable)
        self._hand_over(now)

    def peer_down(self, member_id: int, now: float) -> None:
        """A link is over. The broker's interest is kept until `members_changed` no longer names it."""
        self._peers.link_down(member_id, now)
        self._hand_over(now)

    def peer_rtt(self, member_id: int, rtt_s: float) -> None:
        """A new measure of the round trip to a broker; the nearest gets requests first."""
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
        """Durable subscriptions, names and their patterns, were made at a broker, this one among them, or
        given other patterns, and others were removed. They stay though the broker goes. Raises `TopicError`
        before any change."""
        self._entry.home_changed(home_id, home_name, client_url, added, removed)
        self._hand_over(0.0)

    def set_unknown_homes(self, names: Iterable[str]) -> None:
        """Live brokers that may be homes and of which it is not known what is kept there."""
        self._entry.unknown = tuple(names)

    def home_of(self, subscription: str) -> KnownHome | None:
        """The broker where a durable subscription was made."""
        return self._entry.routes.home_of(subscription)

    @property
    def homes(self) -> Mapping[int, KnownHome]:
        """All brokers of which it is known that they have durable subscriptions, by their ids."""
        return self._entry.routes.homes

    @property
    def home(self) -> Home | None:
        """What keeps messages on this broker's disk; None: nothing does."""
        return self._sessions.home

    @home.setter
    def home(self, home: Home | None) -> None:
        self._home.home = self._sessions.home = home
        if home is not None:
            home.set_elsewhere(self._home_elsewhere)
            home.set_homes(self._homes_of)

    def _home_elsewhere(self, subscription: str) -> tuple[str, str] | None:
        """Name and client URL of another broker where a durable subscription was made."""
        known = self.home_of(subscription)
        return None if known is None or known.id == self.id else (known.name, known.url)

    def twice(self) -> dict[str, list[str]]:
        """Durable subscriptions that were made at more than one broker, while these were apart: the names of
        their homes."""
        if len(self.homes) < 2:
            return {}
        of_name: dict[str, list[str]] = {}
        for home in self.homes.values():
            for subscription in home.subscriptions:
                of_name.setdefault(subscription, []).append(home.name)
        return {name: sorted(homes) for name, homes in sorted(of_name.items()) if len(homes) > 1}

    def _homes_of(self, subscription: str) -> list[tuple[str, str]]:
        """Ids and names of all brokers where one was made."""
        found = [home for home in self.homes.values() if subscription in home.subscriptions]
        return [(f"{home.id:016x}", home.name) for home in found]

    def peer_frames(self, member_id: int, frames: list[bytes], now: float) -> None:
        """Session frames (kinds 0 to 31, and 64 and up) from a broker's Bus pipe. Raises `PeerError`: the
        link must be dropped."""
        try:
            self._peers.frames(member_id, frames, now)
        finally:
            self._hand_over(now)

    # ------------------------------------------------------------------ time and output

    def tick(self, now: float) -> float:
        """Do what is due; returns when to call again (never later than half a second from now)."""
        if now >= self._still_at:
            self._go_on(now)
        self._still_at = now + self._still_s
        due = self._requests.expire(now)
        if now >= self._next_scan:
            late_s = now - self._next_scan
            self._next_scan = now + SCAN_S
            self._scan(now, late_s)
        turn = self._turn
        home = self.home
        pending = home is not None and home.pending
        if turn.dirty or turn.due or turn.ends or pending or self._interest.changed:
            self._hand_over(now)
        return self._next_scan if due is None or due > self._next_scan else due

    def _scan(self, now: float, late_s: float) -> None:
        for outlet in list(self._turn.waiting):
            outlet.backlog.check_stall(now)
        for link in self._members.neighbours():
            link.ingress.grant()  # what is given back tells the other side what has arrived
        self._sessions.scan(now, late_s)
        self._entry.scan(now)

    def _port_of(self, pipe: Pipe) -> Port | None:
        if pipe in self._pipes:
            return self._pipes[pipe].port
        if pipe in self._subscribers:
            return self._subscribers[pipe].port
        link = self._members.linked_by(pipe)
        return None if link is None else link.port

    def _hand_over(self, now: float) -> None:
        """What this turn produced: work and what is stored, interest, frames to their pipes, one call each,
        and credit to those who earned it."""
        turn, home = self._turn, self._sessions.home
        if home is not None:
            home.hand_over(now)
        if self._interest.changed:
            self._interest.flush()
        if turn.unread:
            self._end_unread(now)
        if turn.ends:
            ends, turn.ends = turn.ends, []
            for end in ends:
                end()
        if turn.dirty:
            dirty, turn.dirty = turn.dirty, []
            for port in dirty:
                port.hand_over(now)
        if turn.due:
            due = turn.due.copy()
            turn.due.clear()  # those in it keep a reference to this very list
            for ingress in due:
                ingress.grant()
        if turn.jobs or self.gate.opening:
            self._hooks.work_pending()

    def _end_unread(self, now: float) -> None:
        unread, self._turn.unread = self._turn.unread, {}
        for session in unread:
            self._sessions.end_unread(session, now)

    def work(self, now: float) -> None:
        """Do a step of long work, some milliseconds, and one of the gate, to which more comes each turn."""
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

    def link_statistics(self, member_id: int) -> LinkStatistics:
        """Counters of the link to a broker; zeros for one never linked."""
        return self._members.statistics(member_id)

    def link_losses(self) -> dict[int, LinkLoss]:
        """Messages that did not arrive at other brokers, by their ids."""
        return self._members.losses()

    def traffic(self) -> tuple[int, int, int, int]:
        """Messages in and out, bytes in and out: the part of `statistics` that is asked for often."""
        tally = self._tally
        messages_in, bytes_in = tally.messages_in, tally.bytes_in
        messages_out, bytes_out = tally.messages_out, tally.bytes_out
        for member in self._members.all():
            messages_in += member.messages_in
            bytes_in += member.bytes_in
            messages_out += member.messages_out
            bytes_out += member.bytes_out
        for session in self._sessions.all():
            messages_in += session.messages_in
            bytes_in += session.bytes_in
        for port in self._ports():
            messages_out += port.messages_out
            bytes_out += port.bytes_out
        for link in self._members.neighbours():
            messages_out += link.port.messages_out
            bytes_out += link.port.bytes_out
        return messages_in, messages_out, bytes_in, bytes_out

    def _ports(self) -> list[Port]:
        """Of clients and stock subscribers."""
        clients = [client.port for client in self._pipes.values()]
        return clients + [subscriber.port for subscriber in self._subscribers.values()]

    def statistics(self) -> ExchangeStatistics:
        sessions = self._sessions.all()
        subscriptions = [sub for session in sessions for sub in session.subscriptions.values()]
        members = self._members.all()
        drops = dict(self._tally.drops)

        def add(reason: str, count: int) -> None:
            if count:
                drops[reason] = drops.get(reason, 0) + count

        add("answer_unknown", self._requests.unknown)
        add("not_asked", self._requests.not_asked)
        add("not_returned", self._requests.not_returned)
        add("publisher_forgotten", self._publishers.forgotten)
        add("slow_subscriber", sum(subscription.dropped for subscription in subscriptions))
        add("slow_stock_subscriber", sum(taker.dropped for taker in self._subscribers.values()))
        add("slow_link", sum(link.outlet.dropped for link in self._members.neighbours()))
        for member in members:
            for reason, count in member.drops.items():
                add(reason, count)
        messages_in, messages_out, bytes_in, bytes_out = self.traffic()
        unresolved = sum(client.unresolved for client in self._pipes.values())
        return ExchangeStatistics(
            published=self._tally.published,
            delivered=self._tally.delivered + sum(port.messages_out for port in self._ports()) - unresolved,
            dropped=sum(count for reason, count in drops.items() if reason not in NO_LOSS),
            unwanted=self._tally.unwanted,
            msgs_in=messages_in,
            msgs_out=messages_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            sessions=len(sessions),
            subscriptions=len(subscriptions),
            drops=drops,
            refused=dict(self._tally.refused),
            taps=list(dict.fromkeys(" ".join(t.patterns) for t in self._subscribers.values() if t.patterns)),
            questions=self._requests.open_questions,
            publishers=len(self._publishers),
            storing=self._entry.storing,
            queued=sum(link.outlet.backlog.messages for link in self._members.neighbours()),
            unresolved=self._tally.unresolved
            + unresolved
            + sum(member.unresolved.at_most for member in members if member.unresolved),
        )
