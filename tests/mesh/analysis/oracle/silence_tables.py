"""Outages and parts from heartbeats the slow way: pair by pair, with a graph for every moment.

Heartbeats are exact stretches. Parts are not made here but checked: the mesh must be apart in them and only
in them, and they must begin and end with a heartbeat across.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from tests.mesh.analysis.oracle.log_facts import Facts

SECOND = 1_000_000
Outage = tuple[str, str, int | None, int | None, bool, str]
LoggedGap = tuple[str, str, int | None, int | None, int, int]
"""Src, dst, the last heartbeat and the next one, from, to."""


class Life(NamedTuple):
    """The columns needed of the table ``lives``."""

    node: str
    state: str
    start: int
    end: int
    cause: str | None
    boot: str | None
    met: int | None


class Oracle:
    """The oracle of one run whose brokers all use one period."""

    def __init__(self, facts: Facts, lives: Sequence[Life]) -> None:
        self.facts = facts
        self.lives = lives
        self.period = round(facts.boots[0].period_s * SECOND)
        self.silent = self.period * 11 // 5
        self.heard = {
            (one.src, one.dst, one.boot): sorted(
                (each.first, each.last)
                for each in facts.stretches
                if (each.src, each.dst, each.boot) == (one.src, one.dst, one.boot)
            )
            for one in facts.stretches
        }
        self.joined = {
            (boot.node, boot.boot): min(
                (each.first for each in facts.stretches if (each.dst, each.boot) == (boot.node, boot.boot)),
                default=None,
            )
            for boot in facts.boots
        }

    def runs(self, node: str, begin: int, end: int) -> list[tuple[int, int]]:
        """When a broker ran between two moments, and had joined."""
        found = []
        for life in self.lives:
            if life.node != node or life.state != "up":
                continue
            start = max(life.start, self.joins(node, life.boot))
            if max(start, begin) < min(life.end, end):
                found.append((max(start, begin), min(life.end, end)))
        return sorted(found)

    def joins(self, node: str, boot: str | None) -> int:
        """When a process first heard another, or was first heard after the time of which its log tells."""
        own = [life for life in self.lives if (life.node, life.boot) == (node, boot)]
        begin, until = min(life.start for life in own), max(life.end for life in own)
        firsts = [at for (who, _), at in self.joined.items() if who == node and at is not None]
        heard = [at for at in firsts if begin <= at < until]
        told = next((start for start, _ in self.unlogged(node, begin, until)), until)
        heard = heard or [max(life.met, told) for life in own if life.met is not None and life.end > told]
        return min(heard, default=until)

    def holes(self, node: str) -> list[tuple[int, int]]:
        """The holes in its log that hide more than one heartbeat."""
        own = (hole for who, hole in self.facts.holes if who == node)
        return sorted((start, end) for start, end in own if end - start > self.period)

    def listened(self, node: str, begin: int, until: int) -> list[tuple[int, int]]:
        """When it ran and its log tells what it heard."""
        found = []
        for start, end in self.runs(node, begin, until):
            marks = [start, *(moment for hole in self.holes(node) for moment in hole), end]
            pieces = [(max(a, start), min(b, end)) for a, b in zip(marks[::2], marks[1::2], strict=True)]
            found += [(a, b) for a, b in pieces if a < b]
        return found

    def ended(self, node: str, last: int) -> int:
        """The end of the process that wrote until ``last``."""
        there = [life for life in self.lives if life.node == node and life.state in ("up", "paused")]
        end = max((life.end for life in there if life.start < last <= life.end), default=last)
        while any(life.start == end for life in there):
            end = next(life.end for life in there if life.start == end)
        return end

    def gaps(self) -> Iterator[LoggedGap]:
        """Every time of more than 2.2 periods in which one boot heard nothing from a broker. A process wrote
        its last rows up to two seconds before its end."""
        for src, dst, last, following, begin, until in self.logged_gaps():
            if following is None:
                until = max(until, min(self.ended(dst, until), until + 2 * SECOND))
            yield src, dst, last, following, begin, until

    def logged_gaps(self) -> Iterator[LoggedGap]:
        """The same, as the log of the boot has it."""
        nodes = sorted({life.node for life in self.lives})
        for boot in self.facts.boots:
            for src in nodes:
                if src == boot.node:
                    continue
                marks: list[int | None] = [None]
                for first, last in self.heard.get((src, boot.node, boot.boot), []):
                    marks += [first, last]
                marks.append(None)
                for last, following in zip(marks[::2], marks[1::2], strict=True):
                    begin = boot.first if last is None else last
                    until = boot.told if following is None else following
                    if until - begin > self.silent:
                        yield src, boot.node, last, following, begin, until

    def errors(self) -> dict[tuple[str, str, int | None, int | None], float]:
        """The maximum error of the ends of the gap between two heartbeats, in seconds."""
        ends: dict[tuple[str, str, int | None], float] = {}
        for each in self.facts.stretches:
            for moment in (each.first, each.last):
                ends[each.src, each.dst, moment] = max(
                    each.error_s, ends.get((each.src, each.dst, moment), 0.0)
                )
        return {
            (src, dst, last, following): max(
                ends.get((src, dst, last), 0.0), ends.get((src, dst, following), 0.0)
            )
            for src, dst, last, following, _, _ in self.gaps()
        }

    def outages(self) -> set[Outage]:
        """The outages of a full mesh, with their causes."""
        found = set()
        for src, dst, last, following, begin, until in self.gaps():
            listened = self.listened(dst, begin, until)
            if not any(end - start > self.silent for start, end in listened):
                continue
            both = [span for start, end in listened for span in self.runs(src, start, end)]
            if any(end - start > self.silent for start, end in both):
                found.add((src, dst, last, following, True, "cut"))
                continue
            spent: dict[str, int] = {}
            for life in self.lives:
                overlap = min(life.end, until) - max(life.start, begin)
                if life.node == src and life.state != "up" and overlap > 0:
                    spent[life.state] = max(spent.get(life.state, 0), overlap)
            if spent:
                cause = max(spent, key=lambda state: spent[state])
                found.add((src, dst, last, following, True, cause))
        return found

    @cached_property
    def moments(self) -> list[tuple[int, int, list[frozenset[str]]]]:
        """The components of the running brokers, from each moment of a change to the next."""
        nodes = sorted({life.node for life in self.lives})
        end = max(life.end for life in self.lives)
        ran = {node: self.runs(node, 0, end) for node in nodes}
        dark: dict[tuple[str, str], list[tuple[int, int]]] = {}
        unsure: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for src, dst, _, _, begin, until in self.gaps():
            listened = self.listened(dst, begin, until)
            if any(stop - start > self.silent for start, stop in listened):
                told = [begin, *(moment for hole in self.holes(dst) for moment in hole), until]
                dark.setdefault((src, dst), []).extend(
                    (max(a, begin), min(b, until))
                    for a, b in zip(told[::2], told[1::2], strict=True)
                    if max(a, begin) < min(b, until)
                )
            elif any(start < until and begin < stop for start, stop in self.holes(dst)):
                unsure.setdefault((src, dst), []).extend(listened)
        seen = {pair: list(spans) for pair, spans in dark.items()}
        again: dict[tuple[str, str], list[int]] = {}
        for src, dst, _, following, _, _ in self.gaps():
            if following is not None:
                again.setdefault((src, dst), []).append(following)

        def spoke(src: str, dst: str) -> list[tuple[int, int]]:
            """What rows tell beyond the time of which they tell everything."""
            return [
                span
                for boot in self.facts.boots
                if boot.node == dst
                for span in self.heard.get((src, dst, boot.boot), [])
                if span[1] > boot.told
            ]

        lost = {
            node: [
                (a, b)
                for start, stop in ran[node]
                for a, b in self.unlogged(node, start, stop)
                if b - a > max(self.silent, 2 * SECOND)
            ]
            for node in nodes
        }
        for (src, dst), spans in list(dark.items()):
            together = [
                both
                for start, stop in spans
                for a, b in self.runs(dst, start, stop)
                for both in self.runs(src, a, b)
            ]
            for begin, until in together:
                if until - begin <= self.silent:
                    continue
                for start, stop in self.unlogged(src, begin, until):
                    since = [last for first, last in spoke(dst, src) if first <= start < last]
                    start = max([start, *since])
                    heard = [at for at in again.get((dst, src), []) if start < at < stop]
                    heard += [first for first, _ in spoke(dst, src) if start < first < stop]
                    if start < stop:
                        dark.setdefault((dst, src), []).append((start, min([stop, *heard])))
                for start, stop in unsure.get((dst, src), []):
                    if max(start, begin) < min(stop, until):
                        dark.setdefault((dst, src), []).append((max(start, begin), min(stop, until)))
        changes = {
            moment
            for spans in (*ran.values(), *dark.values(), *lost.values())
            for span in spans
            for moment in span
        }
        found = []
        for start, stop in pairwise(sorted(changes)):
            here = [node for node in nodes if _covered(ran[node], start)]
            graph = nx.Graph()
            graph.add_nodes_from(here)
            for one in here:
                for other in here:
                    if one >= other:
                        continue
                    silent = all(_covered(dark.get(pair, []), start) for pair in ((one, other), (other, one)))
                    nobody_tells = all(_covered(lost[node], start) for node in (one, other))
                    differ = nobody_tells and any(
                        _covered(seen.get((one, by), []), start) != _covered(seen.get((other, by), []), start)
                        for by in here
                        if by not in (one, other)
                    )
                    if not silent and not differ:
                        graph.add_edge(one, other)
            found.append((start, stop, [frozenset(group) for group in nx.connected_components(graph)]))
        return found

    def unlogged(self, node: str, begin: int, until: int) -> list[tuple[int, int]]:
        """The times between two moments of which its log does not tell."""
        logs = [(boot.first, boot.told) for boot in self.facts.boots if boot.node == node]
        ends = sorted(
            [moment for log in logs for moment in log] + [at for hole in self.holes(node) for at in hole]
        )
        marks = [begin, *ends, until]
        spans = zip(marks[::2], marks[1::2], strict=True)
        return [(max(a, begin), min(b, until)) for a, b in spans if max(a, begin) < min(b, until)]

    def check(self, parts: Sequence[Any], sides: Iterable[tuple[int, str, int]]) -> None:
        """``parts`` have the columns of their table.

        Raises:
            AssertionError: a complete part is none, or was missed.
        """
        side_of: dict[int, dict[str, int]] = {}
        for no, node, side in sides:
            side_of.setdefault(no, {})[node] = side
        complete = [(no, start, end) for no, start, end, kind, _ in parts if kind == "complete"]
        last = max(life.end for life in self.lives)
        apart_since: int | None = None
        for start, stop, groups in self.moments:
            for no, begin, end in complete:
                if begin <= start and stop <= (last if end is None else end):
                    for group in groups:
                        reached = {side_of[no][node] for node in group if node in side_of[no]}
                        assert len(reached) <= 1, f"sides of part {no} hear each other at {start}"
            if len(groups) > 1:
                apart_since = start if apart_since is None else apart_since
                if stop - start > 2 * self.silent:
                    covered = any(b <= start and stop <= (last if e is None else e) for _, b, e in complete)
                    healing = any(e is not None and 0 <= start - e <= 5 * self.period for _, _, e in complete)
                    assert covered or healing, (
                        f"nothing tells that {groups} were apart from {start} to {stop}"
                    )
        for no, begin, end in complete:
            across = self.across(side_of[no])
            assert begin in across or self._changed(begin), f"part {no} begins with no heartbeat"
            assert end is None or end in across or self._changed(end), f"part {no} ends with no heartbeat"
            assert not [at for at in across if begin < at < (last if end is None else end)]

    def across(self, side_of: dict[str, int]) -> set[int]:
        """Ends of stretches between brokers of different sides."""
        return {
            moment
            for each in self.facts.stretches
            if each.src in side_of and each.dst in side_of and side_of[each.src] != side_of[each.dst]
            for moment in (each.first, each.last)
        }

    def _changed(self, moment: int) -> bool:
        """A broker began or ceased to run then, or a mesh of two sides became one of three."""
        return any(moment in (start, stop) for start, stop, _ in self.moments)


def _covered(times: Iterable[tuple[int, int]], now: int) -> bool:
    return any(start <= now < end for start, end in times)
