"""The present state of a mesh, from the last rows. Pure, and based on wall clocks: a view, not a verdict.

A broker is up while it writes, since it writes each heartbeat that it hears. It is silent if its last row is
`SILENT_S` older than the newest row, or than now less `WRITTEN_S` once all rows are read. It is gone if it
reported its stop. The brokers that are up are in parts if none in one heard any in the other for that long.
Where heartbeats are combined in windows, the length of a window is added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from mesh.analysis.reporting.findings import natural

SILENT_S: Final = 6.0
WRITTEN_S: Final = 2.0
"""Rows are in the log so long after their time, at the latest."""
DEATHS_KEPT: Final = 50
DEATHS_S: Final = 300.0
RATE_BATCHES: Final = 10

Node = tuple[str, str]
"""The run and the id."""


@dataclass(frozen=True, slots=True)
class Wrote:
    """The last rows of a broker in one batch."""

    node: Node
    last_us: int
    rows: int
    name: str | None
    stopped: bool | None
    """Its last `meta` row was a stop. None: it has none here."""
    window_s: float = 0.0
    """It combines heartbeats in windows of this length. 0: it writes each."""


@dataclass(frozen=True, slots=True)
class HeardLast:
    """``dst`` last heard ``src`` at this time."""

    run: str
    dst: str
    src: str
    last_us: int
    window_s: float = 0.0
    """As in `Wrote`."""


@dataclass(frozen=True, slots=True)
class Death:
    """A member was reported dead. ``observers`` counts the brokers that reported it in one batch."""

    node: Node
    name: str
    at_us: int
    observers: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one batch."""

    wrote: tuple[Wrote, ...]
    heard: tuple[HeardLast, ...]
    deaths: tuple[Death, ...]
    corrupt: int = 0
    """Lines that are not rows."""


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """A broker. ``silent_s`` is the time without its rows, as far as the logs are read."""

    node: Node
    name: str
    state: Literal["up", "silent", "stopped"]
    silent_s: float


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole state at one moment."""

    brokers: tuple[BrokerNow, ...]
    parts: tuple[tuple[str, ...], ...]
    """Names of brokers that are up. One part means a connected mesh."""
    deaths: tuple[Death, ...]
    """Deaths of the last minutes, the newest first."""
    rows: int
    corrupt: int
    """Lines that are not rows."""
    rows_per_s: float | None
    behind_s: float | None
    """From the newest row's time to now."""
    newest_us: int | None
    waiting_bytes: int


class Health:
    """Grows with brokers and links, not with rows. ``names`` and ``known`` are from before it began."""

    def __init__(self, names: Mapping[Node, str] | None = None, known: Batch | None = None) -> None:
        self._names = dict(names or {})
        self._wrote: dict[Node, Wrote] = {}
        self._heard: dict[tuple[str, str, str], HeardLast] = {}
        self._deaths: deque[Death] = deque(maxlen=DEATHS_KEPT)
        self._batches: deque[tuple[float, int]] = deque(maxlen=RATE_BATCHES)
        self._rows = 0
        self._corrupt = 0
        if known is not None:
            self._add(known)

    def take(self, batch: Batch, now_s: float) -> None:
        """``now_s`` is the wall clock, in seconds since the epoch."""
        self._add(batch)
        self._batches.append((now_s, sum(wrote.rows for wrote in batch.wrote)))

    def _add(self, batch: Batch) -> None:
        for new in batch.wrote:
            old = self._wrote.get(new.node)
            name = new.name or (old.name if old else None)
            stopped = new.stopped if new.stopped is not None else (old.stopped if old else None)
            last_us = max(new.last_us, old.last_us if old else 0)
            window_s = max(new.window_s, old.window_s if old else 0.0)
            self._wrote[new.node] = Wrote(new.node, last_us, new.rows, name, stopped, window_s)
            self._rows += new.rows
        for pair in batch.heard:
            key = (pair.run, pair.dst, pair.src)
            last = self._heard.get(key)
            if last is None or last.last_us <= pair.last_us:
                self._heard[key] = pair
        self._corrupt += batch.corrupt
        self._deaths.extend(sorted(batch.deaths, key=lambda death: death.at_us))

    def picture(self, now_s: float, waiting_bytes: int = 0, *, all_read: bool = False) -> Picture:
        """``all_read``: the logs have no other rows at ``now_s``, so that silence counts by the clock."""
        newest = max((wrote.last_us for wrote in self._wrote.values()), default=0)
        read_us = max(newest, round((now_s - WRITTEN_S) * 1e6)) if all_read else newest
        brokers = tuple(
            sorted(
                (self._broker(wrote, read_us) for wrote in self._wrote.values()),
                key=lambda broker: (broker.node[0], broker.name),
            )
        )
        recent = [death for death in self._deaths if now_s * 1e6 - death.at_us <= DEATHS_S * 1e6]
        return Picture(
            brokers=brokers,
            parts=self._parts(brokers, read_us),
            deaths=tuple(reversed(recent)),
            rows=self._rows,
            corrupt=self._corrupt,
            rows_per_s=self._rate(),
            behind_s=max(0.0, now_s - newest / 1e6) if newest else None,
            newest_us=newest or None,
            waiting_bytes=waiting_bytes,
        )

    def _broker(self, wrote: Wrote, read_us: int) -> BrokerNow:
        silent_s = (read_us - wrote.last_us) / 1e6
        state: Literal["up", "silent", "stopped"]
        state = "stopped" if wrote.stopped else "silent" if silent_s > SILENT_S + wrote.window_s else "up"
        name = wrote.name or self._names.get(wrote.node, wrote.node[1])
        return BrokerNow(wrote.node, name, state, silent_s)

    def _parts(self, brokers: Iterable[BrokerNow], read_us: int) -> tuple[tuple[str, ...], ...]:
        import networkx

        up = {broker.node: broker.name for broker in brokers if broker.state == "up"}
        graph = networkx.Graph()
        graph.add_nodes_from(up)
        for (run, dst, src), last in self._heard.items():
            ends = (run, dst), (run, src)
            if read_us - last.last_us <= (SILENT_S + last.window_s) * 1e6 and all(end in up for end in ends):
                graph.add_edge(*ends)
        names = ((up[node] for node in part) for part in networkx.connected_components(graph))
        parts = [tuple(sorted(part, key=natural)) for part in names]
        return tuple(sorted(parts, key=lambda part: (-len(part), part)))

    def _rate(self) -> float | None:
        if len(self._batches) < 2:
            return None
        took_s = self._batches[-1][0] - self._batches[0][0]
        rows = sum(count for _, count in list(self._batches)[1:])
        return rows / took_s if took_s > 0 else None
