"""The metrics of a broker in the text format of Prometheus. Pure.

Names follow Prometheus' conventions: prefix ``mangrove_``, base units (seconds, bytes), the unit last, and
``_total`` behind counters. A label has a bounded set of values: the links and durable subscriptions that came
first have series of their own (`Named`), and the others are summed under `OTHER`. A figure that the broker
does not know has no sample.

`METRICS` is the one list of names and meanings; the reference in the docs is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from mesh.dataplane.counters import NO_LOSS
from mesh.http.source import Figures
from mesh.printable import printable

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LINKS_MAX: Final = 64
QUEUES_MAX: Final = 64
REASONS_MAX: Final = 100
OTHER: Final = "other"
LOSSES: Final = (
    "slow_subscriber",
    "slow_stock_subscriber",
    "slow_link",
    "unfinished_body",
    "subscriber_gone",
    "link_down",
    "link_lost",
    "no_link",
    "not_allowed",
    "joining",
    "leaving",
    "bad_topic",
)
"""The usual reasons to drop messages that are owed."""
STATES: Final = ("joining", "ready", "isolated", "leaving")
MEMBER_STATES: Final = ("alive", "suspect", "dead", "left")

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


class Metric(NamedTuple):
    """One metric: a counter if its name ends with ``_total``, otherwise a gauge."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[View], Iterable[Sample]]

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")


class Named:
    """Names that have a series of their own: those that came first. A place is free again when its owner has
    gone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}

    def choose(self, present: Sequence[str]) -> frozenset[str]:
        """The names of ``present`` that have a series."""
        here = set(present)
        for name in [name for name in self._names if name not in here]:
            del self._names[name]
        for name in present:
            if len(self._names) >= self._most:
                break
            self._names.setdefault(name)
        return frozenset(self._names)


class Metrics:
    """The metrics of one broker; it remembers which names have series of their own."""

    def __init__(self) -> None:
        self._links = Named(LINKS_MAX)
        self._queues = Named(QUEUES_MAX)

    def text(self, figures: Figures, answers: Mapping[int, int]) -> bytes:
        """The text of all metrics; ``answers`` counts those over HTTP by status."""
        view = View(figures, answers, self._links, self._queues)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(cast(Any, _Collected([_family(metric, view) for metric in METRICS])))
        return bytes(generate_latest(registry))


class _Collected:
    """Metric families that exist already, in the form that the library collects."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        return iter(self._families)


def _family(metric: Metric, view: View) -> Any:
    kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.samples(view):
        family.add_metric(labels, value)
    return family


class View:
    """A status, arranged for the metrics."""

    def __init__(
        self, figures: Figures, answers: Mapping[int, int], named_links: Named, named_queues: Named
    ) -> None:
        self.status = figures.status
        self.now_s = figures.now_us / 1e6
        self.answers = answers
        self.links = self._links(named_links)
        self.queues = self._queues(figures, named_queues)

    def _links(self, named: Named) -> dict[str, list[Mapping[str, Any]]]:
        """Links by the name of their peer. Links of one name are together, and so are those without a
        series."""
        linked = [(_name(member), member["link"]) for member in self.status["members"] if member["link"]]
        chosen = named.choose([name for name, _ in linked])
        found: dict[str, list[Mapping[str, Any]]] = {}
        for name, link in linked:
            found.setdefault(name if name in chosen else OTHER, []).append(link)
        return found

    @staticmethod
    def _queues(figures: Figures, named: Named) -> dict[str, dict[str, float | None]]:
        """Durable subscriptions by name. The others have only the sums that cost little."""
        names = [queue.name for queue in figures.queues]
        chosen = named.choose(names)
        found: dict[str, dict[str, float | None]] = {}
        for queue in figures.queues:
            if queue.name in chosen:
                found[_clean(queue.name)] = queue.entry(figures.now_us)
                continue
            other = found.setdefault(OTHER, {"waiting": 0, "bytes": 0})
            other["waiting"] = (other["waiting"] or 0) + queue.waiting
            other["bytes"] = (other["bytes"] or 0) + (queue.size or 0)
        return found

    def of_links(self, key: str, *, scale: float = 1.0, most: bool = False) -> Iterator[Sample]:
        """A figure of each link; for several the sum, or the greatest."""
        for name, links in self.links.items():
            values = [link[key] for link in links if link[key] is not None]
            if values:
                yield (name,), scale * (max(values) if most else sum(values))

    def of_queues(self, key: str) -> Iterator[Sample]:
        for name, queue in self.queues.items():
            value = queue.get(key)
            if value is not None:
                yield (name,), value

    def at(self, *path: str) -> list[Sample]:
        """One figure of the status; none if it is not known."""
        found: Any = self.status
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return [] if found is None else [((), float(found))]

    def drops(self, *, lost: bool) -> Iterator[Sample]:
        """Messages dropped by reason: those that somebody lost, or the others. A counter that begins above
        zero has no rate, so reasons that have not occurred are there with 0."""
        counts = dict.fromkeys(LOSSES if lost else NO_LOSS, 0)
        drops = self.status["drops"].items()
        return self.reasons(counts | {reason: n for reason, n in drops if (reason not in NO_LOSS) == lost})

    def reasons(self, counts: Mapping[str, int]) -> Iterator[Sample]:
        """A table of counts by reason. Reasons are our own words; the bound guards against a mistake."""
        for number, (reason, count) in enumerate(counts.items()):
            if number == REASONS_MAX:
                yield (OTHER,), sum(list(counts.values())[REASONS_MAX:])
                return
            yield (_clean(reason),), count


