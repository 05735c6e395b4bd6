"""The page's picture of the mesh, as one JSON document. Pure.

Sizes are bounded whatever the mesh: `BROKERS_MAX` brokers (those in trouble first), `NEWS_MAX` events, and
all links of a small mesh. A larger mesh shows only links that are missing, half up or losing messages. All
text is printable, and the page shows it as text and never as markup.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mesh.news import gathered
from mesh.picture import Picture, Status, Vertex, assemble, listed, missing_links
from mesh.printable import printable_document
from mesh.trouble import troubles

SCHEMA: Final = 1
BROKERS_MAX: Final = 128
LINKS_MAX: Final = 400
ALL_LINKS_OF: Final = 16
"""Up to so many brokers, all links are sent; a drawing of more would be a solid disc."""
NEWS_MAX: Final = 60
QUEUES_MAX: Final = 20
CHANGES_MAX: Final = 12
"""Changes of state kept for each broker."""
HISTORY_MAX: Final = 150
"""Samples kept for each broker: five minutes, at one look in two seconds."""
REASONS_MAX: Final = 20

Sample = tuple[float | None, float | None, float | None, float | None]
"""Messages in and out a second, round trip in milliseconds, messages dropped a second."""


class Overview:
    """A series of pictures: the changes between two, and the figures of the last minutes."""

    def __init__(self) -> None:
        self.history: dict[str, deque[Sample]] = {}
        """Samples by broker, the latest last; no broker has more than this one has seen looks."""
        self._previous: tuple[Status, ...] = ()
        self._dropped: dict[str, tuple[float, int]] = {}
        self._at = 0.0

    def document(
        self, bodies: Sequence[bytes], silent: Sequence[str], *, now: float, wall_s: float, interval_s: float
    ) -> bytes:
        """The document of the next frame. The first of ``bodies`` is the status of the broker that shows the
        page.

        It costs milliseconds for each broker of a large mesh, so it runs in a thread; nothing else may use
        this object meanwhile.
        """
        statuses = tuple(_readable(bodies))
        if not statuses:
            raise ValueError("no broker answered with a status, not even this one")
        picture = assemble(statuses, self._previous, silent)
        self._previous = statuses
        self._at = round(wall_s, 3)
        rates = {node.id: self._drop_rate(node, now) for node in picture.nodes}
        self._sample(picture, rates)
        nodes = _chosen(picture.nodes)
        changes = _changes(statuses)
        missing = missing_links(picture)
        links = _links(picture, nodes, missing)
        return _json(
            {
                "schema": SCHEMA,
                "at": self._at,
                "interval_s": round(interval_s, 1),
                "mesh": picture.mesh,
                "connected": picture.connected,
                "brokers": [_broker(node, rates.get(node.id), changes.get(node.id, [])) for node in nodes],
                "hidden": len(picture.nodes) - len(nodes) + picture.unlisted,
                "parts": list(map(list, picture.parts)),
                **links,
                "trouble": [trouble._asdict() for trouble in troubles(picture, rates, missing)],
                "news": [
                    {"ts": item.ts, "text": item.text, "state": item.state, "by": len(item.observers)}
                    for item in gathered(picture.news)[-NEWS_MAX:]
                ],
                "drops": dict(list(picture.drops.items())[:REASONS_MAX]),
                "refused": dict(list(picture.refused.items())[:REASONS_MAX]),
                "silent": list(picture.silent[:REASONS_MAX]),
                "queues": _queues(picture),
                "queues_count": len(picture.queues),
                "twice": [[name, list(homes)] for name, homes in picture.twice[:REASONS_MAX]],
            }
        )

    def past(self) -> bytes:
        """The first frame of a page: the samples of the last minutes."""
        samples = {id: list(samples) for id, samples in self.history.items()}
        return _json({"at": self._at, "samples": samples})

    def _drop_rate(self, node: Vertex, now: float) -> float | None:
        """Messages dropped a second since the previous look; None if not known."""
        if node.dropped is None:
            self._dropped.pop(node.id, None)
            return None
        before = self._dropped.get(node.id)
        self._dropped[node.id] = (now, node.dropped)
        if before is None or now <= before[0] or node.dropped < before[1]:
            return None
        return (node.dropped - before[1]) / (now - before[0])

    def _sample(self, picture: Picture, rates: Mapping[str, float | None]) -> None:
        here = {node.id for node in picture.nodes}
        for gone in [id for id in self.history if id not in here]:
            del self.history[gone]
        for gone in [id for id in self._dropped if id not in here]:
            del self._dropped[gone]
        for node in picture.nodes[:BROKERS_MAX]:
            samples = self.history.setdefault(node.id, deque(maxlen=HISTORY_MAX))
            samples.append((_short(node.msgs_in_s), _short(node.msgs_out_s), node.rtt_ms, rates[node.id]))


def event(name: str, data: bytes) -> bytes:
    """A server-sent event; ``data`` is one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _readable(bodies: Sequence[bytes]) -> list[Status]:
    """The statuses among the answers, printable, one of each broker, without the parts for which a page has
    no room."""
    found: dict[str, Status] = {}
    for body in bodies:
        try:
            status = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if isinstance(status, dict) and isinstance(status.get("id"), str):
            status.pop("interest", None)
            # Most are printable as they are; a look at each text of a document costs ten times as much.
            plain = b"\\" not in body and body.isascii()
            found.setdefault(status["id"], status if plain else printable_document(status))
    return list(found.values())


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _chosen(nodes: Sequence[Vertex]) -> list[Vertex]:
    """The brokers to show, by name; if there are too many, those in trouble and this broker stay."""
    if len(nodes) <= BROKERS_MAX:
        return list(nodes)
    worth = sorted(nodes, key=lambda node: (not node.connected, node.state in ("alive", "left")))
    kept = {node.id for node in worth[:BROKERS_MAX]}
    return [node for node in nodes if node.id in kept]


