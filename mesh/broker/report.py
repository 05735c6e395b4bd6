"""The status of a running broker, and the fields of its ``stats`` and ``meta`` rows.

All are made from one `Inspection`. Two meters here turn counters into figures for an interval.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from mesh.broker.inspection import Inspection
from mesh.broker.options import BrokerOptions
from mesh.broker.status import About, HomeStatus, LoopLateness, Rates, build_snapshot, stats_fields
from mesh.broker.status_encoding import encode_status
from mesh.environment import Environment
from mesh.http.source import Figures

STATUS_AGE_S: Final = 0.2
"""Seconds for which one answer serves all requests, so that many cost about as much as one."""


def version() -> str:
    """The version of the installed distribution."""
    try:
        return importlib.metadata.version("mangrove-mesh")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Report:
    """Reads the broker; changes only its own meters. ``events``: the latest rows, which grow outside."""

    def __init__(
        self,
        inspection: Inspection,
        *,
        options: BrokerOptions,
        environment: Environment,
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        self.leaving = False
        self.http_url = ""
        """The address at which the broker serves HTTP. Empty if it does not."""
        self.options = options
        self.lateness = LoopLateness()
        self.faults: Callable[[], int] = lambda: 0
        """Number of defects that were survived."""
        self._inspection = inspection
        self._environment = environment
        self._events = events
        self._started = inspection.now
        self._rates = Rates(self._started)
        self._version = version()
        self._answer = b""
        self._answer_until = self._started

    def status(self) -> bytes:
        """The snapshot as JSON, cut to fit into one answer; at most `STATUS_AGE_S` old."""
        now = self._inspection.now
        if now >= self._answer_until:
            self._answer = encode_status(self._snapshot(self._inspection.wanted))
            self._answer_until = now + STATUS_AGE_S
        return self._answer

    def snapshot(self) -> dict[str, Any]:
        """The whole status object. The cost grows with the number of patterns."""
        return self._snapshot(list(self._inspection.wanted))

    def figures(self) -> Figures:
        """The snapshot with a live view of the patterns, so that their number costs nothing."""
        inspection = self._inspection
        now_us = int(self._environment.wall_time() * 1e6)
        return Figures(self._snapshot(inspection.wanted), inspection.queues, now_us)

    def _snapshot(self, interest: Collection[str]) -> dict[str, Any]:
        inspection = self._inspection
        return build_snapshot(
            self._about(),
            inspection.members,
            inspection.load,
            self.lateness,
            self._rates,
            self._events,
            interest=interest,
            stored=self._stored(),
            log=inspection.log,
            state_file=inspection.state_file,
            durable_file=inspection.durable_file,
            faults=self.faults(),
            now=inspection.now,
        )

    def members(self) -> list[dict[str, Any]]:
        """Only the members of the snapshot."""
        now = self._inspection.now
        return [member.entry(now) for member in self._inspection.members]

    def stats_fields(self) -> dict[str, Any]:
        """The fields of a ``stats`` row. Ends the interval of the lateness meter."""
        self.lateness.close_interval()
        return stats_fields(self._inspection.load, self._inspection.links, self.lateness, self._stored())

    def _stored(self) -> HomeStatus:
        inspection = self._inspection
        now_us = int(self._environment.wall_time() * 1e6)
        return HomeStatus(inspection.queues, inspection.journal, inspection.queues_twice, now_us)

    def meta_fields(self) -> dict[str, Any]:
        """The fields of both ``meta`` rows."""
        options, environment = self.options, self._environment
        return {
            "name": self._inspection.name,
            "host": environment.host,
            "pid": environment.pid,
            "version": self._version,
            "period_s": options.period_s,
            "deadline_s": options.deadline_s,
            "stats_s": options.stats_s,
            "url": self._inspection.url,
        }

    def update_rates(self) -> None:
        """Call this about once a second."""
        inspection = self._inspection
        self._rates.update(inspection.traffic, inspection.messages, inspection.now)

    def _about(self) -> About:
        inspection, options = self._inspection, self.options
        return About(
            mesh=options.mesh,
            id=inspection.id,
            name=inspection.name,
            boot=inspection.boot,
            incarnation=inspection.incarnation,
            host=self._environment.host,
            pid=self._environment.pid,
            version=self._version,
            url=inspection.url,
            client_url=inspection.client_url,
            listeners=inspection.listeners,
            state="leaving" if self.leaving else inspection.state,
            started=self._started,
            period_s=options.period_s,
            http=self.http_url or None,
            certificates=inspection.certificates,
        )