def _name(member: Mapping[str, Any]) -> str:
    return _clean(str(member["name"]))


def _clean(text: str) -> str:
    return printable(text)


def _at(*path: str) -> Callable[[View], Iterable[Sample]]:
    return lambda view: view.at(*path)


def _info(view: View) -> Iterator[Sample]:
    status = view.status
    yield tuple(_clean(str(status[key])) for key in ("mesh", "name", "id", "version")), 1


def _members(view: View) -> Iterator[Sample]:
    counts = dict.fromkeys(MEMBER_STATES, 0)
    for member in view.status["members"]:
        counts[member["state"]] = counts.get(member["state"], 0) + 1
    for state, count in counts.items():
        yield (state,), count


def _certificates(view: View) -> Iterator[Sample]:
    soonest: dict[str, float] = {}
    for each in view.status["certificates"]:
        when = datetime.fromisoformat(each["expires"]).timestamp()
        soonest[_clean(each["url"])] = min(when, soonest.get(each["url"], when))
    for url, when in soonest.items():
        yield (url,), when


def _journal_fails(view: View) -> list[Sample]:
    journal = view.status["journal"]
    return [] if journal is None else [((), 1.0 if journal["failing"] else 0.0)]


def _milliseconds(*path: str) -> Callable[[View], Iterable[Sample]]:
    return lambda view: [(labels, value / 1e3) for labels, value in view.at(*path)]


def _link(key: str, *, scale: float = 1.0, most: bool = False) -> Callable[[View], Iterable[Sample]]:
    return lambda view: view.of_links(key, scale=scale, most=most)


def _queue(key: str) -> Callable[[View], Iterable[Sample]]:
    return lambda view: view.of_queues(key)


PEER: Final = ("peer",)
QUEUE: Final = ("queue",)
REASON: Final = ("reason",)

