"""All conclusions from silence in one run, from the few facts that Spark has extracted from its heartbeats.
Pure.

Brokers are numbered here, since their ids are texts and there are many pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mesh.analysis.silence.apart import Ties, Times, clip, common, components, joined, without
from mesh.analysis.silence.outages import UNWRITTEN, Gap, Lived, Outage, Ran, Told, outages, ran
from mesh.analysis.silence.sweep import Limits, Part, Silence, limits, parts

FULL_SHARE: Final = 0.8
"""A mesh is full if this share of the pairs that could hear each other did."""
COMPARED_MOST: Final = 4_000_000
"""Comparisons of what listeners heard of two brokers: some seconds."""
TOGETHER_PERIODS: Final = 10
"""Brokers that ran together for less may not have found each other."""


class Found(NamedTuple):
    outages: list[Outage]
    parts: list[Part]


class Facts(NamedTuple):
    """The facts of one run. Times are in microseconds."""

    lives: Sequence[Lived]
    gaps: Sequence[Gap]
    joined_at: Mapping[int, list[int]]
    """When processes of each broker joined, in order."""
    unheard: Sequence[tuple[int, int]]
    """Pairs that never heard each other, the lower number first. Empty unless the mesh is full."""
    ties: Ties | None
    """The brokers that each broker ever heard, or was heard by. None: the mesh is full."""
    closed: Mapping[tuple[int, int], list[int]]
    """When links went down, by src and dst, in order."""
    logged: Mapping[int, Times]
    """The times of which each broker's log tells, without ``holes``."""
    holes: Mapping[int, Times]
    """The times whose rows are missing in a broker's log, although it goes on after them, as `hiding` gives
    them."""
    beyond: Mapping[tuple[int, int], Times]
    """By src and dst: the stretches of heartbeats in rows after the time of which dst's log tells all."""
    period: Mapping[int, int]
    end: int
    """The end of the logs."""


def decide(facts: Facts) -> Found:
    """Outages and parts of a run."""
    did = ran(facts.lives, facts.joined_at)
    gaps = [*facts.gaps, *_never_heard(facts, did)]
    told = outages(gaps, did, facts.period, facts.ties, facts.closed, facts.holes)
    unknown = {
        node: lost
        for node, times in did.presence.items()
        if (lost := without(times, facts.logged.get(node, [])))
    }
    period = max(facts.period.values(), default=0)
    silences = [
        *told.silences,
        *_presumed(told, unknown, _heard_beyond(facts.beyond, gaps, unknown), limits(period)),
        *unknown_links(told.silences, _lasting(unknown, limits(period)), facts.ties),
    ]
    # Only where a log has gaps may a silence begin without a heartbeat that its broker heard.
    heard = {(gap.src, gap.dst, at) for gap in gaps if gap.dst in unknown for at in (gap.last, gap.next)}
    heard |= {(*link, last) for link, times in facts.beyond.items() for _, last in times}
    halved = (
        _in_halves(each, (each.src, each.dst, each.start) in heard if each.dst in unknown else not each.fresh)
        for each in silences
    )
    return Found(told.rows, _parts(did.presence, halved, facts.ties, period, facts.end))


def _presumed(
    told: Told, unknown: Mapping[int, Times], heard: Mapping[tuple[int, int], Times], limits: Limits
) -> Iterator[Silence]:
    """What a broker heard while its log is lost is not known. If others do not hear a broker, we assume that
    it does not hear them: the log of one broker must not turn a mesh in two into a cut of single links. This
    ends with the first stretch that it ``heard``. A silence of at most 2.2 periods proves nothing."""
    for each in told.silences:
        if each.end - each.start <= limits.least:
            continue
        times = unknown.get(each.src, [])
        if beside := told.doubtful.get((each.dst, each.src)):
            times = joined([*times, *beside])
        known = heard.get((each.dst, each.src), [])
        for start, end in clip(times, each.start, each.end):
            begin = max((last for first, last in known if first <= start < last), default=start)
            until = min((first for first, _ in known if begin < first < end), default=end)
            if begin >= until:
                continue
            yield Silence(each.dst, each.src, begin, until, each.expected, each.fresh and begin == each.start)


