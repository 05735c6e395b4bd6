"""One picture of the mesh, made from the statuses of its brokers.

A broker's status (``$sys.status``) has its own figures and its view of every member. Several of them make a
`Picture`: nodes, links as both ends see them, the parts of the mesh, and one feed of events (`mesh.news`).
Brokers may disagree: the shown state is that of the broker asked first, with the number of brokers that
agree. The console (`mesh.console`) and the page (`mesh.http`) show pictures.

Pure, and tolerant of its input: a broker of another version may have other keys. All text of a picture is
printable, since names, hosts and reasons come from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

from mesh.news import News, feed
from mesh.printable import counted, printable, printable_document

Status = Mapping[str, Any]
LIVE: Final = ("alive", "suspect")


@dataclass(frozen=True, slots=True)
class Vertex:
    """One broker. Figures are None if the broker itself did not answer."""

    id: str
    name: str
    state: str
    agree: int
    observers: int
    host: str
    url: str
    incarnation: int
    since_s: float | None
    rtt_ms: float | None
    answered: bool
    connected: bool
    mode: str | None = None
    uptime_s: float | None = None
    msgs_in_s: float | None = None
    msgs_out_s: float | None = None
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    published_s: float | None = None
    delivered_s: float | None = None
    published: int | None = None
    delivered: int | None = None
    dropped: int | None = None
    lost: int | None = None
    queued: int | None = None
    late_ms: float | None = None
    rss_bytes: int | None = None
    sessions: int | None = None
    subscriptions: int | None = None
    taps: int = 0
    disk: tuple[str, ...] = ()
    """Files that it cannot write now, each with its reason."""
    filling: str = ""
    """How full its journal is, once that is a warning."""
    run: str = ""
    """Changes when the broker restarts and its counters start from zero."""
    omitted: tuple[tuple[str, int], ...] = ()
    """Incomplete lists in its status, each with the number of missing entries."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link. ``ends`` is how many of its two brokers report it; with only one, half of it may be broken."""

    a: str
    b: str
    ends: int
    heard: int
    rtt_ms: float | None
    dropped: int
    lost: int
    msgs_s: float | None

    @property
    def whole(self) -> bool:
        """Every end that could be asked reports the link."""
        return self.ends == self.heard


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole content of the screen at one moment."""

    mesh: str
    connected: str
    nodes: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    parts: tuple[tuple[str, ...], ...]
    news: tuple[News, ...]
    drops: dict[str, int]
    refused: dict[str, int]
    silent: tuple[str, ...]
    unlisted: int
    """Members that a broker knows but no status had room for."""
    views: dict[str, dict[str, str]]
    queues: tuple[Mapping[str, Any], ...] = ()
    """Durable subscriptions, each with the name of its ``home``."""
    journals: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """The journal of each broker that has one, with its name."""
    twice: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Durable subscriptions with more than one home, and the names of these."""

    def count(self, *states: str) -> int:
        return sum(1 for node in self.nodes if node.state in states)

    def total(self, field: str) -> float:
        """The sum of a figure over the brokers that answered."""
        values = (getattr(node, field) for node in self.nodes)
        return float(sum(value for value in values if value is not None))

    def rate(self, field: str) -> float | None:
        """The same of a rate; None: no broker told it."""
        values = [value for node in self.nodes if (value := getattr(node, field)) is not None]
        return float(sum(values)) if values else None

    @property
    def late_ms(self) -> float | None:
        """The worst loop lateness of all."""
        return max((node.late_ms for node in self.nodes if node.late_ms is not None), default=None)


def compose(
    statuses: Sequence[Status], previous: Sequence[Status] = (), silent: Sequence[str] = ()
) -> Picture:
    """Make a picture. The first status is the connected broker's. ``previous`` statuses give the rates of
    links.

    Raises:
        ValueError: no status at all.
    """
    return assemble(printable_document(statuses), printable_document(previous), silent)