METRICS: Final = (
    Metric("mangrove_broker_info", "The broker; always 1.", ("mesh", "broker", "id", "version"), _info),
    Metric(
        "mangrove_broker_state",
        "1 for the state the broker is in, 0 for the others.",
        ("state",),
        lambda view: (((state,), float(view.status["state"] == state)) for state in STATES),
    ),
    Metric(
        "mangrove_start_time_seconds",
        "Time when the broker started, since the epoch.",
        (),
        lambda view: [((), view.now_s - view.status["uptime_s"])],
    ),
    Metric("mangrove_members", "Brokers of the mesh that this one knows, by state.", ("state",), _members),
    Metric(
        "mangrove_links",
        "Links to other brokers that are up.",
        (),
        lambda view: [((), sum(1 for member in view.status["members"] if member["link"]))],
    ),
    *(
        Metric(name, help, (), _at("totals", key))
        for name, help, key in (
            ("mangrove_messages_published_total", "Messages accepted from publishers.", "published"),
            ("mangrove_messages_delivered_total", "Messages handed to subscribers.", "delivered"),
            ("mangrove_messages_received_total", "Messages received from clients and links.", "msgs_in"),
            ("mangrove_messages_sent_total", "Messages sent to clients and links.", "msgs_out"),
            ("mangrove_received_bytes_total", "Bytes of received messages.", "bytes_in"),
            ("mangrove_sent_bytes_total", "Bytes of sent messages.", "bytes_out"),
        )
    ),
    Metric(
        "mangrove_messages_dropped_total",
        "Messages that a subscriber or a link was owed and did not get, by reason.",
        REASON,
        lambda view: view.drops(lost=True),
    ),
    Metric(
        "mangrove_messages_set_aside_total",
        "Messages and answers that were dropped and that nobody lost, by reason.",
        REASON,
        lambda view: view.drops(lost=False),
    ),
    Metric(
        "mangrove_messages_unresolved",
        "Messages in flight when links or sessions ended, which may not have arrived.",
        (),
        _at("unresolved"),
    ),
    Metric(
        "mangrove_connections_refused_total",
        "Connections and sessions refused or ended for a broken rule, by reason.",
        REASON,
        lambda view: view.reasons(view.status["refused"]),
    ),
    Metric("mangrove_sessions", "Sessions of clients.", (), _at("sessions")),
    Metric("mangrove_subscriptions", "Subscriptions of clients.", (), _at("subscriptions")),
    Metric(
        "mangrove_patterns",
        "Patterns that this broker tells others it wants.",
        (),
        lambda view: [((), len(view.status["interest"]))],
    ),
    Metric(
        "mangrove_event_loop_lateness_median_seconds",
        "How late the event loop ran its timers in the last interval, at the median.",
        (),
        _milliseconds("loop", "late_ms_p50"),
    ),
    Metric(
        "mangrove_event_loop_lateness_max_seconds",
        "How late the event loop ran its timers in the last interval, at worst.",
        (),
        _milliseconds("loop", "late_ms_max"),
    ),
    Metric(
        "mangrove_defects_total",
        "Defects that the broker met and survived; each is in the log.",
        (),
        _at("loop", "faults"),
    ),
    Metric("mangrove_resident_memory_bytes", "Memory in RAM.", (), _at("rss_bytes")),
    Metric(
        "mangrove_link_round_trip_seconds",
        "Round trip to a broker, of the last heartbeat.",
        PEER,
        _link("rtt_ms", scale=1e-3, most=True),
    ),
    *(
        Metric(name, help, PEER, _link(key))
        for name, help, key in (
            ("mangrove_link_messages_received_total", "Messages received over a link.", "msgs_in"),
            ("mangrove_link_messages_sent_total", "Messages sent over a link.", "msgs_out"),
            ("mangrove_link_received_bytes_total", "Bytes of messages received over a link.", "bytes_in"),
            ("mangrove_link_sent_bytes_total", "Bytes of messages sent over a link.", "bytes_out"),
            ("mangrove_link_messages_dropped_total", "Messages dropped instead of sent.", "dropped"),
            ("mangrove_link_messages_lost_total", "Messages lost with a link that ended.", "lost"),
            ("mangrove_link_queued_messages", "Messages that wait for a link.", "queued"),
        )
    ),
    *(
        Metric(name, help, QUEUE, _queue(key))
        for name, help, key in (
            ("mangrove_queue_waiting_messages", "Messages not settled.", "waiting"),
            ("mangrove_queue_waiting_bytes", "Bytes of the blocks that hold them.", "bytes"),
            ("mangrove_queue_oldest_message_age_seconds", "Age of the oldest message.", "oldest_s"),
            ("mangrove_queue_consumers", "Consumers.", "consumers"),
            ("mangrove_queue_in_flight_messages", "Messages that consumers hold.", "in_flight"),
            ("mangrove_queue_messages_delivered_total", "Messages handed to consumers.", "delivered"),
            ("mangrove_queue_messages_redelivered_total", "Messages handed out again.", "redelivered"),
            ("mangrove_queue_messages_settled_total", "Messages settled.", "settled"),
            ("mangrove_queue_messages_retried_total", "Messages to be tried again.", "retried"),
            ("mangrove_queue_dead_letters_total", "Messages that became dead letters.", "buried"),
        )
    ),
    Metric(
        "mangrove_journal_messages_stored_total",
        "Messages that the journal has stored.",
        (),
        _at("journal", "stored"),
    ),
    Metric(
        "mangrove_journal_messages_refused_total",
        "Messages that the journal had no room for.",
        (),
        _at("journal", "refused"),
    ),
    Metric(
        "mangrove_journal_damaged_blocks_total",
        "Stored blocks that were found damaged and are not delivered.",
        (),
        _at("journal", "damaged"),
    ),
    Metric(
        "mangrove_journal_commit_p99_seconds",
        "Duration of a commit, at the 99th percentile.",
        (),
        _milliseconds("journal", "commit_ms_p99"),
    ),
    Metric("mangrove_journal_failing", "1 while the journal cannot store.", (), _journal_fails),
    Metric(
        "mangrove_event_log_rows_lost_total",
        "Rows of the event log that were lost for want of room.",
        (),
        _at("log", "lost"),
    ),
    Metric(
        "mangrove_certificate_expiry_timestamp_seconds",
        "Time when the certificate of an address expires, since the epoch.",
        ("address",),
        _certificates,
    ),
    Metric(
        "mangrove_http_answers_total",
        "Answers over HTTP, by status.",
        ("status",),
        lambda view: (((str(int(status)),), count) for status, count in view.answers.items()),
    ),
)
"""Every metric."""