def _heard_beyond(
    beyond: Mapping[tuple[int, int], Times], gaps: Iterable[Gap], unknown: Mapping[int, Times]
) -> dict[tuple[int, int], Times]:
    """Stretches that a broker heard after the time of which its log tells all. The heartbeats at the ends of
    a gap are stretches too."""
    found = {link: list(times) for link, times in beyond.items()}
    for gap in gaps:
        if gap.next is not None and gap.dst in unknown:
            found.setdefault((gap.src, gap.dst), []).append((gap.next, gap.next))
    return found


def _lasting(unknown: Mapping[int, Times], limits: Limits) -> dict[int, Times]:
    """Without the last rows before the end of a process or of the logs."""
    least = max(limits.least, UNWRITTEN)
    long = {node: [(a, b) for a, b in times if b - a > least] for node, times in unknown.items()}
    return {node: times for node, times in long.items() if times}


def unknown_links(
    silences: Iterable[Silence], unknown: Mapping[int, Times], ties: Ties | None
) -> Iterator[Silence]:
    """The links between two brokers whose logs are both lost, while another hears one of them and not the
    other. Nobody knows whether these links carried anything, so they do not hold two sides together. They are
    no lost links by themselves either (``expected``).

    Where hundreds of logs are lost, a sample of the listeners is asked."""
    unheard: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for each in silences:
        if each.src in unknown:
            times = clip(unknown[each.src], each.start, each.end)
            if times:
                unheard.setdefault(each.src, {}).setdefault(each.dst, []).extend(times)
    most = max((len(by) for by in unheard.values()), default=0)
    step = 1 + len(unheard) * len(unknown) * most // COMPARED_MOST
    for one, listeners in unheard.items():
        by = {each: listeners[each] for each in sorted(listeners)[::step]}
        for other, lost in unknown.items():
            if one == other or (ties is not None and other not in ties.get(one, ())):
                continue
            beside = unheard.get(other, {})
            told = (
                span
                for listener, times in by.items()
                if listener != other and (ties is None or listener in ties.get(other, ()))
                for span in without(joined(times), joined(beside.get(listener, [])))
            )
            known = joined([*listeners.get(other, []), *beside.get(one, [])])
            for begin, until in without(common([joined(told), lost]), known):
                yield Silence(one, other, begin, until, expected=False)
                yield Silence(other, one, begin, until, expected=False)


def _in_halves(silence: Silence, after: bool) -> Silence:
    """In half microseconds: a silence begins just ``after`` a heartbeat, so that between two silences with a
    single heartbeat there is a moment without silence."""
    return silence._replace(start=2 * silence.start + after, end=2 * silence.end)


def _parts(
    presence: Mapping[int, Times], halved: Iterable[Silence], ties: Ties | None, period: int, end: int
) -> list[Part]:
    halves = {node: [(2 * begin, 2 * until) for begin, until in times] for node, times in presence.items()}
    return [
        part._replace(start=part.start // 2, end=None if part.end is None else part.end // 2)
        for part in parts(halves, halved, ties, limits(2 * period), 2 * end)
    ]


def _never_heard(facts: Facts, did: Ran) -> Iterable[Gap]:
    """Pairs without a heartbeat have no stretches to find gaps between."""
    for one, other in facts.unheard:
        for src, dst in ((one, other), (other, one)):
            for begin, until in did.presence.get(dst, []):
                if clip(did.presence.get(src, []), begin, until):
                    yield Gap(src, dst, None, None, begin, until, 0.0)


def is_full(presence: Mapping[int, Times], heard: Ties, period: int) -> bool:
    """True if the mesh is full: among connected brokers, those that ran together for long heard each other.
    In a mesh of neighbours brokers hear few others; in a mesh that was cut they hear all on their side."""
    pairs = met = 0
    for group in components(presence, (), heard):
        for one in group:
            for other in group:
                if one < other and _together(presence[one], presence[other]) > TOGETHER_PERIODS * period:
                    pairs += 1
                    met += other in heard.get(one, ())
    return met >= FULL_SHARE * pairs


def _together(ones: Times, others: Times) -> int:
    return sum(max(0, min(until, end) - max(begin, start)) for begin, until in ones for start, end in others)
