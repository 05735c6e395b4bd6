"""One run of a broker: owns the sockets, timers and tasks, feeds the machines, and holds no policy.

What it joins, and where the decisions are made:

* `mesh.cluster.peering` keeps links to other brokers and knows the members (`mesh.cluster.membership`,
  `mesh.cluster.remote_interest`);
* `mesh.dataplane.exchange` routes blocks between clients and brokers; `mesh.broker.stock` serves stock SP
  sockets by it;
* `mesh.broker.listeners` listens; `mesh.broker.event_log` writes down what happens; `mesh.broker.identity`
  and `mesh.broker.durable_file` outlive a restart.

Everything here runs in callbacks of the event loop; the tasks are those of the event log and the identity,
which wait for the disk, and those that peering dials with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

from mesh.broker.beat import FAULT_PAUSE_S, Beat
from mesh.broker.client_frames import ClientFrames
from mesh.broker.durable_file import DurableFile
from mesh.broker.event_log import EventLog
from mesh.broker.identity import Identity, format_id, peers_worth_keeping
from mesh.broker.inspection import Inspection, Stock
from mesh.broker.journal_opening import JournalOpening
from mesh.broker.listeners import Listeners, default_urls
from mesh.broker.log_retention import Retention
from mesh.broker.log_rows import RowBuilder, link_fields, member_fields
from mesh.broker.notices import Notices
from mesh.broker.options import BrokerOptions
from mesh.broker.reloading import Reloaded, merge
from mesh.broker.report import Report
from mesh.broker.stock import StockPublishers, StockRequests, StockSubscribers
from mesh.cluster.durable_interest import HomeChanged
from mesh.cluster.peering import MemberRecord, Peering
from mesh.cluster.remote_interest import Change
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.home import Home
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.queue_watch import topic_of
from mesh.environment import DEFAULT_NAME, Environment
from mesh.errors import MeshError, PeerError
from mesh.listen import Listen
from mesh.logs import log
from mesh.wire.capabilities import DURABLE, RECEIVED, Agreed
from protocols import Pipe, Pub0, Pull0, RawSocket, Rep0, SocketOptions, Sub0

CLIENT_QUEUE: Final = 65_536
"""Frames queued on a client's pipe: credit is the bound there, the pipe must not refuse before it."""
TAP_QUEUE: Final = 4096
"""Messages queued on a stock subscriber's pipe; the exchange keeps more, up to its bound in bytes."""
HANDSHAKE_TIMEOUT_S: Final = 5.0
"""A dialer that has not sent its eight bytes by then is dropped; honest ones send them at once."""
TCP_KEEPALIVE_S: Final = 30
"""A host that vanished costs its connections four times as long after its last word. Stock sockets and
blocking clients may be silent for ever, so nothing but TCP's probes finds that out."""
RATES_PERIOD_S: Final = 1.0
WATCH_PERIOD_S: Final = 1.0
"""How often trouble with durable subscriptions is looked for."""
HURRIED_S: Final = 0.1
"""How long a goodbye may take when its caller is cancelled."""


def retention_of(options: BrokerOptions) -> Retention:
    """How long event logs are kept."""
    age_s = None if options.log_keep_days is None else options.log_keep_days * 86_400
    bytes_max = None if options.log_keep_mb is None else int(options.log_keep_mb * 1_000_000)
    return Retention(age_s, bytes_max)