def assemble(
    statuses: Sequence[Status], previous: Sequence[Status] = (), silent: Sequence[str] = ()
) -> Picture:
    """Like `compose`, for statuses whose text is already printable."""
    if not statuses:
        raise ValueError("a picture needs at least one broker's status")
    by_id = {_id(status): status for status in reversed(statuses)}
    connected = statuses[0]
    before = {(_id(status), status.get("boot")): status for status in previous}
    views = {_id(status): {_id(member): _state(member) for member in _members(status)} for status in statuses}
    edges = _edges(by_id, before)
    known = _nodes(connected, by_id, views)
    ended = _ended(known)
    named = tuple(sorted(_told_apart(known), key=lambda node: (node.name, node.id)))
    nodes = tuple(node for node in named if node.id not in ended)
    return Picture(
        mesh=str(connected.get("mesh", "?")),
        connected=_id(connected),
        nodes=nodes,
        edges=edges,
        parts=_parts(nodes, edges),
        news=feed(_events(statuses), {node.id: node.name for node in named}),
        drops=_summed(statuses, "drops"),
        refused=_summed(statuses, "refused"),
        silent=tuple(map(printable, silent)),
        unlisted=max(0, max(map(_known, statuses)) - len(known)),
        views=views,
        queues=tuple(_queues(statuses)),
        journals=tuple(_journals(statuses)),
        twice=_twice(statuses),
    )


def _queues(statuses: Iterable[Status]) -> Iterator[Mapping[str, Any]]:
    for status in statuses:
        for queue in listed(status, "queues"):
            if isinstance(queue, dict):
                yield {"home": status.get("name"), **queue}


