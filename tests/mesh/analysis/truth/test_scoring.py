"""The table ``matches`` of a run, from its truth and its tables."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.analysis.truth.effects import Effect
from mesh.analysis.truth.lives import Event, Found, Pairing, done_events, found_events, match_events
from mesh.analysis.truth.scoring import Run, Scored, _noted, score, truth_row

S = 1_000_000
NAMES = {"1": "a", "2": "b", "3": "c", "4": "d"}


def row(at_s: float, op: str, a: str, b: str = "", of: str | None = None, **more: Any) -> Any:
    return truth_row(round(at_s * S), op, of, ",".join(a), ",".join(b), None, more)


Lived = tuple[str, str, int, int, str | None, str | None, int | None]
"""Broker, state, start, end, cause, boot, met."""
STARTED = row(0, "start", "abcd")
CUT = (row(20, "cut", "ab", "cd", "partition"), row(30, "end", "ab", "cd", "partition"))


def lived(**also: list[tuple[str, float, float, str | None]]) -> list[Lived]:
    usual: list[tuple[str, float, float, str | None]] = [("up", 0, 100, None)]
    return [
        (
            node,
            state,
            round(start * S),
            round(end * S),
            cause,
            f"boot {number}" if state == "up" else None,
            None,
        )
        for node, name in NAMES.items()
        for number, (state, start, end, cause) in enumerate(also.get(name, usual))
    ]


def log(
    node: str, first_s: float, last_s: float, *, told_s: float | None = None
) -> tuple[str, int, int, int]:
    told = last_s if told_s is None else told_s
    return (node, round(first_s * S), round(told * S), round(last_s * S))


def outages(start_s: float, end_s: float | None) -> list[tuple[str, str, int | None, int | None]]:
    links = [(one, other) for one in "12" for other in "34"]
    end = None if end_s is None else round(end_s * S)
    return [(*pair, round(start_s * S), end) for link in links for pair in (link, link[::-1])]


def told(
    truth: list[Any], found: list[tuple[int, int, int | None, str]] | None = None, **given: Any
) -> list[Scored]:
    sides = [
        (no, node, side) for no, *_ in found or () for side, nodes in ((0, "12"), (1, "34")) for node in nodes
    ]
    usual = Run(
        names=NAMES,
        lives=lived(),
        silent=outages(19.5, 32),
        parts=found or [],
        sides=sides,
        joined=[(node, S) for node in NAMES],
        logged=[log(node, 0, 100) for node in NAMES],
        holes=[],
        period=S,
        counters=5 * S,
    )
    return score([STARTED, *truth], usual._replace(**given))


def test_a_cut_that_was_found() -> None:
    assert told([*CUT], [(1, round(19.5 * S), 32 * S, "complete")]) == [
        ("part", "complete for 10.0 s: a, b | c, d", "part 1: complete", "tp", 20 * S, -0.5, 2.0)
    ]


def test_a_cut_that_was_missed_and_a_part_that_was_not_made() -> None:
    ((of, truth, found, verdict, *_),) = told([*CUT])
    assert (of, truth, found, verdict) == ("part", "complete for 10.0 s: a, b | c, d", None, "fn")
    ((of, truth, found, verdict, *_),) = told([], [(7, 40 * S, 50 * S, "complete")])
    assert (of, truth, found, verdict) == ("part", None, "part 7: complete", "fp")


def test_a_silence_without_an_end_lasts_as_long_as_its_listener() -> None:
    """It was taken to last until the end of the logs: a broker that left in a cut and returned was cut off to
    the end."""
    life: list[tuple[str, float, float, str | None]] = [
        ("up", 0, 25, "leave"),
        ("away", 25, 60, "start"),
        ("up", 60, 100, None),
    ]
    left = [row(25, "stop", "d"), row(60, "restart", "d", of="start")]
    silent: list[tuple[str, str, int | None, int | None]] = [
        each if "4" not in each[:2] else (each[0], each[1], each[2], None if each[1] == "4" else 61 * S)
        for each in outages(19.5, 32)
    ]
    rows = told(
        [*CUT, *left],
        [(1, round(19.5 * S), 32 * S, "complete")],
        lives=lived(d=life),
        silent=silent,
        joined=[*((node, S) for node in NAMES), ("4", round(60.5 * S))],
    )
    assert [(each[0], each[3]) for each in rows] == [("part", "tp"), ("leave", "tp")]


def test_a_silence_in_a_log_that_ends_does_not_last_beyond_it() -> None:
    """A broker did not hear another that was down, and then its log was lost. The silence was taken to last
    as long as the broker, and so was a later cut."""
    down = [row(5, "crash", "a"), row(9, "restart", "a", of="start")]
    life: list[tuple[str, float, float, str | None]] = [("up", 0, 5, "crash"), ("down", 5, 9, "restart")]
    rows = told(
        [*down, *CUT],
        [(1, round(19.5 * S), 32 * S, "complete")],
        lives=lived(a=[*life, ("up", 9, 100, None)]),
        silent=[*(each for each in outages(19.5, 32) if each[1] != "3"), ("1", "3", round(4.5 * S), None)],
        joined=[*((node, S) for node in NAMES), ("1", 10 * S)],
        logged=[
            *(log(node, 0, 100) for node in "24"),
            log("1", 0, 5),
            log("1", 9, 100),
            log("3", 0, 8),
        ],
    )
    assert [(each[0], each[3]) for each in rows] == [("crash", "tp"), ("part", "tp")]
    assert rows[1][1] == "complete for 10.0 s: a, b | c, d"


@pytest.mark.parametrize(
    ("end", "holes", "verdict"),
    [
        (100, [], "fn"),
        (24, [], "not observable"),
        (100, [("1", 5, 16)], "not observable"),
        (100, [("1", 15, 15.5)], "fn"),
    ],
)
def test_a_pause_that_was_missed_was_not_observable_if_its_log_is_lost(
    end: float, holes: list[tuple[str, float, float]], verdict: str
) -> None:
    ((of, _, _, scored, *_),) = told(
        [row(10, "pause", "a"), row(20, "end", "a", of="pause")],
        logged=[log("1", 0, end), *(log(node, 0, 100) for node in "234")],
        holes=[(node, round(start * S), round(until * S)) for node, start, until in holes],
        silent=[],
    )
    assert (of, scored) == ("pause", verdict)


@pytest.mark.parametrize(("last", "verdict"), [(47, "fn"), (45.999, "fn"), (45.9, "not observable")])
def test_a_pause_that_was_missed_is_judged_by_the_counters_of_its_log(last: float, verdict: str) -> None:
    """A killed broker's last summary of heartbeats is lost, and its counters are not. Misses were excused."""
    ((of, _, _, scored, *_),) = told(
        [row(36, "pause", "a"), row(41, "end", "a", of="pause")],
        logged=[log("1", 0, last, told_s=32), *(log(node, 0, 100) for node in "234")],
        silent=[],
    )
    assert (of, scored) == ("pause", verdict)


