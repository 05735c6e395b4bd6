"""Figures of many looks: totals, rates, and the last minutes of each broker and link.

Totals never shrink. A broker that dies or starts again takes its counters with it, so the last ones of each
run are kept here. All of it is bounded: `RUNS_MAX` runs (older ones are summed up), and samples of
`BROKERS_MAX` brokers and `LINKS_MAX` links. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from mesh.picture import Edge, Picture, Vertex

SAMPLES_MAX: Final = 300
"""Five minutes, of one look a second."""
BROKERS_MAX: Final = 256
LINKS_MAX: Final = 1024
RUNS_MAX: Final = 2048
TOTALS: Final = ("published", "delivered", "dropped")

Link = tuple[str, str]
"""The ids of its two brokers, in order."""


class BrokerSample(NamedTuple):
    """One look at a broker; None: it did not say."""

    published_s: float | None
    delivered_s: float | None
    in_s: float | None
    out_s: float | None
    drops_s: float | None
    rtt_ms: float | None
    late_ms: float | None


class LinkSample(NamedTuple):
    """One look at a link; None: it was not there, or nobody told."""

    rtt_ms: float | None
    msgs_s: float | None
    lost_s: float | None


NO_LINK: Final = LinkSample(None, None, None)


class History:
    """See the module."""

    def __init__(self) -> None:
        self.drops_s: dict[str, float | None] = {}
        """Messages that each broker dropped a second between the last two looks; None: not known."""
        self.brokers: dict[str, deque[BrokerSample]] = {}
        self.links: dict[Link, deque[LinkSample]] = {}
        self._runs: dict[tuple[str, str], tuple[int, ...]] = {}
        """The last totals of each run, the run that was seen last at the end."""
        self._past = (0,) * len(TOTALS)
        self._dropped: dict[str, tuple[str, float, int]] = {}
        self._lost: dict[Link, tuple[float, int]] = {}

    def add(self, picture: Picture, now: float) -> None:
        """One more look; ``now`` is in seconds on any clock that does not go back."""
        self.drops_s = {node.id: self._drop_rate(node, now) for node in picture.nodes}
        for node in picture.nodes:
            self._count(node)
        self._sample_brokers(picture)
        self._sample_links(picture, now)

    def total(self, key: str) -> int:
        """Messages of all brokers and runs that were seen, those that are gone included."""
        place = TOTALS.index(key)
        return self._past[place] + sum(counts[place] for counts in self._runs.values())

    def _count(self, node: Vertex) -> None:
        if not node.answered:
            return
        run = node.id, node.run
        counts = tuple(int(getattr(node, key) or 0) for key in TOTALS)
        before = self._runs.pop(run, counts)
        self._runs[run] = tuple(map(max, counts, before))
        if len(self._runs) > RUNS_MAX:
            oldest = self._runs.pop(next(iter(self._runs)))
            self._past = tuple(map(sum, zip(self._past, oldest, strict=True)))

    def _drop_rate(self, node: Vertex, now: float) -> float | None:
        before = self._dropped.get(node.id)
        if node.dropped is None:
            return None
        self._dropped[node.id] = (node.run, now, node.dropped)
        if before is None or before[0] != node.run or now <= before[1]:
            return None
        return max(0, node.dropped - before[2]) / (now - before[1])

    def _sample_brokers(self, picture: Picture) -> None:
        here = {node.id for node in picture.nodes}
        self.brokers = {id: samples for id, samples in self.brokers.items() if id in here}
        self._dropped = {id: seen for id, seen in self._dropped.items() if id in here}
        for node in picture.nodes:
            if node.id not in self.brokers and len(self.brokers) >= BROKERS_MAX:
                continue
            samples = self.brokers.setdefault(node.id, deque(maxlen=SAMPLES_MAX))
            samples.append(
                BrokerSample(
                    node.published_s,
                    node.delivered_s,
                    node.msgs_in_s,
                    node.msgs_out_s,
                    self.drops_s.get(node.id),
                    node.rtt_ms,
                    node.late_ms,
                )
            )

    def _sample_links(self, picture: Picture, now: float) -> None:
        here = {node.id for node in picture.nodes}
        self.links = {
            link: samples for link, samples in self.links.items() if link[0] in here and link[1] in here
        }
        up = {(edge.a, edge.b): edge for edge in picture.edges}
        for link, samples in self.links.items():
            if link not in up:
                samples.append(NO_LINK)
        for link, edge in up.items():
            if link not in self.links and len(self.links) >= LINKS_MAX:
                continue
            samples = self.links.setdefault(link, deque(maxlen=SAMPLES_MAX))
            samples.append(LinkSample(edge.rtt_ms, edge.msgs_s, self._loss_rate(link, edge, now)))
        self._lost = {link: seen for link, seen in self._lost.items() if link in self.links}

    def _loss_rate(self, link: Link, edge: Edge, now: float) -> float | None:
        lost = edge.lost + edge.dropped
        before = self._lost.get(link)
        self._lost[link] = (now, lost)
        if before is None or now <= before[0] or lost < before[1]:
            return None
        return (lost - before[1]) / (now - before[0])
