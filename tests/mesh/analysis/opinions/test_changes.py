"""How changes spread, and which of them were mistakes."""

from __future__ import annotations

from mesh.analysis.opinions.causes import Silence, Stretch
from mesh.analysis.opinions.changes import Saying, changes_of, quantile
from mesh.analysis.opinions.mistakes import Error, mistakes_of

S = 1_000_000
ALWAYS = {node: [(0, 100 * S)] for node in ("m", "a", "b", "c", "d")}
CRASHED = [Stretch("b1", "up", 0, 20 * S, "crash"), Stretch(None, "down", 20 * S, 100 * S, None)]
RAN = [Stretch("b1", "up", 0, 100 * S, None)]


def says(node: str, at_s: float, state: str, incarnation: int = 1, via: str = "") -> Saying:
    return Saying(node, round(at_s * S), "b1", incarnation, state, via or node)


def test_a_death_is_timed_from_the_end_of_the_process() -> None:
    said = [says("b", 23, "dead", via="a"), says("a", 22, "dead"), says("c", 26, "dead", via="a")]
    (change,) = changes_of("m", said, CRASHED, {}, ALWAYS, period_us=S)
    assert (change.state, change.at, change.cause) == ("dead", 20 * S, "crash")
    assert (change.reached, change.of) == (3, 4)
    assert (change.first_s, change.p50_s, change.p90_s, change.last_s) == (2, 3, 6, 6)


def test_observers_that_did_not_run_do_not_count() -> None:
    others = {**ALWAYS, "c": [(0, 19 * S)], "d": [(0, 10 * S), (24 * S, 100 * S)]}
    said = [says("a", 22, "dead"), says("b", 25, "dead")]
    (change,) = changes_of("m", said, CRASHED, {}, others, period_us=S)
    assert (change.reached, change.of) == (2, 2)


def test_a_mistaken_change_is_timed_from_its_first_report() -> None:
    said = [says("a", 22, "dead"), says("b", 25, "dead"), says("a", 30, "alive", incarnation=2)]
    dead, alive = changes_of("m", said, RAN, {}, ALWAYS, period_us=S)
    assert (dead.at, dead.cause, dead.first_s, dead.last_s) == (None, "mistaken", 0, 3)
    assert (alive.incarnation, alive.at, alive.first_s) == (2, None, 0), "a refutation is no start"


def test_the_first_incarnation_is_timed_from_the_start_of_its_process() -> None:
    life = [Stretch("b1", "up", 4 * S, 100 * S, None)]
    (alive,) = changes_of("m", [says("a", 5, "alive")], life, {}, ALWAYS, period_us=S)
    assert (alive.at, alive.first_s) == (4 * S, 1)


def test_repeated_reports_count_once_and_reports_about_oneself_do_not_count() -> None:
    said = [says("a", 22, "dead"), says("a", 29, "dead"), says("m", 21, "dead")]
    (change,) = changes_of("m", said, CRASHED, {}, ALWAYS, period_us=S)
    assert (change.reached, change.last_s) == (1, 2)


def test_the_nearest_rank() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0.5, 0.9, 0.25, 1)] == [2, 4, 1, 4]
    assert quantile([], 0.5) is None


def test_a_mistake_lasts_until_the_observer_takes_it_back() -> None:
    said = [says("a", 20, "suspect"), says("a", 23, "dead"), says("a", 31, "alive", incarnation=2)]
    silences = {"a": [Silence(18 * S, 30 * S)]}
    assert mistakes_of("m", said, RAN, silences, {}, period_us=S) == [
        Error("a", "m", "suspect", 20 * S, 23 * S, "cut off"),
        Error("a", "m", "dead", 23 * S, 31 * S, "cut off"),
    ]


def test_a_true_death_is_no_mistake() -> None:
    assert mistakes_of("m", [says("a", 22, "dead")], CRASHED, {}, {}, period_us=S) == []


def test_a_mistake_is_over_when_it_comes_true() -> None:
    life = [Stretch("b1", "up", 0, 60 * S, "crash"), Stretch(None, "down", 60 * S, 100 * S, None)]
    (error,) = mistakes_of("m", [says("a", 22, "dead")], life, {}, {}, period_us=S)
    assert (error.start, error.end) == (22 * S, 60 * S)


def test_a_mistake_ends_with_the_life_of_its_observer() -> None:
    (error,) = mistakes_of("m", [says("a", 22, "dead")], RAN, {}, {"a": [10 * S, 40 * S]}, period_us=S)
    assert error.end == 40 * S


def test_a_mistake_that_is_never_taken_back_has_no_end() -> None:
    (error,) = mistakes_of("m", [says("a", 22, "dead")], RAN, {}, {}, period_us=S)
    assert error.end is None