@pytest.mark.parametrize(("told_s", "verdict"), [(100, "fn"), (20, "not observable")])
def test_a_part_that_was_missed_is_judged_by_what_logs_tell_of_heartbeats(
    told_s: float, verdict: str
) -> None:
    """Their counters tell nothing about it."""
    rows = told([*CUT], logged=[log(node, 0, 100, told_s=told_s) for node in NAMES])
    assert [(each[0], each[3]) for each in rows] == [("part", verdict)]


def test_a_stop_just_after_the_last_row_is_found() -> None:
    """Mesh time was 2 ms behind the simulator's, and the last broker's leave counted as false."""
    life: list[tuple[str, float, float, str | None]] = [("up", 0, 100, "leave")]
    rows = told([row(100.002, "stop", "d")], lives=lived(d=life), silent=[])
    assert [(each[0], each[3], each[5]) for each in rows] == [("leave", "tp", 0.0)]


def test_what_was_done_after_the_last_row_is_not_scored() -> None:
    assert told([row(110, "crash", "d")], silent=[]) == []


def test_the_words_of_a_one_way_part_say_who_was_not_heard_by_whom() -> None:
    cut = (row(20, "cut_one_way", "a", "bcd"), row(30, "end", "a", "bcd", "cut_one_way"))
    assert [each[1] for each in told([*cut], silent=[])] == ["one-way for 10.0 s: a > b, c, d"]


@pytest.mark.parametrize(
    ("between", "life", "logs", "silence"),
    [
        ((None, 33), [("up", 0, 15), ("up", 25, 100)], [(0, 15), (25, 100)], (25, 33)),
        ((30, None), [("up", 0, 100)], [(0, 100)], (30, 100)),
        ((30, None), [("up", 0, 50), ("paused", 50, 60), ("up", 60, 100)], [(0, 100)], (30, 100)),
        ((30, None), [("up", 0, 100)], [(0, 40)], (30, 42)),
        ((30, None), [("up", 0, 41)], [(0, 40)], (30, 41)),
        ((5, None), [("up", 0, 15), ("up", 25, 100)], [(0, 10), (25, 100)], (5, 12)),
    ],
    ids=[
        "from the start of its process",
        "to the end of its process",
        "a pause is within a process",
        "to what a kill loses after the log's end",
        "not beyond its process",
        "not to the end of the next log",
    ],
)
def test_a_silence_without_a_last_or_a_next_heartbeat_is_as_long_as_its_listener_tells(
    between: tuple[int | None, int | None],
    life: list[tuple[str, float, float]],
    logs: list[tuple[float, float]],
    silence: tuple[int, int],
) -> None:
    last, following = (None if at is None else at * S for at in between)
    run = Run(
        names=NAMES,
        lives=lived(d=[(*stretch, None) for stretch in life]),
        silent=[("1", "4", last, following)],
        parts=[],
        sides=[],
        joined=[],
        logged=[log("4", *times) for times in logs],
        holes=[],
        period=S,
        counters=5 * S,
    )
    assert _noted(run, {}, 100 * S).silent == {("a", "d"): [(silence[0] * S, silence[1] * S)]}


