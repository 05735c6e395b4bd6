"""An invented mesh, described in seconds: who ran, what was cut, and what was heard, as facts for `decide`.

Each broker asks all others once a second, at a moment of its own, and they answer at once. A pair that was
cut hears again up to `heals_s` after the cut, each pair after its own time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from mesh.analysis.clocks.stretches import SLOTS, Window, heard_stretches
from mesh.analysis.silence.apart import without
from mesh.analysis.silence.deciding import Facts, decide
from mesh.analysis.silence.outages import Gap, Lived, hiding, joinings
from mesh.analysis.silence.sweep import Part

SECOND: Final = 1_000_000
GAP: Final = 2_200_000
WINDOW_NS: Final = 16_000_000_000

Link = tuple[int, int]


@dataclass
class Story:
    brokers: int
    seconds: float = 60.0
    cuts: list[tuple[float, float, list[Link]]] = field(default_factory=list)
    """From, to, links as (src, dst)."""
    lives: list[tuple[int, str, float, float]] = field(default_factory=list)
    """States of brokers other than running: paused, down, away; or ``up`` for those that start later or
    stop."""
    neighbours: dict[int, set[int]] | None = None
    heals_s: float = 1.0
    joins_s: dict[int, float] = field(default_factory=dict)
    """Brokers that hear nobody before this time, though they run."""
    closed: dict[Link, list[float]] = field(default_factory=dict)
    period_s: dict[int, float] = field(default_factory=dict)
    seed: int = 1
    logs_end: dict[int, float] = field(default_factory=dict)
    """Brokers whose logs tell nothing from this time on."""
    holes: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Brokers whose logs lack all rows from one time to another."""
    windows: bool = False
    """Heartbeats are known by windows of 16 periods and quarters of one, as in reduced logs."""

    def cut(
        self, start: float, end: float, ones: Iterable[int], others: Iterable[int], ways: int = 2
    ) -> Story:
        """Nothing passes from ones to others, nor back unless the cut is one-way."""
        others = list(others)
        links = [(one, other) for one in ones for other in others]
        self.cuts.append((start, end, links + [(other, one) for one, other in links if ways == 2]))
        return self

    def spells(self, broker: int) -> list[tuple[str, float, float]]:
        """The broker's whole life."""
        told = sorted((start, end, state) for node, state, start, end in self.lives if node == broker)
        if any(state == "up" for _, _, state in told):
            return [(state, start, end) for start, end, state in told]
        found, at = [], 0.0
        for start, end, state in told:
            found += [("up", at, start)] * (at < start) + [(state, start, end)]
            at = end
        return [*found, ("up", at, self.seconds)] if at < self.seconds else found

    def heard(self) -> dict[Link, list[float]]:
        """When each was heard by each."""
        rng = random.Random(self.seed)
        phase = {broker: rng.random() for broker in range(self.brokers)}
        up = {broker: [(a, b) for state, a, b in self.spells(broker) if state == "up"] for broker in phase}
        late = {(a, b): rng.uniform(0, self.heals_s) for a in phase for b in phase if a < b}
        dark: dict[Link, list[tuple[float, float]]] = {}
        for start, end, links in self.cuts:
            for src, dst in links:
                dark.setdefault((src, dst), []).append((start, end + late[min(src, dst), max(src, dst)]))
        found: dict[Link, list[float]] = {(a, b): [] for a in phase for b in phase if a != b}
        for src, dst in found:
            if self.neighbours is not None and dst not in self.neighbours[src]:
                continue
            for asker in (src, dst):
                now, period = phase[asker], self.period_s.get(asker, 1.0)
                while now < self.seconds:
                    runs = all(any(a <= now < b for a, b in up[node]) for node in (src, dst))
                    joined = all(now >= self.joins_s.get(node, 0.0) for node in (src, dst))
                    if runs and joined and not any(a <= now < b for a, b in dark.get((src, dst), [])):
                        found[src, dst].append(now)
                    now += period
        return {link: sorted(times) for link, times in found.items()}

    def facts(self) -> Facts:
        heard = self.heard()
        heard_at: dict[int, list[int]] = {}
        gaps: list[Gap] = []
        logged: dict[int, list[tuple[int, int]]] = {}
        holes = {}
        for broker, (start, end) in self.holes.items():
            for link, times in heard.items():
                if link[1] == broker:
                    heard[link] = [t for t in times if not start <= t < end]
            left = [t for (_, dst), times in heard.items() if dst == broker for t in times]
            holes[broker] = [
                (us(max(t for t in left if t < start)), us(min((t for t in left if t >= end), default=end)))
            ]
        for broker in range(self.brokers):
            for begin, end in self._boots(broker):
                until = max(begin, min(end, self.logs_end.get(broker, end)))
                logged.setdefault(broker, []).append((us(begin), us(until)))
                first = [
                    t
                    for (_, dst), times in heard.items()
                    if dst == broker
                    for t in times
                    if begin <= t < until
                ]
                if first:
                    heard_at.setdefault(broker, []).append(us(min(first)))
                for src in range(self.brokers):
                    if src != broker:
                        times = [t for t in heard[src, broker] if begin <= t < until]
                        gaps += self._gaps(src, broker, times, begin, until)
        lives = [
            self._lived(broker, state, start, end, heard)
            for broker in range(self.brokers)
            for state, start, end in self.spells(broker)
        ]
        period = {broker: us(self.period_s.get(broker, 1.0)) for broker in range(self.brokers)}
        hidden = hiding(holes, period)
        logged = {broker: without(times, hidden.get(broker, [])) for broker, times in logged.items()}
        ties = {
            src: {dst for dst in range(self.brokers) if dst != src and heard[src, dst]}
            for src in range(self.brokers)
        }
        closed = {link: [us(at) for at in times] for link, times in self.closed.items()}
        return Facts(
            lives=lives,
            gaps=gaps,
            joined_at=joinings(lives, heard_at, logged),
            unheard=[],
            ties=None if self.neighbours is None else ties,
            closed=closed,
            logged=logged,
            holes=hidden,
            beyond={},
            period=period,
            end=us(self.seconds),
        )

    def parts(self) -> list[Part]:
        return decide(self.facts()).parts

    def _boots(self, broker: int) -> list[tuple[float, float]]:
        """A pause is within a boot, and so is a time of which nothing is known."""
        boots: list[tuple[float, float]] = []
        for state, start, end in self.spells(broker):
            if state not in ("up", "paused", "unknown"):
                continue
            if boots and boots[-1][1] == start:
                boots[-1] = (boots[-1][0], end)
            else:
                boots.append((start, end))
        return boots

    def _lived(
        self, broker: int, state: str, start: float, end: float, heard: dict[Link, list[float]]
    ) -> Lived:
        boot = next((begin for begin, until in self._boots(broker) if begin <= start < until), None)
        times = [t for (src, _), heard in heard.items() if src == broker for t in heard if start <= t < end]
        met = us(min(times)) if times and state == "up" else None
        return Lived(broker, state, us(start), us(end), None if boot is None else f"boot {boot}", met)

    def _gaps(self, src: int, dst: int, times: list[float], begin: float, end: float) -> list[Gap]:
        if self.neighbours is not None and dst not in self.neighbours[src]:
            return []
        stretches = self._stretches(times)
        marks: list[tuple[float, float] | None] = [None, *stretches, None]
        found = []
        for before, after in pairwise(marks):
            last = None if before is None else us(before[1])
            following = None if after is None else us(after[0])
            start = us(begin) if last is None else last
            until = us(end) if following is None else following
            if until - start > GAP:
                found.append(Gap(src, dst, last, following, start, until, 0.0))
        return found

    def _stretches(self, times: list[float]) -> list[tuple[float, float]]:
        if not self.windows:
            return [(at, at) for at in times]
        windows: dict[int, list[int]] = {}
        for at in times:
            ns = round(at * 1e9)
            windows.setdefault(ns // WINDOW_NS, []).append(ns)
        reduced = [
            Window(
                number * WINDOW_NS,
                WINDOW_NS,
                min(heard),
                max(heard),
                sum({1 << (ns % WINDOW_NS) // (WINDOW_NS // SLOTS) for ns in heard}),
            )
            for number, heard in windows.items()
        ]
        return [(each.first / 1e9, each.last / 1e9) for each in heard_stretches(reduced, GAP * 1000)]


def us(seconds: float) -> int:
    return round(seconds * SECOND)
