"""The status of one broker as one JSON object, which ``$sys.status`` returns and the console reads.

Pure: numbers go in, a dict comes out. The keys are the public interface (``docs/reference/status.md``).
Unknown values are null, never 0. The meters here turn counters into useful figures: lateness of the event
loop over an interval, and rates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final, NamedTuple

from mesh.broker.certificate_dates import Expiry
from mesh.broker.event_log import LogStatus
from mesh.broker.identity import StateStatus, format_id
from mesh.dataplane.queue_status import JournalStatus, QueueStatus
from mesh.journal.port import CommitTimes

SCHEMA: Final = 1
QUEUES_SHOWN: Final = 200
"""Durable subscriptions in a status: those with most messages. ``mesh queue ls`` lists all."""
QUEUES_LOGGED: Final = 32
"""The same in a row of the event log."""


def as_key(phrase: str) -> str:
    """A refusal's reason as the status shows it: snake_case, whichever layer counted it."""
    return re.sub(r"[^a-z0-9]+", "_", phrase.lower())


class Traffic(NamedTuple):
    """Messages and bytes since boot."""

    msgs_in: int = 0
    msgs_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def counters(self) -> dict[str, int]:
        """All four by name, at half the cost of ``_asdict``."""
        return {
            "msgs_in": self.msgs_in,
            "msgs_out": self.msgs_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        }


class LinkStatus(NamedTuple):
    """One link as the snapshot and ``stats`` rows show it. Counters are since boot; ``queued`` is now."""

    peer: int
    dialed: bool
    up_since: float
    rtt_s: float | None
    traffic: Traffic
    dropped: int
    lost: int
    queued: int

    def stats_row(self) -> dict[str, Any]:
        """The entry in a ``stats`` row."""
        return {
            "peer": format_id(self.peer),
            **self.traffic.counters(),
            "dropped": self.dropped,
            "lost": self.lost,
            "rtt_us": None if self.rtt_s is None else int(self.rtt_s * 1e6 + 0.5),
        }

    def entry(self, now: float) -> dict[str, Any]:
        """The entry in a snapshot. ``now`` is on the loop's clock."""
        return {
            "dir": "out" if self.dialed else "in",
            "up_s": round(now - self.up_since, 3),
            "rtt_ms": None if self.rtt_s is None else round(self.rtt_s * 1e3, 3),
            **self.traffic.counters(),
            "dropped": self.dropped,
            "lost": self.lost,
            "queued": self.queued,
        }


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as this broker sees it. ``since`` is when it entered this state, on the loop's clock."""

    id: int
    name: str
    state: str
    incarnation: int
    boot: int
    url: str
    host: str
    since: float
    link: LinkStatus | None = None
    is_self: bool = False

    def entry(self, now: float) -> dict[str, Any]:
        """The entry in a snapshot. ``now`` is on the loop's clock."""
        return {
            "id": format_id(self.id),
            "name": self.name,
            "state": self.state,
            "incarnation": self.incarnation,
            "boot": format_id(self.boot),
            "url": self.url,
            "host": self.host,
            "since_s": round(now - self.since, 3),
            "self": self.is_self,
            "link": None if self.link is None else self.link.entry(now),
        }


@dataclass(frozen=True, slots=True)
class About:
    """Facts that do not change while a broker runs, and figures of the broker as a whole."""

    mesh: str
    id: int
    name: str
    boot: int
    incarnation: int
    host: str
    pid: int
    version: str
    url: str
    client_url: str
    listeners: Sequence[str]
    state: str
    started: float
    period_s: float
    http: str | None = None
    """The address at which it serves HTTP."""
    certificates: Sequence[Expiry] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Counters of the broker as a whole, since boot. ``unresolved``, sessions and subscriptions are now."""

    published: int
    delivered: int
    dropped: int
    traffic: Traffic
    drops: Mapping[str, int]
    unresolved: int
    refused: Mapping[str, int]
    sessions: int
    subscriptions: int
    taps: Sequence[str]
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal of durable subscriptions."""

    status: JournalStatus
    times: CommitTimes

    def entry(self) -> dict[str, Any]:
        """The entry in a snapshot."""
        status = self.status
        return {
            **self.stats_row(),
            "share": status.share,
            "filling": status.filling,
            "damaged": status.damaged,
            "in_vain": status.in_vain,
        }

    def stats_row(self) -> dict[str, Any]:
        """The entry in a ``stats`` row."""
        status, times = self.status, self.times
        return {
            "failing": status.failing or None,
            "stored": status.stored,
            "duplicates": status.duplicates,
            "refused": status.refused,
            "commits": times.commits,
            "commit_ms_p50": round(times.p50_s * 1e3, 3) if times.commits else None,
            "commit_ms_p99": round(times.p99_s * 1e3, 3) if times.commits else None,
        }


@dataclass(frozen=True, slots=True)
class HomeStatus:
    """The durable subscriptions whose home is this broker. ``now_us`` is since the epoch."""

    queues: Sequence[QueueStatus]
    journal: JournalView | None
    twice: Mapping[str, Sequence[str]]
    now_us: int

    def entries(self, most: int) -> list[dict[str, Any]]:
        """The subscriptions with most messages, ordered by name."""
        chosen = list(self.queues)
        if len(chosen) > most:
            chosen = nlargest(most, chosen, key=lambda queue: queue.waiting)
            chosen.sort(key=lambda queue: queue.name)
        return [queue.entry(self.now_us) for queue in chosen]


