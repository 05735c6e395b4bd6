"""From gaps between stretches to outages, and to silences while both ran, the input of the sweep. Pure.

It depends on `dst` whether a gap counts: it was silence only while `dst` ran, and is an outage if that took
more than 2.2 periods at a time. The cause is the state of `src` meanwhile. Silence while both ran is a cut.
What `dst` heard in a hole of its log is not known: there it did not listen.

A process **runs** from the moment at which it joined (`joinings`). Before that it is not part of the mesh
yet. Then it runs while its life says so: a broker that is paused, down, away or unknown is on no side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from mesh.analysis.silence.apart import Ties, Times, clip, joined, without
from mesh.analysis.silence.sweep import SILENT_PERIODS, Silence

UNWRITTEN: Final = 2_000_000
"""Microseconds of rows that a kill loses: they reach the file within a second, and a busy loop may take
another."""
HIDING_PERIODS: Final = 1
"""A shorter hole hides at most one heartbeat of each peer, whose absence alone is no silence."""
Cause = Literal["down", "paused", "away", "unknown", "cut"]


class Lived(NamedTuple):
    """A stretch of a broker's life, as `mesh.analysis.results.tables.Life` has it."""

    node: int
    state: str
    start: int
    end: int
    boot: str | None
    met: int | None = None


class Gap(NamedTuple):
    """``dst`` heard nothing from ``src`` for longer than 2.2 periods, in one boot of ``dst``."""

    src: int
    dst: int
    last: int | None
    """None: it had not heard it before in this boot."""
    next: int | None
    """None: it did not hear it later either."""
    begin: int
    """``last``, or when the boot of ``dst`` began."""
    until: int
    """``next``, or when that boot ended."""
    error_s: float


class Outage(NamedTuple):
    """A row of the table, without the run and names."""

    src: int
    dst: int
    last: int | None
    next: int | None
    expected: bool
    cause: Cause
    error_s: float


class Ran(NamedTuple):
    """When brokers ran, and their other states."""

    presence: dict[int, Times]
    absence: dict[int, list[Lived]]
    stays: dict[int, Times]
    """When each existed at all, including pauses and joining."""


def joinings(
    lives: Iterable[Lived], heard_at: Mapping[int, list[int]], logged: Mapping[int, Times]
) -> dict[int, list[int]]:
    """When processes joined the mesh, by broker, in order: as soon as they heard another broker.

    If a process heard none as far as its log tells, it joined when another heard it after that time.

    ``heard_at``: when each boot of a broker first heard any other. ``logged``: the times of which each
    broker's log tells.
    """
    found = {node: set(times) for node, times in heard_at.items()}
    for (node, _), process in _processes(lives).items():
        begin, until = process[0].start, process[-1].end
        if any(begin <= at < until for at in heard_at.get(node, ())):
            continue
        told = next((last for first, last in logged.get(node, ()) if first <= begin < last), begin)
        met = (max(life.met, told) for life in process if life.met is not None and life.end > told)
        found.setdefault(node, set()).update(met)
    return {node: sorted(times) for node, times in found.items()}


def ran(lives: Iterable[Lived], joined_at: Mapping[int, list[int]]) -> Ran:
    """The presence and absence of each broker. ``joined_at``: when its processes joined, in order. A process
    that never joined is on no side."""
    every = list(lives)
    absence: dict[int, list[Lived]] = {}
    for life in every:
        if life.state != "up":
            absence.setdefault(life.node, []).append(life)
    presence: dict[int, list[tuple[int, int]]] = {}
    stays: dict[int, list[tuple[int, int]]] = {}
    for (node, _), process in _processes(every).items():
        begin, until = process[0].start, process[-1].end
        there = [(life.start, life.end) for life in process if life.state in ("up", "paused")]
        stays.setdefault(node, []).extend(joined(there))
        since = next((at for at in joined_at.get(node, ()) if begin <= at < until), until)
        up = joined([(life.start, life.end) for life in process if life.state == "up"])
        presence.setdefault(node, []).extend(clip(up, since, until))
    return Ran({node: joined(times) for node, times in presence.items() if times}, absence, stays)


def _processes(lives: Iterable[Lived]) -> dict[tuple[int, str], list[Lived]]:
    """The stretches of each process, by broker and boot, in order."""
    found: dict[tuple[int, str], list[Lived]] = {}
    for life in sorted(lives, key=lambda life: life.start):
        if life.boot is not None:
            found.setdefault((life.node, life.boot), []).append(life)
    return found


