"""Each rule of truth and of matching, switched off once: without it a run gets another score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mesh.analysis.silence.sweep import Part, Silence
from mesh.analysis.truth import effects, lives, matching, parts, scoring
from mesh.analysis.truth.lives import Event
from mesh.analysis.truth.matching import Episode
from tests.mesh.analysis.truth.test_matching import ALONE, S, made, match, part
from tests.mesh.analysis.truth.test_scoring import CUT, NAMES, lived, log, outages, row, told

FOUND = [(1, round(19.5 * S), 32 * S, "complete")]


def cut_and_found() -> Any:
    return told([*CUT], FOUND)


def overlapping() -> Any:
    """The first of two cuts of the same links ends, and nothing heals."""
    longer = (row(22, "cut", "ab", "cd", "partition"), row(40, "end", "ab", "cd", "partition"))
    return told([CUT[0], longer[0], CUT[1], longer[1]], FOUND, silent=outages(19.5, 41))


def mended_for_a_moment() -> Any:
    """Between two cuts of the same links nobody heard anything."""
    again = (row(31, "cut", "ab", "cd", "partition"), row(40, "end", "ab", "cd", "partition"))
    return told([*CUT, *again], [(1, round(19.5 * S), 41 * S, "complete")], silent=outages(19.5, 41))


def before_joining() -> Any:
    return told([*CUT], joined=[(node, 33 * S) for node in NAMES])


def lossy() -> Any:
    """A finding about links that lost half of all packets."""
    whole = {link: [(0, 100 * S)] for link in ((0, 1), (0, 2), (0, 3))}
    return match([], [part(10, 20, ALONE)], whole)


def one_way() -> Any:
    return match([made(10, 20, ALONE, "one-way")], [part(9.9, 12, ALONE, "one-way"), part(12.4, 20.5, ALONE)])


def short() -> Any:
    return match([made(10, 13)], [])


def short_pause() -> Any:
    return lives.match_events([Event("pause", "a", 10 * S, 12 * S)], [], S, {"a": [(0, 100 * S)]}, 5 * S)


def pause_in_a_lost_log() -> Any:
    """Its log ends before the counters that would tell of it."""
    return lives.match_events([Event("pause", "a", 10 * S, 20 * S)], [], S, {"a": [(0, 24 * S)]}, 5 * S)


def last_seen() -> Any:
    """The only broker of a side was killed while it was cut off. Its last row is of the first seconds."""
    cut = (row(20, "cut", "a", "bcd", "partition"), row(30, "end", "a", "bcd", "partition"))
    life: list[tuple[str, float, float, str | None]] = [("up", 0, 22.5, "crash"), ("down", 22.5, 100, None)]
    logged = [log("1", 0, 22.5), *(log(node, 0, 100) for node in "234")]
    return told([*cut, row(26, "crash", "a")], lives=lived(a=life), logged=logged, silent=[])


def cut_in_lost_logs() -> Any:
    """The logs of all brokers end before the cut."""
    return told([*CUT], logged=[log(node, 0, 15) for node in NAMES], silent=[])


def paired() -> Any:
    """The first cut overlaps both parts, the second only the longer."""
    return match([made(10, 40), made(30, 60)], [part(12, 58), part(8, 20)])


def greedy(
    ones: Sequence[Any], others: Sequence[Any], worth: Callable[[Any, Any], int]
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for one, first in enumerate(ones):
        free = [at for at in range(len(others)) if at not in {other for _, other in found}]
        best = max(free, key=lambda at: worth(first, others[at]), default=None)
        if best is not None and worth(first, others[best]) > 0:
            found.append((one, best))
    return found


def each_alone(found: Sequence[Part], period: int) -> list[Episode]:
    apart = [frozenset(map(frozenset, one.sides)) for one in found]
    return [Episode(one.start, one.end, (one.kind,), apart[at], None, (at,)) for at, one in enumerate(found)]


def never_mended(links: Any, link: tuple[str, str], at: int) -> None:
    """The first end ends all."""
    if links._by.pop(link, 0):
        links._times.setdefault(link, []).append((links._since.pop(link), at))


def all_across(part: Part, told: Any, end: int) -> list[Silence]:
    return [Silence(part.sides[0][0], part.sides[1][0], part.start, part.start + 10 * S)]


def at_once(presence: Any) -> Any:
    return lambda lives, joined_at: presence(lives, {life.node: [life.start] for life in lives})


RULES: list[tuple[str, Any, str, Any, Callable[[], Any]]] = [
    (
        "a part lasts until the first heartbeat across",
        parts,
        "_until_heard",
        lambda cuts, silent: cuts,
        mended_for_a_moment,
    ),
    ("a link carries once the last cut is gone", effects._Links, "_mend", never_mended, overlapping),
    ("a broker that has not joined is in no part", parts, "ran", at_once(parts.ran), before_joining),
    (
        "a silence lasts as long as its listener",
        scoring,
        "_stays",
        lambda run: {},
        lambda: told([*CUT], FOUND, silent=outages(19.5, None)),
    ),
    ("strained links carry by chance", matching, "_by_strain", lambda *_: False, lossy),
    ("one-way, then both ways, is one", matching, "_episodes", each_alone, one_way),
    ("a short cut is below resolution", matching, "RESOLVED_PERIODS", 0.0, short),
    ("a short pause is below resolution", lives, "SILENT_PERIODS", 0.0, short_pause),
    (
        "a pause in a lost log is not observable",
        lives,
        "_missed",
        lambda *_: "fn",
        pause_in_a_lost_log,
    ),
    ("a cut in lost logs is not observable", parts, "_across", all_across, cut_in_lost_logs),
    (
        "nor is one of a broker that was dead for all that logs tell",
        parts,
        "_across",
        all_across,
        last_seen,
    ),
    ("pairs are the best ones", matching, "best_pairs", greedy, paired),
]


@pytest.mark.parametrize(("rule", "place", "name", "broken", "run"), RULES, ids=[rule for rule, *_ in RULES])
def test_each_rule_decides_something(
    rule: str, place: Any, name: str, broken: Any, run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = run()
    monkeypatch.setattr(place, name, broken)
    assert run() != right, rule


def test_every_example_of_the_rules_is_scored_right() -> None:
    assert [each[3] for each in cut_and_found()] == ["tp"]
    assert [(each[3], each[6]) for each in overlapping()] == [("tp", -8.0)]
    assert [each[3] for each in mended_for_a_moment()] == ["tp"]
    assert before_joining() == []
    assert [each.verdict for each in lossy()] == ["below resolution"]
    assert [each.verdict for each in one_way()] == ["tp"]
    assert [each.verdict for each in short()] == ["below resolution"]
    assert [each.verdict for each in short_pause()] == ["below resolution"]
    assert [each.verdict for each in pause_in_a_lost_log()] == ["not observable"]
    assert [each[3] for each in cut_in_lost_logs()] == ["not observable"]
    assert [each[3] for each in last_seen()] == ["not observable", "tp"]
    assert [each.verdict for each in paired()] == ["tp", "tp"]