class Node:
    """Everything that exists between entering and leaving a `Broker`."""

    def __init__(
        self,
        options: BrokerOptions,
        environment: Environment,
        identity: Identity,
        durable_file: DurableFile,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.options = options
        self.environment = environment
        self.identity = identity
        self.durable_file = durable_file
        self._earlier_peers = identity.peers
        self.name = options.name or f"broker-{format_id(identity.id)[:6]}"
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._clock = clock = self._loop.time
        self._stopping: asyncio.Task[None] | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self._hurried = False
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._left = False
        self._children: list[asyncio.Task[None]] = []
        self._work: asyncio.Handle | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._rates_due = self._stats_due = self._watch_due = clock()
        self._notices = Notices(self.name, clock)
        self.log = self._make_log()
        self.exchange = Exchange(
            id=identity.id,
            boot=identity.boot,
            name=self.name,
            mesh=options.mesh,
            hooks=self,
            options=ExchangeOptions(**asdict(options.limits)),
            still_s=2 * options.period_s,
            now=clock(),
        )
        self.home = self.exchange.home = Home(self.name, self, self.exchange.options)
        self._journal = JournalOpening(
            self.home,
            environment,
            folder=options.state_dir and f"{options.state_dir}/{options.name or DEFAULT_NAME}",
            name=self.name,
            broker=format_id(identity.id),
            mesh=options.mesh,
            clock=clock,
        )
        client_options = SocketOptions(
            send_queue=CLIENT_QUEUE, handshake_timeout_s=HANDSHAKE_TIMEOUT_S, keepalive_s=TCP_KEEPALIVE_S
        )
        self.listeners = Listeners(client_options, options.tls)
        self.peering = Peering(
            identity=identity,
            name=self.name,
            mesh=options.mesh,
            mesh_key=options.mesh_key,
            tls=options.tls,
            admit=partial(self.listeners.admit, "peers"),
            join=options.join,
            advertise=options.advertise,
            period_s=options.period_s,
            deadline_s=options.deadline_s,
            environment=environment,
            durable=durable_file.tables,
            hooks=self,
        )
        if self.peering.joining.holds:
            self.exchange.gate.close()
        requests = StockRequests(self.exchange, self.name, clock)
        publishers = StockPublishers(self.exchange, clock)
        self._subscribers = subscribers = StockSubscribers(self.exchange, options.export, clock)
        tap_options = SocketOptions(send_queue=TAP_QUEUE)
        rng = environment.rng
        clients = ClientFrames(self.exchange, requests, self.listeners, clock)
        admit = partial(self.listeners.admit, "clients")
        self._sockets = [
            RawSocket(Rep0, receiver=clients, options=client_options, rng=rng),
            RawSocket(Pub0, receiver=subscribers, admit=admit, options=tap_options, rng=rng),
            RawSocket(Pull0, receiver=publishers, admit=admit, rng=rng),
            RawSocket(Sub0, receiver=publishers, admit=admit, rng=rng),
        ]
        self.inspection = Inspection(
            name=self.name,
            options=options,
            environment=environment,
            identity=identity,
            log=self.log,
            exchange=self.exchange,
            peering=self.peering,
            listeners=self.listeners,
            stock=Stock(requests, publishers),
            journal=self._journal,
            clock=clock,
        )
        self.report = Report(
            self.inspection, options=options, environment=environment, events=self.log.events
        )
        self._beat = Beat(
            f"broker {self.name}",
            (self.exchange.tick, self._rates_step, self._stats_step, self._watch_step),
            late=self.report.lateness.note,
        )
        self.report.faults = lambda: self._beat.faults

    def _make_log(self) -> EventLog:
        identity = self.identity
        rows = RowBuilder(run=self.options.mesh, node=identity.id, boot=identity.boot)
        rows.incarnation = identity.incarnation
        return EventLog(
            rows,
            folder=self.options.log_dir,
            file_stem=f"{self.name}-{format_id(identity.boot)}",
            storage=self.environment.storage,
            clock=self._clock,
            wall_time=self.environment.wall_time,
            retention=retention_of(self.options),
        )

    # --- beginning and end

    @classmethod
    async def begin(cls, options: BrokerOptions, environment: Environment, tasks: asyncio.TaskGroup) -> Node:
        """Take the identity, listen, log the start, join; on failure nothing is left open."""
        identity = await Identity.load(
            name=options.name or DEFAULT_NAME,
            state_dir=options.state_dir,
            storage=environment.storage,
            rng=environment.rng,
        )
        try:
            durable_file = await DurableFile.load(
                name=options.name or DEFAULT_NAME,
                state_dir=options.state_dir,
                storage=environment.storage,
                now_us=int(environment.wall_time() * 1e6),
            )
        except BaseException:
            await identity.aclose()
            raise
        node = cls(options, environment, identity, durable_file, tasks)
        try:
            await node._start()
        except BaseException:
            await node._close()
            raise
        return node

    async def _start(self) -> None:
        options = self.options
        await self._journal.begin()
        self._begin_durable()
        listens = options.listen or tuple(map(Listen, default_urls(options.name)))
        await self.listeners.open(listens, [*self.peering.sockets, *self._sockets])
        self._warn_if_open()
        for topic in ("$sys.status", f"$sys.status.{format_id(self.identity.id)}"):
            self.exchange.respond(topic, lambda _topic, _body: self.report.status())
        self.home.set_forget(self._forget_home)
        for topic in ("$sys.queues", f"$sys.queues.{format_id(self.identity.id)}"):
            self.exchange.respond_later(topic, self._operate)
        await self.peering.start(self.listeners.urls_for("peers"), self.listeners.urls_for("clients"))
        self.log.write("meta", {"op": "start", **self.report.meta_fields()})
        await self.log.start()
        self._children = [
            self._tasks.create_task(self.log.run(), name="event log"),
            self._tasks.create_task(self.identity.run(), name="identity"),
            self._tasks.create_task(self.durable_file.run(self.peering.durable), name="durable interest"),
        ]
        self._stats_due = self._clock() + options.stats_s
        self._check_joined()
        self._beat.start()

    def _begin_durable(self) -> None:
        """Route by all durable subscriptions that are known. Without its journal this home goes on with what
        its file says, or what others say: level stored must not skip it."""
        durable = self.peering.durable
        if not self.home.failure:
            durable.set_own(self.home.table)
        durable.tell()

    async def wait_ready(self) -> None:
        """Return once this broker is no longer joining, or raise `MeshError` when it has left before that."""
        await asyncio.shield(self._joined)
        if self._stopping is not None:
            raise MeshError(f"broker {self.name} left before it was ready")

    def _check_joined(self) -> None:
        if self.peering.state != "joining" and not self._joined.done():
            self._joined.set_result(None)

    def reload(self, wanted: BrokerOptions) -> Reloaded:
        """Take over what can be replaced while running. Raises `ConfigError`, and changes nothing then."""
        certificates = self.listeners.check_certificates()
        options, replaced, kept = merge(self.options, wanted)
        self.options = self.report.options = options
        if "export" in replaced:
            self._subscribers.set_export(options.export)
        self.log.retention = retention_of(options)
        if "stats_s" in replaced:
            self._stats_due = min(self._stats_due, self._clock() + options.stats_s)
        return Reloaded(replaced, kept, certificates)

    async def stop(self, reason: str) -> None:
        """Leave the mesh; a second call waits for the first.

        Cancelled, it gives the others `HURRIED_S` to hear the goodbye, closes everything all the same, and
        raises `asyncio.CancelledError` after that. So the broker is closed whenever this ends.
        """
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(reason), name="stop")
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.shield(self._stopping)
            except asyncio.CancelledError as error:
                cancelled = error
                if not self._hurried:
                    self._hurried = True
                    self._hurry()
        if cancelled is not None:
            raise cancelled
        self._stopping.result()

    def _hurry(self) -> None:
        """Cut the goodbye short: it is said in the next turns of the loop, and others need not confirm it."""
        if self._goodbye is not None:
            self._loop.call_later(HURRIED_S, self._goodbye.cancel)

    async def _stop(self, reason: str) -> None:
        self.report.leaving = self.identity.stopping = self.log.stopping = True
        try:
            self.exchange.leave(f"broker {self.name} leaves", self._clock())
            self.log.write("stats", self.report.stats_fields())  # while the links are there to be counted
            self._goodbye = self._loop.create_task(self.peering.leave(), name="goodbye")
            if self._hurried:
                self._hurry()
            await asyncio.wait([self._goodbye])
            if not self._goodbye.cancelled():
                self._goodbye.result()
        finally:
            self.log.write("meta", {"op": "stop", **self.report.meta_fields(), "reason": reason})
            await self._close()
            self._check_joined()

    async def _close(self) -> None:
        self._beat.stop()
        if self._work is not None:
            self._work.cancel()
        await self.listeners.aclose()
        await self.peering.aclose()
        for socket in self._sockets:
            await socket.aclose()
        await self._journal.aclose()
        if self._wake is not None:
            self._wake.cancel()
        for task in self._children:
            task.cancel()
        if self._children:
            await asyncio.wait(self._children)
        await self.log.aclose()
        await self.durable_file.aclose(self.peering.durable)
        await self.identity.aclose()

    def _warn_if_open(self) -> None:
        """The mesh key is asked of brokers only, so it does not close an address to clients."""
        clients = self.listeners.open_to("clients")
        peers = self.listeners.open_to("peers") if self.options.mesh_key is None else []
        if clients:
            log.warning(
                "broker %s serves clients of other hosts at %s without a certificate, so anybody who reaches"
                " it may publish and read%s; require certificates of clients, listen for clients on"
                " 127.0.0.1 or keep strangers off the port",
                self.name,
                ", ".join(clients),
                "" if self.options.mesh_key is None else " (the mesh key is asked of brokers only)",
            )
        if peers:
            log.warning(
                "broker %s lets brokers of other hosts join at %s without key or certificate, so anybody who"
                " reaches it may join, publish and read; set a mesh key or require certificates of peers",
                self.name,
                ", ".join(peers),
            )

    # --- the exchange's hooks

    def local_interest_changed(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        return self.peering.change_interest(added, removed)

    def work_pending(self) -> None:
        if self._work is None:
            self._work = self._loop.call_soon(self._do_work)

    def stood_still(self) -> bool:
        return self.peering.stood_still()

    def _do_work(self) -> None:
        self._work = None
        try:
            self.exchange.work(self._clock())
        except Exception as error:  # a defect in one client's work; that of the others goes on
            self._beat.report(error)
            if self._work is not None:  # the exchange has asked for the next step already
                self._work.cancel()
            self._work = self._loop.call_later(FAULT_PAUSE_S, self._do_work)

    # --- the home's hooks

    def open_journal(self) -> None:
        self._journal.make()

    def durable_changed(self, added: dict[str, tuple[str, ...]], removed: list[str]) -> int:
        return self.peering.durable.change_own(added, removed)

    def wake_at(self, at: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(at, self.work_pending)

    def storing_failed(self, why: str) -> None:
        log.warning("broker %s stores no messages from now on: %s", self.name, why)

    def _forget_home(self, home: str) -> list[str]:
        """An operator says that another home will not come back. Raises `MeshError`."""
        found = [
            each
            for each in self.exchange.durable_routes.homes.values()
            if home in (each.name, format_id(each.id))
        ]
        if not found:
            raise MeshError(f"no broker {home!r} is known here to have durable subscriptions")
        if len(found) > 1:
            ids = ", ".join(format_id(each.id) for each in found)
            raise MeshError(f"{len(found)} brokers are called {home!r}; name one by its id: {ids}")
        (gone,) = found
        record = self.peering.membership.record(gone.id)
        if gone.id == self.identity.id or (record is not None and record.state in ("alive", "suspect")):
            raise MeshError(
                f"broker {gone.name} lives, and would say again what it keeps; remove its durable"
                " subscriptions with mesh queue rm"
            )
        names = list(gone.subscriptions)
        self.peering.durable.forget(gone.id)
        return names

    def _operate(self, topic: str, body: bytes, answer: Callable[[bytes], None]) -> None:
        self.home.operate(body, int(self.environment.wall_time() * 1e6), answer)

    # --- peering's hooks

    def member_changed(self, record: MemberRecord, from_state: str, reason: str, via: int) -> None:
        fields = member_fields(
            subject=record.id,
            name=record.name,
            boot=record.boot,
            incarnation=record.incarnation,
            from_state=str(from_state),
            to_state=str(record.state),
            reason=reason,
            via=via,
        )
        self.log.write("mem", fields)
        if record.id != self.identity.id:
            self._notices.member(record.name, str(from_state), str(record.state), reason)

    def self_changed(self, record: MemberRecord) -> None:
        self.log.rows.incarnation = record.incarnation
        if record.state == "left" and not self._left:
            self._left = True
            self.member_changed(record, "alive", "leaves", self.identity.id)
        self._remember()

    def live_changed(self, live: list[tuple[int, str]]) -> None:
        self.exchange.members_changed(live)
        self._remember()

    def state_changed(self, state: str) -> None:
        log.info("broker %s is %s", self.name, state)
        self._check_joined()
        self._notices.state(str(state))

    def may_route(self) -> None:
        self.exchange.open_gate(self._clock())

    def link_up(self, member: int, boot: int, name: str, pipe: Pipe, rtt_s: float, agreed: Agreed) -> None:
        self.log.write("link", link_fields(peer=member, dialed=pipe.dialed, up=True, reason="admitted"))
        self._notices.link_up(format_id(self.identity.id), format_id(member), name)
        self.exchange.peer_up(
            member,
            name,
            pipe,
            rtt_s,
            self._clock(),
            boot=boot,
            counts=agreed.has(RECEIVED),
            durable=agreed.has(DURABLE),
        )

    def link_down(self, member: int, reason: str, dialed: bool) -> None:
        self.log.write("link", link_fields(peer=member, dialed=dialed, up=False, reason=reason))
        if self._stopping is None:
            record = self.peering.membership.record(member)
            self._notices.link_lost(format_id(member) if record is None else record.name, reason)
        self.exchange.peer_down(member, self._clock())

    def link_frames(self, member: int, frames: list[bytes]) -> None:
        try:
            self.exchange.peer_frames(member, frames, self._clock())
        except PeerError as error:
            self.peering.drop_link(member, str(error))

    def link_writable(self, pipe: Pipe) -> None:
        self.exchange.pipe_writable(pipe, self._clock())

    def interest_changed(self, member: int, change: Change) -> None:
        self.exchange.change_peer_interest(member, change.added, change.removed, known=change.complete)

    def absent_changed(self, names: Sequence[str]) -> None:
        self.exchange.set_absent(names)

    def separation_over(self) -> None:
        self._notices.separation_over()
        self.exchange.interrupted(self._clock())

    def barrier_reached(self, version: int, unreached: Sequence[str]) -> None:
        self.exchange.barrier_reached(version, unreached)

    def home_changed(self, change: HomeChanged) -> None:
        self.exchange.home_changed(change.home, change.name, change.client_url, change.added, change.removed)

    def unknown_homes_changed(self, names: Sequence[str]) -> None:
        self.exchange.set_unknown_homes(names)

    def durable_unsaved(self) -> None:
        self.durable_file.changed(self.peering.durable)

    def durable_reached(self, version: int, unreached: Sequence[str]) -> None:
        self.home.barrier_reached(version, unreached)

    def heard_survey(self, member: int, round: int, now: float) -> None:
        self.log.heard(True, member, round, None, now)

    def heard_answer(self, member: int, round: int, rtt_s: float, now: float) -> None:
        self.log.heard(False, member, round, rtt_s, now)
        self.exchange.peer_rtt(member, rtt_s)

    def _remember(self) -> None:
        """Save what the next start should know: this broker's incarnation and its peers' addresses."""
        if self._stopping is not None:
            return  # while it leaves, peers go one by one; those of before are worth remembering
        records = [member.record for member in self.peering.members() if not member.is_self]
        peers = peers_worth_keeping(records, self._earlier_peers, own_url=self.peering.url)
        self.identity.remember(self.peering.incarnation, peers)

    # --- what is done now and then

    def _rates_step(self, now: float) -> float:
        if now >= self._rates_due:
            self._rates_due = now + RATES_PERIOD_S
            self.report.update_rates()
        return self._rates_due

    def _watch_step(self, now: float) -> float:
        """Tell of trouble with durable subscriptions: programs by messages, the operator in the log."""
        if now >= self._watch_due:
            self._watch_due = now + WATCH_PERIOD_S
            for notice in self.home.notices(now) if self._stopping is None else ():
                about = {"queue": notice.name, "broker": self.name, **notice.about}
                self._notices.queue(notice.name, notice.kind, notice.about)
                self.exchange.publish(topic_of(notice), [json.dumps(about).encode()], "sent", now)
        return self._watch_due

    def _stats_step(self, now: float) -> float:
        if now >= self._stats_due:
            self._stats_due = now + self.options.stats_s
            fields = self.report.stats_fields()
            self.log.write("stats", fields)
            self.home.look()
            self._notices.drops(fields["drops"], self.options.stats_s)
        return self._stats_due