class LoopLateness:
    """How late the event loop runs its timers: samples of one interval become a median and a maximum.

    A pause of the whole process is one late sample, so the maximum shows its length.
    """

    def __init__(self) -> None:
        self.p50_ms = 0.0
        self.max_ms = 0.0
        self._samples: list[float] = []

    def note(self, late_s: float) -> None:
        """A timer that was due ``late_s`` ago runs now."""
        self._samples.append(late_s if late_s > 0.0 else 0.0)

    def close_interval(self) -> None:
        """Publish the interval's figures and begin the next."""
        if self._samples:
            samples = sorted(self._samples)
            self.p50_ms = round(samples[len(samples) // 2] * 1e3, 3)
            self.max_ms = round(samples[-1] * 1e3, 3)
            self._samples.clear()


class Rates:
    """Messages and bytes per second, over the last second or two."""

    def __init__(self, now: float) -> None:
        self.current: dict[str, float] = self._rates(Traffic(), (0, 0), 1.0)
        self._last = Traffic()
        self._last_messages = (0, 0)
        self._last_at = now

    def update(self, traffic: Traffic, messages: tuple[int, int], now: float) -> None:
        """Call this about once a second with the counters since boot. ``messages``: published, delivered."""
        elapsed = now - self._last_at
        if elapsed <= 0:
            return
        last = self._last
        change = Traffic(
            traffic.msgs_in - last.msgs_in,
            traffic.msgs_out - last.msgs_out,
            traffic.bytes_in - last.bytes_in,
            traffic.bytes_out - last.bytes_out,
        )
        published, delivered = (new - old for new, old in zip(messages, self._last_messages, strict=True))
        self.current = self._rates(change, (published, delivered), elapsed)
        self._last, self._last_messages, self._last_at = traffic, messages, now

    @staticmethod
    def _rates(change: Traffic, messages: tuple[int, int], elapsed: float) -> dict[str, float]:
        counters = {**change.counters(), "published": messages[0], "delivered": messages[1]}
        return {f"{key}_s": round(max(0, value) / elapsed, 1) for key, value in counters.items()}


def build_snapshot(
    about: About,
    members: Sequence[MemberStatus],
    load: Load,
    lateness: LoopLateness,
    rates: Rates,
    events: Sequence[Mapping[str, Any]],
    *,
    interest: Collection[str],
    stored: HomeStatus,
    log: LogStatus,
    state_file: StateStatus | None,
    durable_file: StateStatus | None,
    faults: int,
    now: float,
) -> dict[str, Any]:
    """The whole status. ``now`` is on the loop's clock."""
    return {
        "schema": SCHEMA,
        "mesh": about.mesh,
        "id": format_id(about.id),
        "name": about.name,
        "boot": format_id(about.boot),
        "incarnation": about.incarnation,
        "host": about.host,
        "pid": about.pid,
        "version": about.version,
        "url": about.url,
        "client_url": about.client_url,
        "listeners": list(about.listeners),
        "http": about.http,
        "certificates": [expiry.entry() for expiry in about.certificates],
        "state": about.state,
        "uptime_s": round(now - about.started, 3),
        "period_s": about.period_s,
        "members": [member.entry(now) for member in members],
        "totals": {
            "published": load.published,
            "delivered": load.delivered,
            "dropped": load.dropped,
            **load.traffic.counters(),
        },
        "rates": dict(rates.current),
        "drops": dict(load.drops),
        "unresolved": load.unresolved,
        "refused": dict(load.refused),
        "loop": {"late_ms_p50": lateness.p50_ms, "late_ms_max": lateness.max_ms, "faults": faults},
        "rss_bytes": load.rss_bytes,
        "sessions": load.sessions,
        "subscriptions": load.subscriptions,
        "interest": interest,
        "taps": list(load.taps),
        "queues": stored.entries(QUEUES_SHOWN),
        "queues_count": len(stored.queues),
        "queues_twice": {name: list(homes) for name, homes in stored.twice.items()},
        "journal": None if stored.journal is None else stored.journal.entry(),
        "log": log.entry(),
        "state_file": None if state_file is None else state_file.entry(),
        "durable_file": None if durable_file is None else durable_file.entry(),
        "events": list(events),
        "omitted": {},
    }


def stats_fields(
    load: Load, links: Sequence[LinkStatus], lateness: LoopLateness, stored: HomeStatus
) -> dict[str, Any]:
    """The fields of a ``stats`` row. A broker that is no home lacks the last two."""
    fields: dict[str, Any] = {
        "published": load.published,
        "delivered": load.delivered,
        "dropped": load.dropped,
        "loop_late_ms_p50": lateness.p50_ms,
        "loop_late_ms_max": lateness.max_ms,
        "rss_bytes": load.rss_bytes,
        "links": [link.stats_row() for link in links],
        "drops": dict(load.drops),
    }
    if stored.journal is not None:
        fields["queues"] = stored.entries(QUEUES_LOGGED)
        fields["journal"] = stored.journal.stats_row()
    return fields
