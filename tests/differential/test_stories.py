"""The comparison of two stories, on stories written by hand."""

from __future__ import annotations

from tests.differential.stories import Changes, Expected, Pair, folded, story

NAMES = ("a", "b", "v")
DIES = [("suspect", 1.0), ("dead", 3.0)]


def test_a_story_has_only_views_of_others_between_the_two_times() -> None:
    common = {"kind": "mem", "to_state": "dead", "subject_name": "v", "subject": 3}
    rows = [
        {"kind": "meta", "node": 1, "name": "a", "at_s": 0.0},
        {"kind": "meta", "node": 3, "name": "v", "at_s": 0.0},
        {**common, "node": 1, "at_s": 9.0},
        {**common, "node": 1, "at_s": 11.5},
        {**common, "node": 3, "at_s": 11.5},
        {**common, "node": 1, "at_s": 21.0},
    ]
    assert story(rows, 10.0, 20.0) == {("a", "v"): [("dead", 1.5)]}


def test_folding_omits_only_refuted_suspicions() -> None:
    assert folded([("suspect", 1.0), ("alive", 1.1)]) == []
    assert folded([*DIES, ("alive", 6.5)]) == []
    assert folded([("suspect", 1.0), ("alive", 1.1), *DIES]) == DIES
    assert folded([("alive", 0.1), ("suspect", 1.0)]) == [("alive", 0.1), ("suspect", 1.0)]


def expected(by_chance: bool) -> Expected:
    """Two seeds, one half a second later than the other."""
    found = Expected(("v",), NAMES, silent=("v",), by_chance=by_chance)
    for later_s in (0.0, 0.5):
        told: Changes = [(state, at_s + later_s) for state, at_s in DIES]
        found.add({("a", "v"): told, ("b", "v"): told})
    return found


def differences(by_chance: bool = False, **told: Changes) -> list[str]:
    pairs: dict[Pair, Changes] = {("a", "v"): list(DIES), ("b", "v"): list(DIES)}
    return expected(by_chance).differences(
        pairs | {(pair[0], pair[1]): changes for pair, changes in told.items()}
    )


def test_the_same_states_at_about_the_same_times_are_the_same_story() -> None:
    assert differences() == []
    assert differences(av=[("suspect", 0.6), ("dead", 4.9)]) == []


def test_every_difference_is_a_sentence() -> None:
    assert "after 5.10 s" in differences(av=[("suspect", 1.0), ("dead", 5.1)])[0]
    assert "after 0.40 s" in differences(av=[("suspect", 0.4), ("dead", 3.0)])[0]
    assert "'suspect', 1.0" in differences(av=[("suspect", 1.0)])[0]
    assert differences(av=[])
    assert differences(ab=[("suspect", 1.0)]), "of a broker without a fault"
    wobble: Changes = [("suspect", 1.0), ("alive", 1.1)]
    assert differences(ab=wobble)
    assert not differences(by_chance=True, ab=wobble)
    assert differences(va=[("dead", 1.0)]) == [], "a killed broker is not asked"
