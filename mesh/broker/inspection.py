"""A read-only view of one broker: its state, its knowledge of others, and its counters.

`Broker.inspect` returns it. The status, the ``stats`` rows, the simulator's checks and the tests read brokers
only through it. Each part is gathered when requested and does not change afterwards. So a reader of the
members does not pay for counting sessions. Within one callback of the event loop all parts describe the same
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from mesh.broker.certificate_dates import Expiry
from mesh.broker.durable_file import DurableFile
from mesh.broker.event_log import EventLog, LogStatus
from mesh.broker.identity import Identity, StateStatus
from mesh.broker.journal_opening import JournalOpening
from mesh.broker.listeners import Listeners
from mesh.broker.options import BrokerOptions
from mesh.broker.status import JournalView, LinkStatus, Load, MemberStatus, Traffic, as_key
from mesh.broker.stock import StockPublishers, StockRequests
from mesh.cluster.durable_table import HomeTable
from mesh.cluster.membership import MemberRecord
from mesh.cluster.peering import Peering
from mesh.cluster.view import Addresses, FramesOut, InterestView, LinkInfo, PeeringStatistics
from mesh.dataplane.counters import ExchangeStatistics, LinkLoss
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.queue_status import QueueStatus
from mesh.environment import Environment
from mesh.journal.port import CommitTimes


@dataclass(frozen=True, slots=True)
class Stock:
    """Serves stock SP sockets."""

    requests: StockRequests
    publishers: StockPublishers


class Inspection:
    """The view. All times are in seconds on the event loop's clock."""

    def __init__(
        self,
        *,
        name: str,
        options: BrokerOptions,
        environment: Environment,
        identity: Identity,
        log: EventLog,
        exchange: Exchange,
        peering: Peering,
        listeners: Listeners,
        stock: Stock,
        durable_file: DurableFile,
        journal: JournalOpening,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._options = options
        self._environment = environment
        self._identity = identity
        self._log = log
        self._exchange = exchange
        self._peering = peering
        self._listeners = listeners
        self._stock = stock
        self._durable_file = durable_file
        self._journal = journal
        self._clock = clock

    # --- its identity

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def mesh(self) -> str:
        return self._options.mesh

    @property
    def id(self) -> int:
        return self._identity.id

    @property
    def boot(self) -> int:
        """Drawn at each start."""
        return self._identity.boot

    @property
    def incarnation(self) -> int:
        return self._peering.incarnation

    @property
    def state(self) -> str:
        """``joining``, ``ready``, ``isolated`` or ``leaving``."""
        return str(self._peering.state)

    @property
    def url(self) -> str:
        """The address that peers are told. While a wildcard's address is not known, the first one bound."""
        return self._peering.url or next(iter(self._listeners.urls), "")

    @property
    def client_url(self) -> str:
        """The address that clients are told."""
        return self._peering.client_url or self.url

    @property
    def listeners(self) -> tuple[str, ...]:
        """All addresses, as bound."""
        return tuple(self._listeners.urls)

    # --- the other brokers

    @property
    def awaited(self) -> tuple[str, ...]:
        """Brokers that a joining broker has not heard from yet: names, and the URLs to join until the first
        link."""
        return tuple(dict.fromkeys((*self._peering.joining.unheard, *self._exchange.absent())))

    @property
    def records(self) -> tuple[MemberRecord, ...]:
        """The records of all members, this broker's own first. Cheap."""
        return self._peering.view.records()

    @property
    def digest(self) -> bytes:
        """Eight bytes over all living members. Equal tables have equal digests."""
        return self._peering.membership.digest

    @property
    def members(self) -> tuple[MemberStatus, ...]:
        """All members with their links and counters, this broker first."""
        links = {link.peer: link for link in self._peering.view.links()}
        views: list[MemberStatus] = []
        for member in self._peering.view.members():
            record = member.record
            link = links.get(record.id)
            views.append(
                MemberStatus(
                    id=record.id,
                    name=record.name,
                    state=str(record.state),
                    incarnation=record.incarnation,
                    boot=record.boot,
                    url=record.peer_url,
                    host=record.host,
                    since=member.since,
                    link=None if link is None else self._link(record.id, link),
                    is_self=member.is_self,
                )
            )
        return tuple(views)

    @property
    def linked(self) -> tuple[int, ...]:
        """Ids of the members to which a link is up. Cheap."""
        return self._peering.view.linked

    @property
    def links(self) -> tuple[LinkStatus, ...]:
        """All links, including those that are down now if they carried anything. Counters are since boot."""
        links = {link.peer: link for link in self._peering.view.links()}
        others = [record.id for record in self.records[1:]]
        views = [self._link(peer, links.get(peer)) for peer in others]
        return tuple(view for view in views if view.peer in links or any(view.traffic))

    @property
    def admissions(self) -> tuple[str, ...]:
        """The stage of each connection that is to become a link."""
        return self._peering.view.admissions

    @property
    def addresses(self) -> Addresses:
        """Addresses at which it looks for others, besides those of members."""
        return self._peering.view.addresses()

    @property
    def interest(self) -> InterestView:
        """Its own interest and what it holds of the others'. The cost grows with the number of patterns."""
        return self._peering.view.interest()

    @property
    def homes(self) -> Mapping[int, HomeTable]:
        """The durable subscriptions that it knows, by home. Cheap: a live view, unlike the other parts."""
        return self._peering.durable.homes

    @property
    def unknown_homes(self) -> tuple[str, ...]:
        """Brokers that may be homes and whose durable subscriptions it does not know."""
        return self._peering.durable.unknown()

    @property
    def journal_failure(self) -> str:
        """Why it stores nothing. Empty if the only reason is the lack of a state folder."""
        home = self._exchange.home
        return home.failure if home is not None else ""

    @property
    def peering(self) -> PeeringStatistics:
        """Counters of heartbeat, gossip and admission."""
        return self._peering.view.statistics()

    @property
    def last_void_round(self) -> float | None:
        """When its last void round was. None: never."""
        return self._peering.membership.last_void

    @property
    def frames_out(self) -> FramesOut:
        """Frames sent to other brokers."""
        return self._peering.view.frames_out()

    @property
    def certificates(self) -> tuple[Expiry, ...]:
        """Expiry dates of the certificates of its TLS addresses."""
        return self._listeners.certificate_dates()

    # --- the disk

    @property
    def log(self) -> LogStatus:
        """The event log."""
        return self._log.status()

    @property
    def state_file(self) -> StateStatus | None:
        """The file that keeps id, incarnation and known peers. None if there is none."""
        return self._identity.status()

    @property
    def durable_file(self) -> StateStatus | None:
        """The file that keeps the durable subscriptions of all homes. None if there is none."""
        return self._durable_file.status()

    # --- durable subscriptions

    @property
    def queues(self) -> tuple[QueueStatus, ...]:
        """The subscriptions that have their home here, by name. Figures from the journal are those of the
        last look."""
        home = self._exchange.home
        return () if home is None else tuple(home.queues())

    @property
    def journal(self) -> JournalView | None:
        """The journal that keeps their messages. None if there is no journal, without a failure."""
        home, times = self._exchange.home, self._journal.times()
        if home is None or (times is None and not home.failure):
            return None
        return JournalView(home.journal_status(), times or CommitTimes(0, 0.0, 0.0))

    @property
    def queues_twice(self) -> dict[str, list[str]]:
        """Durable subscriptions that have more than one home, with the names of these."""
        return self._exchange.durable_routes.twice()

    # --- messages

    @property
    def exchange(self) -> ExchangeStatistics:
        """Counters of the data plane. The cost grows with the number of subscriptions."""
        return self._exchange.statistics()

    @property
    def link_losses(self) -> dict[int, LinkLoss]:
        """Messages that did not arrive at other brokers, by broker id, except those that receipts name."""
        return self._exchange.link_losses()

    @property
    def wanted(self) -> Collection[str]:
        """The patterns that it wants. Cheap: a live view, unlike the other parts. Read it at once."""
        return self._exchange.wanted

    @property
    def load(self) -> Load:
        """Counters of the broker as a whole, as the status and the ``stats`` rows show them."""
        data = self.exchange
        return Load(
            published=data.published,
            delivered=data.delivered,
            dropped=data.dropped,
            traffic=Traffic(data.msgs_in, data.msgs_out, data.bytes_in, data.bytes_out),
            drops=data.drops,
            unresolved=data.unresolved,
            refused=self._refused(data.refused),
            sessions=data.sessions,
            subscriptions=data.subscriptions,
            taps=data.taps,
            rss_bytes=self._environment.rss_bytes(),
        )

    @property
    def traffic(self) -> Traffic:
        """The part of `load` that is cheap."""
        return Traffic(*self._exchange.totals.traffic())

    @property
    def messages(self) -> tuple[int, int]:
        """Messages published and delivered, as in `load`. Cheap."""
        return self._exchange.totals.messages()

    @property
    def refused(self) -> dict[str, int]:
        """Connections and sessions that were refused, or ended for a broken rule, by reason."""
        return self._refused(self.exchange.refused)

    def _refused(self, sessions: Mapping[str, int]) -> dict[str, int]:
        totals: dict[str, int] = {}
        stock = {
            "stock_publisher": self._stock.publishers.refused,
            "stock_request": self._stock.requests.refused,
        }
        for counts in (self._listeners.refused(), self._peering.view.statistics().refused, sessions, stock):
            for said, count in counts.items():
                if count:
                    reason = as_key(said)
                    totals[reason] = totals.get(reason, 0) + count
        return totals

    def _link(self, peer: int, link: LinkInfo | None) -> LinkStatus:
        counters = self._exchange.link_statistics(peer)
        return LinkStatus(
            peer=peer,
            dialed=link is not None and link.dialed,
            up_since=0.0 if link is None else link.up_since,
            rtt_s=None if link is None else link.rtt_s,
            traffic=Traffic(counters.msgs_in, counters.msgs_out, counters.bytes_in, counters.bytes_out),
            dropped=counters.dropped,
            lost=counters.lost,
            queued=counters.queued,
        )
