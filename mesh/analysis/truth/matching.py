"""Matches the parts that were made one to one with the parts that were found. Pure.

Two parts can match if they overlap and separate the same brokers, one-way parts in the same direction. A
finding about single links may lack brokers whose links no log describes. Among all ways to pair them, the one
with the most common time is chosen. A one-way cut becomes a cut of both ways when its links are given up. So
a part that is one-way and then complete, with the same sides, counts as one here.

A part shorter than 3.2 periods is *below resolution* if it has no counterpart: such a short cut may end
before a heartbeat is missed. The same holds for findings about links that were strained all that time: chance
decides whether they carry frames.

A missed part is *not observable* unless logs show 3.2 periods of it: a broker that ran, and a listener on
another side that did not hear it. Logs that showed more of it are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import networkx as nx

from mesh.analysis.silence.apart import Times, clip
from mesh.analysis.silence.sweep import Part
from mesh.analysis.truth.parts import Made

RESOLVED_PERIODS: Final = 3.2
"""A part of this length is found."""
APART_PERIODS: Final = 3
"""Both ways are silent at most so long after a one-way cut, since links are given up after three rounds."""

Verdict = Literal["tp", "fp", "fn", "below resolution", "not observable"]
One = TypeVar("One")
Other = TypeVar("Other")


class Episode(NamedTuple):
    """Numbers of parts that followed each other with the same brokers apart."""

    start: int
    end: int | None
    kinds: tuple[str, ...]
    apart: frozenset[frozenset[int]]
    heard: frozenset[int] | None
    """The side that was heard while it was one-way. None: it was not."""
    numbers: tuple[int, ...]


class Match(NamedTuple):
    """A pair, or a part without a counterpart."""

    truth: int | None
    """Its index among the parts that were made."""
    found: Episode | None
    verdict: Verdict
    at: int
    start_lag: int | None
    end_lag: int | None


def match_parts(
    made: Sequence[Made],
    found: Sequence[Part],
    strained: Mapping[tuple[int, int], Times],
    period: int,
    end: int,
) -> list[Match]:
    """Every part that was made and every part that was found, once, ordered by time."""
    resolved = RESOLVED_PERIODS * period
    episodes = _episodes(found, period)

    def worth(one: Made, other: Episode) -> int:
        sides = {frozenset(map(frozenset, sides)) for sides in (one.part.sides, one.told)}
        if other.apart not in sides or not _kinds_agree(one.part.kind, other.kinds):
            return 0
        heard = {frozenset(sides[0]) for sides in (one.part.sides, one.told)}
        if one.part.kind == "one-way" and other.heard is not None and other.heard not in heard:
            return 0
        until, last = (end if at is None else at for at in (one.part.end, other.end))
        return min(until, last) - max(one.part.start, other.start)

    pairs = best_pairs(made, episodes, worth)
    rows = [_matched(place, made[place], episodes[number]) for place, number in pairs]
    of_truth, of_found = {place for place, _ in pairs}, {number for _, number in pairs}
    for place, one in enumerate(made):
        if place not in of_truth:
            missed: Verdict = "fn" if one.seen >= resolved else "not observable"
            if one.mended - one.part.start < resolved:
                missed = "below resolution"
            rows.append(Match(place, None, missed, one.part.start, None, None))
    for number, episode in enumerate(episodes):
        if number not in of_found:
            until = end if episode.end is None else episode.end
            chance = until - episode.start < resolved or _by_strain(episode, strained, until)
            verdict: Verdict = "below resolution" if chance else "fp"
            rows.append(Match(None, episode, verdict, episode.start, None, None))
    return sorted(rows, key=lambda row: row.at)


def _matched(place: int, one: Made, episode: Episode) -> Match:
    lasts = episode.end is None or one.part.end is None
    end_lag = None if lasts or episode.end is None else episode.end - one.mended
    return Match(place, episode, "tp", one.part.start, episode.start - one.part.start, end_lag)


def best_pairs(
    ones: Sequence[One], others: Sequence[Other], worth: Callable[[One, Other], int]
) -> list[tuple[int, int]]:
    """Indexes of the pairs, each index at most once, with the greatest sum of worths. A worth of zero makes
    no pair."""
    graph = nx.Graph()
    for place, one in enumerate(ones):
        for at, other in enumerate(others):
            value = worth(one, other)
            if value > 0:
                graph.add_edge((0, place), (1, at), weight=value)
    chosen = nx.max_weight_matching(graph)
    return sorted((min(pair)[1], max(pair)[1]) for pair in chosen)


def _kinds_agree(made: str, found: tuple[str, ...]) -> bool:
    return (
        found == (made,)
        or (made == "one-way" and "one-way" in found)
        or (made == "one-way" and len(found) == 1)
    )


def _episodes(found: Sequence[Part], period: int) -> list[Episode]:
    """A one-way part and the part both ways that follows from it are one episode."""
    episodes: list[Episode] = []
    for number, part in enumerate(found):
        apart = frozenset(map(frozenset, part.sides))
        for place, before in enumerate(episodes):
            follows = before.end is not None and abs(part.start - before.end) <= APART_PERIODS * period
            if before.kinds == ("one-way",) and part.kind != "one-way" and before.apart == apart and follows:
                episodes[place] = before._replace(
                    end=part.end, kinds=(*before.kinds, part.kind), numbers=(*before.numbers, number)
                )
                break
        else:
            heard = frozenset(part.sides[0]) if part.kind == "one-way" else None
            episodes.append(Episode(part.start, part.end, (part.kind,), apart, heard, (number,)))
    return episodes


def _by_strain(episode: Episode, strained: Mapping[tuple[int, int], Times], end: int) -> bool:
    """True if, for each two brokers, a link across was strained at some time of the episode, in either
    direction."""
    sides = list(episode.apart)
    return all(
        any(clip(strained.get(link, []), episode.start, end) for link in ((one, other), (other, one)))
        for at, side in enumerate(sides)
        for others in sides[at + 1 :]
        for one in side
        for other in others
    )