class Told(NamedTuple):
    """What gaps say."""

    rows: list[Outage]
    silences: list[Silence]
    """To be swept."""
    doubtful: dict[tuple[int, int], Times]
    """By src and dst: what remains of a silence beside a hole, too short to be certain."""


def outages(
    gaps: Iterable[Gap],
    ran: Ran,
    period: Mapping[int, int],
    ties: Ties | None,
    closed: Mapping[tuple[int, int], list[int]],
    holes: Mapping[int, Times],
) -> Told:
    """The rows of the table, and the silences.

    ``ties`` are the brokers that each was ever linked with, None in a full mesh. ``closed`` is when links
    went down, by src and by dst, whose log says so, in order. ``holes`` are those of `hiding`.
    """
    rows: list[Outage] = []
    silences: list[Silence] = []
    doubtful: dict[tuple[int, int], Times] = {}
    for gap in gaps:
        limit = int(SILENT_PERIODS * max(period[gap.src], period[gap.dst]))
        gap = _whole(gap, ran.stays.get(gap.dst, []))
        hidden = holes.get(gap.dst, [])
        listened = _listened(gap, ran.presence.get(gap.dst, []), hidden)
        if not any(until - begin > limit for begin, until in listened):
            if any(begin < gap.until and gap.begin < until for begin, until in hidden):
                doubtful.setdefault((gap.src, gap.dst), []).extend(listened)
            continue
        sources = ran.presence.get(gap.src, [])
        both = [span for begin, until in listened for span in clip(sources, begin, until)]
        expected = ties is None or _ought(gap, limit, closed.get((gap.src, gap.dst), []))
        seen_again = {end for _, end in hidden}
        silences += (
            Silence(gap.src, gap.dst, begin, until, expected, _is_fresh(gap, begin, seen_again))
            for begin, until in both
        )
        cause = _cause(gap, both, limit, ran)
        if cause is not None:
            rows.append(Outage(gap.src, gap.dst, gap.last, gap.next, expected, cause, gap.error_s))
    return Told(rows, silences, doubtful)


def hiding(holes: Mapping[int, Times], period: Mapping[int, int]) -> dict[int, Times]:
    """The holes in each broker's log in which a silence could begin or end."""
    longest = max(period.values(), default=0) * HIDING_PERIODS
    return {
        node: [(begin, until) for begin, until in times if until - begin > longest]
        for node, times in holes.items()
    }


def _listened(gap: Gap, presence: Times, holes: Times) -> Times:
    """The times in a gap in which ``dst`` would have written what it heard."""
    times = clip(presence, gap.begin, gap.until)
    return without(times, holes) if holes else times


def _is_fresh(gap: Gap, begin: int, seen_again: Collection[int]) -> bool:
    """True if a silence from ``begin`` on is that of a broker which has only started. A silence that goes on
    after a hole (``seen_again``) is none."""
    return gap.last is None or (begin > gap.begin and begin not in seen_again)


def _whole(gap: Gap, stays: Times) -> Gap:
    """A silence at the end of a log lasted as long as its writer, of whose last rows a kill loses some. What
    was heard when more of a log is lost is not known."""
    for begin, until in stays:
        if gap.next is None and begin < gap.until < until:
            return gap._replace(until=min(until, gap.until + UNWRITTEN))
    return gap


def _ought(gap: Gap, limit: int, closed: list[int]) -> bool:
    """In a mesh of neighbours links come and go. A link that went down before its peer was silent for long
    was closed, not lost. A link that did not exist yet was not missed."""
    if gap.last is None:
        return False
    at = bisect_right(closed, gap.last)
    return at == len(closed) or closed[at] > gap.last + limit


def _cause(gap: Gap, both: Times, limit: int, ran: Ran) -> Cause | None:
    """The state of ``src`` in the gap. None: it did not exist yet, or no longer, for anybody."""
    if any(until - begin > limit for begin, until in both):
        return "cut"
    best: tuple[int, Cause] | None = None
    for life in ran.absence.get(gap.src, []):
        overlap = min(life.end, gap.until) - max(life.start, gap.begin)
        if overlap > 0 and (best is None or overlap > best[0]):
            best = (overlap, life.state)  # type: ignore[assignment]
    return best[1] if best else None
