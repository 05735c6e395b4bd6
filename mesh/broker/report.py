"""What a running broker says of itself: gathers counters from everything it is made of.

One place, so that the status, the ``stats`` rows and the rates are made of the same numbers.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from typing import Any

from mesh.broker.event_log import EventLog
from mesh.broker.identity import Identity
from mesh.broker.listeners import Doors
from mesh.broker.options import BrokerOptions
from mesh.broker.status import (
    About,
    LinkView,
    Load,
    LoopLateness,
    MemberView,
    Rates,
    Traffic,
    build_snapshot,
    stats_fields,
)
from mesh.broker.stock import StockPublishers, StockRequests, StockTaps
from mesh.cluster.peering import LinkInfo, Peering
from mesh.dataplane.exchange import Exchange
from mesh.environment import Environment


def version() -> str:
    """Of the installed distribution."""
    try:
        return importlib.metadata.version("mangrove-mesh")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Report:
    """Reads; changes nothing but its own meters."""

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
        doors: Doors,
        stock: tuple[StockRequests, StockPublishers, StockTaps],
        clock: Callable[[], float],
    ) -> None:
        self.leaving = False
        self.lateness = LoopLateness()
        self._name = name
        self._options = options
        self._environment = environment
        self._identity = identity
        self._log = log
        self._exchange = exchange
        self._peering = peering
        self._doors = doors
        self._requests, self._publishers, self._taps = stock
        self._clock = clock
        self._started = clock()
        self._rates = Rates(self._started)
        self._version = version()

    @property
    def url(self) -> str:
        """What peers are told; until that is known (a wildcard before any link) the first address bound."""
        return self._peering.url or next(iter(self._doors.urls), "")

    def status(self) -> bytes:
        """The snapshot as JSON."""
        return json.dumps(self.snapshot(), separators=(",", ":")).encode()

    def snapshot(self) -> dict[str, Any]:
        """The status object."""
        return build_snapshot(
            self._about(),
            self._members(),
            self._load(),
            self.lateness,
            self._rates,
            self._log.events,
            now=self._clock(),
        )

    def members(self) -> list[dict[str, Any]]:
        """Only the members of the snapshot."""
        now = self._clock()
        return [member.status(now) for member in self._members()]

    def stats_fields(self) -> dict[str, Any]:
        """A ``stats`` row's; ends the interval of the lateness meter."""
        self.lateness.close_interval()
        return stats_fields(self._load(), self._all_links(), self.lateness)

    def meta_fields(self) -> dict[str, Any]:
        """What both ``meta`` rows say."""
        options, environment = self._options, self._environment
        return {
            "name": self._name,
            "host": environment.host,
            "pid": environment.pid,
            "version": self._version,
            "period_s": options.period_s,
            "deadline_s": options.deadline_s,
            "stats_s": options.stats_s,
            "url": self.url,
        }

    def update_rates(self) -> None:
        """To be called about once a second."""
        self._rates.update(Traffic(*self._exchange.traffic()), self._clock())

    def _about(self) -> About:
        options, peering = self._options, self._peering
        return About(
            mesh=options.mesh,
            id=self._identity.id,
            name=self._name,
            boot=self._identity.boot,
            incarnation=peering.incarnation,
            host=self._environment.host,
            pid=self._environment.pid,
            version=self._version,
            url=self.url,
            client_url=peering.client_url or self.url,
            listeners=self._doors.urls,
            state="leaving" if self.leaving else str(peering.state),
            started=self._started,
            period_s=options.period_s,
        )

    def _members(self) -> list[MemberView]:
        links = {link.peer: link for link in self._peering.links()}
        views: list[MemberView] = []
        for member in self._peering.members():
            record = member.record
            link = links.get(record.id)
            views.append(
                MemberView(
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
        return views

    def _all_links(self) -> list[LinkView]:
        """Also those that are down now, if they carried anything: counters are since boot."""
        links = {link.peer: link for link in self._peering.links()}
        others = [member.record.id for member in self._peering.members() if not member.is_self]
        views = [self._link(peer, links.get(peer)) for peer in others]
        return [view for view in views if view.peer in links or any(view.traffic)]

    def _link(self, peer: int, link: LinkInfo | None) -> LinkView:
        counters = self._exchange.link_statistics(peer)
        return LinkView(
            peer=peer,
            dialed=link is not None and link.dialed,
            up_since=0.0 if link is None else link.up_since,
            rtt_s=None if link is None else link.rtt_s,
            traffic=Traffic(counters.msgs_in, counters.msgs_out, counters.bytes_in, counters.bytes_out),
            dropped=counters.dropped,
            lost=counters.lost,
            queued=counters.queued,
        )

    def _load(self) -> Load:
        data = self._exchange.statistics()
        drops = dict(data.drops)
        if self._taps.dropped:
            drops["slow_stock_subscriber"] = self._taps.dropped
        return Load(
            published=data.published,
            delivered=data.delivered,
            dropped=data.dropped + self._taps.dropped,
            traffic=Traffic(data.msgs_in, data.msgs_out, data.bytes_in, data.bytes_out),
            drops=drops,
            refused=self._refused(data.refused),
            sessions=data.sessions,
            subscriptions=data.subscriptions,
            interest=data.interest,
            taps=data.taps,
            rss_bytes=self._environment.rss_bytes(),
        )

    def _refused(self, sessions: Mapping[str, int]) -> dict[str, int]:
        """Everything that cost a peer its connection or its session, by reason."""
        totals: dict[str, int] = {}
        stock = {"stock publisher": self._publishers.refused, "stock request": self._requests.refused}
        for counts in (self._doors.refused(), self._peering.statistics().refused, sessions, stock):
            for reason, count in counts.items():
                if count:
                    totals[reason] = totals.get(reason, 0) + count
        return totals
