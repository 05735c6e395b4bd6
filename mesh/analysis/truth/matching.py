"""What was done beside what was found, one to one. Pure.

Two parts can be the same if they overlap and keep the same brokers apart; of all ways to pair them the one
with the most time in common is taken. A cut of one way becomes a cut of both when its links are given up: a
part that is one-way and then complete, of the same sides, is one here.

What is shorter than 3.2 periods is *below resolution* when it has no counterpart: a cut that short may end
before anybody misses a heartbeat. So is what was found of links that were strained all that time: whether
they carry is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import networkx as nx

from mesh.analysis.silence.apart import Times, clip
from mesh.analysis.silence.sweep import Part
from mesh.analysis.truth.parts import Made

RESOLVED_PERIODS: Final = 3.2
"""What lasts so long is found."""
APART_PERIODS: Final = 3
"""So long after a one-way cut both ways are silent, at most, since links are given up after three rounds."""

Verdict = Literal["tp", "fp", "fn", "below resolution"]
One = TypeVar("One")
Other = TypeVar("Other")


class Episode(NamedTuple):
    """Parts that followed one another with the same brokers apart; which, by their numbers."""

    start: int
    end: int | None
    kinds: tuple[str, ...]
    apart: frozenset[frozenset[int]]
    numbers: tuple[int, ...]


class Match(NamedTuple):
    """A pair, or one that has no counterpart."""

    truth: int | None
    """Its place among those that were made."""
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
    """Every part that was made and every one that was found, once, in order of time."""
    resolved = RESOLVED_PERIODS * period
    episodes = _episodes(found, period)

    def worth(one: Made, other: Episode) -> int:
        if frozenset(map(frozenset, one.part.sides)) != other.apart or not _kinds_agree(
            one.part.kind, other.kinds
        ):
            return 0
        until, last = (end if at is None else at for at in (one.part.end, other.end))
        return min(until, last) - max(one.part.start, other.start)

    pairs = best_pairs(made, episodes, worth)
    rows = [_matched(place, made[place], episodes[number]) for place, number in pairs]
    of_truth, of_found = {place for place, _ in pairs}, {number for _, number in pairs}
    for place, one in enumerate(made):
        if place not in of_truth:
            short = one.mended - one.part.start < resolved
            rows.append(Match(place, None, "below resolution" if short else "fn", one.part.start, None, None))
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
    """Places of those that go together, each at most once, so that the sum of their worth is the greatest;
    what is worth nothing does not go together."""
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
    """A one-way part and the one both ways that follows from it are one."""
    episodes: list[Episode] = []
    for number, part in enumerate(found):
        apart = frozenset(map(frozenset, part.sides))
        for place, before in enumerate(episodes):
            follows = before.end is not None and abs(part.start - before.end) <= APART_PERIODS * period
            if before.kinds == ("one-way",) and part.kind != "one-way" and before.apart == apart and follows:
                episodes[place] = Episode(
                    before.start, part.end, (*before.kinds, part.kind), apart, (*before.numbers, number)
                )
                break
        else:
            episodes.append(Episode(part.start, part.end, (part.kind,), apart, (number,)))
    return episodes


def _by_strain(episode: Episode, strained: Mapping[tuple[int, int], Times], end: int) -> bool:
    """Whether a link across was strained at some time of it, in one of both ways, for each two brokers."""
    sides = list(episode.apart)
    return all(
        any(clip(strained.get(link, []), episode.start, end) for link in ((one, other), (other, one)))
        for at, side in enumerate(sides)
        for others in sides[at + 1 :]
        for one in side
        for other in others
    )
