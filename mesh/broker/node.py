"""One run of a broker: owns the sockets, timers and tasks, feeds the machines, and decides nothing.

It joins these modules, which make the decisions:

* `mesh.cluster.peering` keeps links to other brokers and knows the members (`mesh.cluster.membership`,
  `mesh.cluster.remote_interest`); `mesh.broker.peer_events` handles its reports;
* `mesh.dataplane.exchange` routes blocks between clients and brokers; `mesh.broker.stock` uses it to serve
  stock SP sockets, `mesh.broker.home_shell` keeps messages for durable subscriptions;
* `mesh.broker.listeners` listens; `mesh.broker.event_log` records events; `mesh.broker.identity` and
  `mesh.broker.durable_file` outlive a restart.

Everything here runs in callbacks of the event loop. The only tasks are those of the event log and the
identity, which wait for the disk, and those with which peering dials.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from mesh.access.door import Door
from mesh.broker.beat import FAULT_PAUSE_S, Beat
from mesh.broker.client_frames import ClientFrames
from mesh.broker.durable_file import DurableFile
from mesh.broker.event_log import EventLog, stem_of
from mesh.broker.home_shell import HomeShell
from mesh.broker.http_source import HttpSource, open_http
from mesh.broker.identity import Identity, format_id
from mesh.broker.inspection import Inspection, Stock
from mesh.broker.listeners import Listeners, default_urls
from mesh.broker.log_retention import retention_of
from mesh.broker.log_rows import RowBuilder
from mesh.broker.notices import Notices
from mesh.broker.options import BrokerOptions, summary_period_s
from mesh.broker.peer_events import PeerEvents
from mesh.broker.reloading import Reloaded, merge
from mesh.broker.report import Report
from mesh.broker.stock import StockPublishers, StockRequests, StockSubscribers
from mesh.broker.stock_guests import StockGuests
from mesh.cluster.own_address import has_host, is_loopback
from mesh.cluster.peering import Peering
from mesh.dataplane import ports
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.looking import LOOK
from mesh.dataplane.options import ExchangeOptions
from mesh.environment import DEFAULT_NAME, Environment
from mesh.errors import MeshError
from mesh.eventlog.rows import MetaRow, StatsRow
from mesh.listen import Listen
from protocols import PipeView, Pub0, Pull0, RawSocket, Rep0, SocketOptions, Sub0

if TYPE_CHECKING:
    from mesh.http.server import HttpServer

CLIENT_QUEUE: Final = 65_536
"""Frames queued on a client's pipe. Credit is the real bound; the pipe must not refuse before it."""
TAP_QUEUE: Final = 4096
"""Messages queued on a stock subscriber's pipe. The exchange keeps more, up to its bound in bytes."""
HANDSHAKE_TIMEOUT_S: Final = 5.0
"""A dialer that has not sent its eight bytes by then is dropped. Well-behaved ones send them at once."""
TCP_KEEPALIVE_S: Final = 30
"""A host that vanished keeps its connections for four times as long after its last packet. Stock sockets and
blocking clients may be silent forever, so only TCP's probes detect that."""
RATES_PERIOD_S: Final = 1.0
LEAVE: Final = "leave"
"""The reason of a stop that is not a failure."""
DRAIN_LOOK_S: Final = 0.01
"""How often a leaving broker checks whether its clients have left."""
HURRIED_S: Final = 0.1
"""How long a goodbye may take if its caller is cancelled."""


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
        self.name = options.name or f"broker-{format_id(identity.id)[:6]}"
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._clock = clock = self._loop.time
        self._stopping: asyncio.Task[None] | None = None
        self._goodbye: asyncio.Task[None] | None = None
        self._hurried = False
        self._hurry_up: asyncio.Future[None] = self._loop.create_future()
        self.asked_to_leave: asyncio.Future[None] = self._loop.create_future()
        """Done once a program has asked the broker to leave."""
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._children: list[asyncio.Task[None]] = []
        self._work: asyncio.Handle | None = None
        self._rates_due = self._stats_due = clock()
        self._notices = Notices(self.name, clock)
        self.log = self._make_log()
        client_options = SocketOptions(
            send_queue=CLIENT_QUEUE, handshake_timeout_s=HANDSHAKE_TIMEOUT_S, keepalive_s=TCP_KEEPALIVE_S
        )
        self.listeners = Listeners(client_options, options.tls, clock)
        door = Door(options.policy, environment.token, clock())
        self.exchange = Exchange(
            id=identity.id,
            boot=identity.boot,
            name=self.name,
            mesh=options.mesh,
            hooks=self,
            options=ExchangeOptions(**asdict(options.limits)),
            still_s=2 * options.period_s,
            now=clock(),
            door=door,
            origin_of=self.listeners.origin_of,
        )
        self._peer_events = events = PeerEvents(
            self.exchange,
            identity,
            durable_file,
            self.log,
            self._notices,
            settled=self._check_joined,
            clock=clock,
        )
        self.peering = events.peering = Peering(
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
            hooks=events,
        )
        self.home_shell = HomeShell(
            options,
            environment,
            self.exchange,
            self.peering,
            self._notices,
            work_pending=self.work_pending,
        )
        if self.peering.joining.holds:
            self.exchange.gate.close()
        self._guests = guests = StockGuests(door, self.listeners.origin_of, self._loop.call_later)
        requests = StockRequests(self.exchange, self.name, clock, guests)
        publishers = StockPublishers(self.exchange, clock, guests)
        self._subscribers = subscribers = StockSubscribers(self.exchange, options.export, clock, guests)
        tap_options = SocketOptions(send_queue=TAP_QUEUE)
        rng = environment.rng
        clients = ClientFrames(self.exchange, requests, self.listeners, clock, guests)
        self._sockets = [
            RawSocket(Rep0, receiver=clients, options=client_options, rng=rng),
            RawSocket(Pub0, receiver=subscribers, admit=self._admit_tap, options=tap_options, rng=rng),
            RawSocket(Pull0, receiver=publishers, admit=self._admit_publisher, rng=rng),
            RawSocket(Sub0, receiver=publishers, admit=self._admit_publisher, rng=rng),
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
            durable_file=durable_file,
            journal=self.home_shell.journal,
            clock=clock,
        )
        self.report = Report(
            self.inspection, options=options, environment=environment, events=self.log.events
        )
        self._http: HttpServer | None = None
        self._http_source = HttpSource(self.inspection, self.report, self.exchange)
        self._beat = Beat(
            f"broker {self.name}",
            (
                self.exchange.tick,
                self._gather_step,
                self._rates_step,
                self._stats_step,
                self.home_shell.watch,
            ),
            late=self.report.lateness.note,
        )
        self.report.faults = lambda: self._beat.faults

    def _admit_tap(self, pipe: PipeView) -> None:
        self.listeners.admit("clients", pipe)
        self._subscribers.admit(pipe)

    def _admit_publisher(self, pipe: PipeView) -> None:
        self.listeners.admit("clients", pipe)
        self._guests.admit("publish", (), pipe)

    def _make_log(self) -> EventLog:
        identity = self.identity
        rows = RowBuilder(run=self.options.mesh, node=identity.id, boot=identity.boot)
        rows.incarnation = identity.incarnation
        return EventLog(
            rows,
            folder=self.options.log_dir,
            file_stem=stem_of(self.name, format_id(identity.boot)),
            storage=self.environment.storage,
            clock=self._clock,
            wall_time=self.environment.wall_time,
            retention=retention_of(self.options),
            summary_of_s=summary_period_s(self.options),
        )

    # --- start and end

    @classmethod
    async def begin(cls, options: BrokerOptions, environment: Environment, tasks: asyncio.TaskGroup) -> Node:
        """Take the identity, listen, log the start, join. After a failure nothing is left open."""
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
        await self.home_shell.begin()
        listens = options.listen or tuple(map(Listen, default_urls(options.name)))
        await self.listeners.open(listens, [*self.peering.sockets, *self._sockets])
        self._notices.open_addresses(
            self.listeners.open_to("clients"),
            self.listeners.open_to("peers"),
            has_key=options.mesh_key is not None,
            anonymous=options.anonymous,
            knows_principals=bool(options.principals),
        )
        for topic in ("$sys.status", f"$sys.status.{format_id(self.identity.id)}"):
            self.exchange.respond(topic, lambda _topic, _body: self.report.status())
        for topic in (LOOK, f"{LOOK}.{format_id(self.identity.id)}"):
            self.exchange.respond(topic, lambda _topic, body: self.exchange.looking.answer(body))
        drain = f"$sys.drain.{format_id(self.identity.id)}"
        self.exchange.respond_to(drain, self._asked_to_leave, _is_of_this_host)
        self.home_shell.serve_operators()
        await self._open_http()
        await self.peering.start(self.listeners.urls_for("peers"), self.listeners.urls_for("clients"))
        self._http_source.serving = True
        self.log.write(MetaRow, {"op": "start", **self.report.meta_fields()})
        await self.log.start()
        self._children += [
            self._tasks.create_task(self.log.run(), name="event log"),
            self._tasks.create_task(self.identity.run(), name="identity"),
            self._tasks.create_task(self.durable_file.run(self.peering.durable), name="durable interest"),
        ]
        self._stats_due = self._clock() + options.stats_s
        self._check_joined()
        self._beat.start()

    async def _open_http(self) -> None:
        """Serve HTTP before joining, so that programs that wait for the join can ask."""
        if self.options.http is None:
            return
        self._http, live = await open_http(
            self.options.http, self._http_source, self.environment, self._clock
        )
        self.report.http_url = self._http.url
        self._children.append(self._tasks.create_task(live.run(), name="pages"))

    async def wait_ready(self) -> None:
        """Return once this broker is no longer joining. Raises `MeshError` if it left before that."""
        await asyncio.shield(self._joined)
        if self._stopping is not None:
            raise MeshError(f"broker {self.name} left before it was ready")

    def _check_joined(self) -> None:
        if self.peering.state != "joining" and not self._joined.done():
            self._joined.set_result(None)

    def reload(self, wanted: BrokerOptions) -> Reloaded:
        """Apply what can be replaced while running. Raises `ConfigError` without any change."""
        certificates = self.listeners.check_certificates()
        options, replaced, kept = merge(self.options, wanted)
        self.options = self.report.options = options
        if "export" in replaced:
            self._subscribers.set_export(options.export)
        if not {"principals", "anonymous"}.isdisjoint(replaced):
            self.exchange.set_policy(options.policy, self._clock())
            self._guests.end_invalid()
            self._subscribers.rights_changed()
        self.log.retention = retention_of(options)
        if "log_heartbeats" in replaced:
            self.log.sum_up(summary_period_s(options))
        if "stats_s" in replaced:
            self._stats_due = min(self._stats_due, self._clock() + options.stats_s)
        return Reloaded(replaced, kept, certificates)

    def _asked_to_leave(self, _topic: str, _body: bytes) -> bytes:
        """Answer `mesh drain` with what is about to happen. It happens after the answer was sent."""
        if not self.asked_to_leave.done():
            self.asked_to_leave.set_result(None)
        answer = {
            "schema": 1,
            "name": self.name,
            "clients": self.exchange.movable if self.peering.live() else 0,
            "drain_s": self.options.drain_s,
        }
        return json.dumps(answer).encode()

    async def stop(self, reason: str) -> None:
        """Leave the mesh. A second call waits for the first.

        If cancelled, it gives the others `HURRIED_S` to receive the goodbye, still closes everything, and
        then raises `asyncio.CancelledError`. So the broker is always closed when this ends.
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
                    self._hurry_up.set_result(None)
                    self._hurry()
        if cancelled is not None:
            raise cancelled
        self._stopping.result()

    def _hurry(self) -> None:
        """Cut the goodbye short: it is sent in the next turns of the loop, and others need not confirm it."""
        if self._goodbye is not None:
            self._loop.call_later(HURRIED_S, self._goodbye.cancel)

    async def _stop(self, reason: str) -> None:
        self.report.leaving = True
        try:
            if reason == LEAVE:
                await self._drain()
            self._peer_events.leaving = self.home_shell.leaving = True
            self.identity.stopping = self.log.stopping = True
            self.exchange.leave(f"broker {self.name} leaves", self._clock())
            self.log.write(StatsRow, self.report.stats_fields())  # while the links still exist to be counted
            self._goodbye = self._loop.create_task(self.peering.leave(), name="goodbye")
            if self._hurried:
                self._hurry()
            await asyncio.wait([self._goodbye])
            if not self._goodbye.cancelled():
                self._goodbye.result()
        finally:
            self.log.write(MetaRow, {"op": "stop", **self.report.meta_fields(), "reason": reason})
            await self._close()
            self._check_joined()

    async def _drain(self) -> None:
        """Move clients to other brokers first, for at most `BrokerOptions.drain_s`. A broker without others
        tells them, and does not wait."""
        left_s = self.options.drain_s if self.peering.live() else 0.0
        deadline = self._clock() + left_s
        self.exchange.drain(left_s, f"broker {self.name} leaves", self._clock())
        while not (self.exchange.drained(self._clock()) or self._hurried) and self._clock() < deadline:
            await asyncio.wait([self._hurry_up], timeout=DRAIN_LOOK_S)

    async def _close(self) -> None:
        self._beat.stop()
        if self._work is not None:
            self._work.cancel()
        if self._http is not None:
            self._http.aclose()
        await self.listeners.aclose()
        await self.peering.aclose()
        for socket in self._sockets:
            await socket.aclose()
        await self.home_shell.aclose()
        for task in self._children:
            task.cancel()
        if self._children:
            await asyncio.wait(self._children)
        await self.log.aclose()
        await self.durable_file.aclose(self.peering.durable)
        await self.identity.aclose()

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
        except Exception as error:  # a defect in one client's work; that of the others continues
            self._beat.report(error)
            if self._work is not None:  # the exchange has already requested the next step
                self._work.cancel()
            self._work = self._loop.call_later(FAULT_PAUSE_S, self._do_work)

    # --- timers

    def _gather_step(self, now: float) -> float:
        self.listeners.gather(self.exchange.refusals_held)
        return inf

    def _rates_step(self, now: float) -> float:
        if now >= self._rates_due:
            self._rates_due = now + RATES_PERIOD_S
            self.report.update_rates()
            self._notices.tick()
            self._peer_events.tell_addresses()  # a record may have a new address
        return self._rates_due

    def _stats_step(self, now: float) -> float:
        if now >= self._stats_due:
            self._stats_due = now + self.options.stats_s
            fields = self.report.stats_fields()
            self.log.write(StatsRow, fields)
            self.home_shell.home.look()
            self._notices.drops(fields["drops"], self.options.stats_s)
        return self._stats_due


def _is_of_this_host(pipe: ports.Pipe) -> bool:
    """True if its other end is certainly a program on this host."""
    address = pipe.remote_address
    return not has_host(address) or is_loopback(address)