def _journals(statuses: Iterable[Status]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for status in statuses:
        journal = status.get("journal")
        if isinstance(journal, dict):
            yield str(status.get("name")), journal


def _events(statuses: Iterable[Status]) -> Iterator[Mapping[str, Any]]:
    for status in statuses:
        for row in listed(status, "events"):
            if isinstance(row, dict):
                yield row


def _twice(statuses: Iterable[Status]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for status in statuses:
        of_name = status.get("queues_twice")
        if isinstance(of_name, dict):
            for name in of_name:
                found.setdefault(str(name), tuple(map(str, listed(of_name, name))))
    return tuple(sorted(found.items()))


def _id(record: Mapping[str, Any]) -> str:
    return str(record.get("id", "?"))


def _state(member: Mapping[str, Any]) -> str:
    return str(member.get("state", "unknown"))


def _members(status: Status) -> list[Mapping[str, Any]]:
    return [member for member in listed(status, "members") if isinstance(member, dict)]


def listed(record: Mapping[str, Any], key: str) -> list[Any]:
    """A list of the record. Empty if it has none."""
    found = record.get(key)
    return found if isinstance(found, list) else []


def omitted(status: Mapping[str, Any]) -> dict[str, int]:
    """The number of missing entries in each list of a status that was cut to fit into an answer."""
    counts = status.get("omitted")
    if not isinstance(counts, dict):
        return {}
    return {str(key): int(count) for key in counts if (count := number_in(counts, key))}


def _known(status: Status) -> int:
    return len(_members(status)) + omitted(status).get("members", 0)


def number_in(record: Any, key: str) -> Any:
    """A number of the record. None if it has none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _nodes(
    connected: Status, by_id: Mapping[str, Status], views: Mapping[str, Mapping[str, str]]
) -> tuple[Vertex, ...]:
    """All members that any broker knows: in the connected broker's order, then those that only others
    know."""
    records: dict[str, Mapping[str, Any]] = {}
    for status in (connected, *by_id.values()):
        for member in _members(status):
            records.setdefault(_id(member), member)
    for id, status in by_id.items():
        records.setdefault(id, status)
    return tuple(_node(id, record, connected, by_id.get(id), views) for id, record in records.items())


def _ended(nodes: Sequence[Vertex]) -> set[str]:
    """Ids of ended runs of brokers that run again: a broker without a state folder has another id after each
    restart, and the same name and address."""
    live = {(node.name, node.url) for node in nodes if node.state in LIVE}
    return {node.id for node in nodes if node.state not in LIVE and (node.name, node.url) in live}


def _told_apart(nodes: Sequence[Vertex]) -> Iterator[Vertex]:
    """Append the start of the id to names that several brokers share, except to the only live one: a broker
    without a state folder gets a new id at each restart."""
    of_name: dict[str, list[Vertex]] = {}
    for node in nodes:
        of_name.setdefault(node.name, []).append(node)
    for node in nodes:
        same = of_name[node.name]
        alone = len(same) == 1 or [each for each in same if each.state in LIVE] == [node]
        yield node if alone else replace(node, name=f"{node.name}~{node.id[:4]}")


def _node(
    id: str,
    record: Mapping[str, Any],
    connected: Status,
    status: Status | None,
    views: Mapping[str, Mapping[str, str]],
) -> Vertex:
    its_state = views[_id(connected)].get(id)
    # A broker that answers is up. Others' views count only if the connected broker knows nothing about it.
    state = its_state or ("alive" if status is not None else _state(record))
    # A broker's view of itself proves nothing.
    opinions = [view[id] for observer, view in views.items() if id in view and observer != id]
    link = record.get("link") if id in views[_id(connected)] else None
    own = status or {}
    return Vertex(
        id=id,
        name=str(record.get("name") or id[:8]),
        state=state,
        agree=sum(1 for opinion in opinions if opinion == state),
        observers=len(opinions),
        host=str(record.get("host", "")),
        url=str(record.get("url", "")),
        incarnation=int(number_in(record, "incarnation") or 0),
        since_s=number_in(record, "since_s"),
        rtt_ms=number_in(link, "rtt_ms"),
        answered=status is not None,
        connected=id == _id(connected),
        mode=str(own["state"]) if "state" in own else None,
        uptime_s=number_in(own, "uptime_s"),
        msgs_in_s=number_in(own.get("rates"), "msgs_in_s"),
        msgs_out_s=number_in(own.get("rates"), "msgs_out_s"),
        bytes_in_s=number_in(own.get("rates"), "bytes_in_s"),
        bytes_out_s=number_in(own.get("rates"), "bytes_out_s"),
        published=number_in(own.get("totals"), "published"),
        delivered=number_in(own.get("totals"), "delivered"),
        published_s=number_in(own.get("rates"), "published_s"),
        delivered_s=number_in(own.get("rates"), "delivered_s"),
        dropped=number_in(own.get("totals"), "dropped"),
        lost=_over_links(own, "lost"),
        queued=_over_links(own, "queued"),
        late_ms=number_in(own.get("loop"), "late_ms_max"),
        rss_bytes=number_in(own, "rss_bytes"),
        sessions=number_in(own, "sessions"),
        subscriptions=number_in(own, "subscriptions"),
        taps=len(listed(own, "taps")) + omitted(own).get("taps", 0),
        disk=_disk_trouble(own),
        filling=_filling(own),
        run=str(own.get("boot", "")),
        omitted=tuple(omitted(own).items()),
    )


def _disk_trouble(status: Status) -> tuple[str, ...]:
    """What is wrong at this moment. Counters since the start tell of trouble that is over as well."""
    found = []
    log, state, journal = status.get("log"), status.get("state_file"), status.get("journal")
    durable = status.get("durable_file")
    if isinstance(log, dict) and log.get("failing"):
        waiting, lost = number_in(log, "waiting") or 0, number_in(log, "lost") or 0
        wait = "1 row waits" if waiting == 1 else f"{waiting} rows wait"
        found.append(f"event log {log['failing']}: {wait}, {lost} lost")
    if isinstance(state, dict) and state.get("failing"):
        found.append(f"state not saved: {state['failing']}")
    if isinstance(durable, dict) and durable.get("failing"):
        found.append(f"durable subscriptions of all homes not saved: {durable['failing']}")
    if isinstance(journal, dict) and journal.get("failing"):
        found.append(f"stores no messages: {journal['failing']}")
    if isinstance(journal, dict) and journal.get("filling", True) and number_in(journal, "refused"):
        found.append(f"{counted(journal['refused'], 'message')} not stored for want of room")
    return tuple(found)


def _filling(status: Status) -> str:
    journal = status.get("journal")
    if not isinstance(journal, dict) or not journal.get("filling"):
        return ""
    share = number_in(journal, "share")
    return "journal nearly full" if share is None else f"journal {100 * share:.0f} % full"


def _over_links(status: Status, key: str) -> int | None:
    if not status:
        return None
    return sum(number_in(member.get("link"), key) or 0 for member in _members(status))


def _edges(by_id: Mapping[str, Status], before: Mapping[tuple[str, Any], Status]) -> tuple[Edge, ...]:
    ends: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    complete = {id for id, status in by_id.items() if "members" not in omitted(status)}
    for id, status in by_id.items():
        for member in _members(status):
            link = member.get("link")
            if isinstance(link, dict):
                a, b = sorted((id, _id(member)))
                if a == b:
                    continue
                ends.setdefault((a, b), []).append((id, link))
    return tuple(
        Edge(
            a=a,
            b=b,
            ends=len(reports),
            heard=len({id for id, _ in reports} | ({a, b} & complete)),
            rtt_ms=min(
                (rtt for _, link in reports if (rtt := number_in(link, "rtt_ms")) is not None), default=None
            ),
            dropped=sum(number_in(link, "dropped") or 0 for _, link in reports),
            lost=sum(number_in(link, "lost") or 0 for _, link in reports),
            msgs_s=_link_rate(reports[0], b if reports[0][0] == a else a, by_id, before),
        )
        for (a, b), reports in sorted(ends.items())
    )


def _link_rate(
    report: tuple[str, Mapping[str, Any]],
    peer: str,
    by_id: Mapping[str, Status],
    before: Mapping[tuple[str, Any], Status],
) -> float | None:
    """Messages per second in both directions of a link, from two statuses of the same run of one of its
    ends."""
    reporter, link = report
    now = by_id[reporter]
    then = before.get((reporter, now.get("boot")))
    if then is None:
        return None
    elapsed = (number_in(now, "uptime_s") or 0.0) - (number_in(then, "uptime_s") or 0.0)
    old = next((member.get("link") for member in _members(then) if _id(member) == peer), None)
    if elapsed <= 0 or not isinstance(old, dict):
        return None
    grown = sum((number_in(link, key) or 0) - (number_in(old, key) or 0) for key in ("msgs_in", "msgs_out"))
    return max(0.0, grown / elapsed)


def _parts(nodes: Sequence[Vertex], edges: Iterable[Edge]) -> tuple[tuple[str, ...], ...]:
    """Connected components of the running brokers, largest first, then by name.

    A component in which no broker answered does not count: a killed broker has lost its links before the
    others believe it dead.
    """
    part_of = {node.id: [node.id] for node in nodes if node.answered or node.state in LIVE}
    for edge in edges:
        a, b = part_of.get(edge.a), part_of.get(edge.b)
        if a is None or b is None or a is b:
            continue
        large, small = (a, b) if len(a) >= len(b) else (b, a)
        large += small
        for member in small:
            part_of[member] = large
    order = {node.id: rank for rank, node in enumerate(nodes)}
    answered = {node.id for node in nodes if node.answered}
    distinct = {id(part): part for part in part_of.values() if not answered.isdisjoint(part)}
    parts = [tuple(sorted(part, key=order.__getitem__)) for part in distinct.values()]
    return tuple(sorted(parts, key=lambda part: (-len(part), order[part[0]])))


def missing_links(picture: Picture) -> list[tuple[str, str]]:
    """Live brokers of one part that have no link, in pairs of which one broker told all its links."""
    linked = {(edge.a, edge.b) for edge in picture.edges}
    live = {node.id for node in picture.nodes if node.answered or node.state in LIVE}
    telling = {node.id for node in picture.nodes if node.answered and "members" not in dict(node.omitted)}
    return [
        pair
        for part in picture.parts
        for pair in combinations(sorted(live.intersection(part)), 2)
        if pair not in linked and not telling.isdisjoint(pair)
    ]


def _summed(statuses: Sequence[Status], key: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for status in statuses:
        counts = status.get(key)
        for reason in counts if isinstance(counts, dict) else ():
            total[reason] = total.get(reason, 0) + int(number_in(counts, reason) or 0)
    return {reason: count for reason, count in sorted(total.items(), key=lambda item: -item[1]) if count}