def _broker(node: Vertex, drops_s: float | None, changes: list[list[Any]]) -> dict[str, Any]:
    return {
        "id": node.id,
        "name": node.name,
        "state": node.state,
        "mode": node.mode,
        "agree": node.agree,
        "observers": node.observers,
        "answered": node.answered,
        "host": node.host,
        "url": node.url,
        "since_s": node.since_s,
        "uptime_s": node.uptime_s,
        "rtt_ms": node.rtt_ms,
        "in_s": _short(node.msgs_in_s),
        "out_s": _short(node.msgs_out_s),
        "bytes_s": None if node.bytes_in_s is None else _short(node.bytes_in_s + (node.bytes_out_s or 0)),
        "dropped": node.dropped,
        "drops_s": _short(drops_s),
        "lost": node.lost,
        "queued": node.queued,
        "late_ms": node.late_ms,
        "rss_bytes": node.rss_bytes,
        "sessions": node.sessions,
        "subscriptions": node.subscriptions,
        "disk": list(node.disk),
        "changes": changes,
    }


def _changes(statuses: Sequence[Status]) -> dict[str, list[list[Any]]]:
    """When each broker came into which state, and why, as others report it; repeats are left out."""
    told: dict[str, list[list[Any]]] = {}
    rows = [
        row
        for status in statuses
        for row in listed(status, "events")
        if isinstance(row, dict) and row.get("kind") == "mem"
    ]
    for row in sorted(rows, key=lambda row: str(row.get("ts", ""))):
        state = str(row.get("to_state", "unknown"))
        changes = told.setdefault(str(row.get("subject")), [])
        if not changes or changes[-1][1] != state:
            changes.append([str(row.get("ts", "")), state, str(row.get("reason") or "")])
    return {id: changes[-CHANGES_MAX:] for id, changes in told.items()}


def _links(picture: Picture, nodes: Sequence[Vertex], missing: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Links as ``[a, b, kind, round trip, messages a second]`` by the places of brokers. A ``missing`` pair
    has that word as its kind."""
    place = {node.id: number for number, node in enumerate(nodes)}
    good: list[list[Any]] = []
    bad: list[list[Any]] = []
    linked = 0
    for edge in picture.edges:
        if edge.a not in place or edge.b not in place:
            continue
        linked += 1
        kind = "half" if not edge.whole else "losing" if edge.dropped or edge.lost else "whole"
        ends = [place[edge.a], place[edge.b], kind, edge.rtt_ms, _short(edge.msgs_s)]
        (good if kind == "whole" else bad).append(ends)
    bad += [[place[a], place[b], "missing", None, None] for a, b in missing if a in place and b in place]
    shown = bad + good if len(nodes) <= ALL_LINKS_OF else bad
    return {
        "links": shown[:LINKS_MAX],
        "links_up": linked,
        "links_bad": len(bad),
        "links_missing": len(missing),
        "rtt_ms_max": max((edge.rtt_ms for edge in picture.edges if edge.rtt_ms is not None), default=None),
    }


def _queues(picture: Picture) -> list[dict[str, Any]]:
    """The durable subscriptions with most messages."""
    keys = ("name", "home", "waiting", "oldest_s", "consumers", "in_flight", "redelivered", "buried")
    most = sorted(picture.queues, key=_waiting, reverse=True)[:QUEUES_MAX]
    return [{key: queue.get(key) for key in keys} for queue in most]


def _waiting(queue: Mapping[str, Any]) -> int:
    waiting = queue.get("waiting")
    return waiting if isinstance(waiting, int) else 0