DOWN = [row(5, "crash", "d"), row(8, "restart", "d", of="start")]
D_CUT_OFF = [row(10, "cut", "abc", "d", "partition"), row(20, "end", "abc", "d", "partition")]


@pytest.mark.parametrize(
    ("second_heard", "met", "truth"),
    [
        (9, 9, ["complete for 10.0 s: a, b, c | d"]),
        (25, 25, []),
        (None, 9, []),
    ],
    ids=[
        "it joined before the cut",
        "it joined after the cut",
        "it never heard others, though they heard it",
    ],
)
def test_each_process_of_a_broker_joins(second_heard: int | None, met: int, truth: list[str]) -> None:
    life: list[tuple[str, float, float, str | None]] = [("up", 0, 5, "crash"), ("down", 5, 8, "restart")]
    known = lived(d=[*life, ("up", 8, 100, None)])
    joined = [(node, S) for node in NAMES] + ([] if second_heard is None else [("4", second_heard * S)])
    rows = told([*DOWN, *D_CUT_OFF], lives=[*known[:-1], (*known[-1][:6], met * S)], joined=joined, silent=[])
    assert [each[1] for each in rows if each[0] == "part"] == truth


def test_a_process_that_resumes_has_joined() -> None:
    pause = [row(2, "pause", "d"), row(5, "end", "d", of="pause")]
    rows = told([*pause, *D_CUT_OFF], silent=[])
    assert [each[1] for each in rows if each[0] == "part"] == ["complete for 10.0 s: a, b, c | d"]


def test_two_ids_of_one_name_are_one_broker() -> None:
    """It lost its state, and returned with another id."""
    names = {**NAMES, "5": "d"}
    rows = told([*CUT], [(1, round(19.5 * S), 32 * S, "complete")], names=names)
    assert [each[3] for each in rows] == ["tp"]


# --- lives


def effect(what: Any, at_s: float, name: str = "a") -> Effect:
    return Effect(name, what, round(at_s * S))


def event(of: Any, at_s: float, end_s: float | None = None, name: str = "a") -> Event:
    return Event(of, name, round(at_s * S), None if end_s is None else round(end_s * S))


def matched(done: list[Event], found: list[Event]) -> list[Pairing]:
    return match_events(done, found, S, {name: [(0, 100 * S)] for name in "ab"}, 5 * S)


def test_pauses_have_ends() -> None:
    done = [
        effect("start", 0),
        effect("pause", 10),
        effect("resume", 14),
        effect("pause", 20),
        effect("crash", 23),
    ]
    assert done_events(done) == [event("pause", 10, 14), event("pause", 20, 23), event("crash", 23)]


def test_a_death_that_was_found_with_its_lag() -> None:
    (pairing,) = matched([event("crash", 10)], [event("crash", 10.4)])
    assert (pairing.verdict, pairing.start_lag) == ("tp", round(0.4 * S))


@pytest.mark.parametrize("found", [event("power_off", 10), event("crash", 10, name="b"), event("crash", 16)])
def test_an_event_found_with_another_cause_is_a_miss_and_a_false_finding(found: Event) -> None:
    assert [each.verdict for each in matched([event("crash", 10)], [found])] == ["fn", "fp"]


def test_short_pauses_are_below_resolution() -> None:
    assert [each.verdict for each in matched([event("pause", 10, 12)], [])] == ["below resolution"]
    assert [each.verdict for each in matched([event("pause", 10, 14)], [])] == ["fn"]
    assert [each.verdict for each in matched([], [event("pause", 10, 12)])] == ["below resolution"]


def test_each_death_is_matched_with_the_nearest() -> None:
    done = [event("crash", 10), event("crash", 13)]
    found = [event("crash", 12.9), event("crash", 9.8)]
    for order in (found, found[::-1]):
        assert [each.start_lag for each in matched(done, order)] == [-S // 5, -S // 10]


def test_events_in_lives_have_the_causes_of_ends_and_the_ends_of_pauses() -> None:
    lives = [
        Found("a", "up", 0, 10 * S, "pause"),
        Found("a", "paused", 10 * S, 14 * S, "resume"),
        Found("a", "up", 14 * S, 20 * S, "crash"),
        Found("a", "down", 20 * S, 30 * S, "restart"),
    ]
    assert list(found_events(lives)) == [event("pause", 10, 14), event("crash", 20)]


def test_a_pause_to_the_end_of_the_logs_that_was_missed_was_not_observable() -> None:
    """Only the counters after it would tell."""
    assert [each.verdict for each in matched([event("pause", 90)], [])] == ["not observable"]
