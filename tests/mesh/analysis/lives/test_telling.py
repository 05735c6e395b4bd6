"""The life of a broker from hand-made facts: each rule alone, and the result without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mesh.analysis.facts import Boot, Late, Linked, Said, Stretch
from mesh.analysis.lives import endings, evidence, pauses, telling
from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.telling import tell
from mesh.analysis.results.tables import Hole

SECOND = 1_000_000
RUN = "run"
END = 100 * SECOND
Fact = tuple[str, str | None]


def boot(
    name: str, first_s: float, last_s: float, *, first_seq: int = 1, torn: bool = False, **more: Any
) -> Boot:
    return Boot(
        run=RUN,
        node="a",
        boot=name,
        name="alpha",
        host="h",
        version="1",
        period_s=1.0,
        deadline_s=0.5,
        stats_s=5.0,
        first=us(first_s),
        last=us(last_s),
        told=more.get("told", us(last_s)),
        first_seq=first_seq,
        last_seq=99,
        rows=99,
        stopped=more.get("stopped"),
        reason=more.get("reason"),
        left=more.get("left"),
        torn=torn,
    )


def us(seconds: float) -> int:
    return round(seconds * SECOND)


def heard(dst: str, first_s: float, last_s: float, *, resumed: bool = False) -> Stretch:
    return Stretch(RUN, "a", dst, f"{dst}1", us(first_s), us(last_s), 0.0, resumed)


def down(dst: str, at_s: float, reason: str = "closed by the peer") -> Linked:
    return Linked(RUN, dst, f"{dst}1", us(at_s), "a", True, False, reason)


def up(dst: str, at_s: float) -> Linked:
    return Linked(RUN, dst, f"{dst}1", us(at_s), "a", True, True, "admitted")


def said(dst: str, at_s: float, of: str, to: str, reason: str) -> Said:
    return Said(RUN, dst, f"{dst}1", us(at_s), "a", "alpha", of, 1, "alive", to, reason, dst)


def late(boot: str, at_s: float, late_s: float) -> Late:
    return Late(RUN, "a", boot, us(at_s), late_s)


def of(**facts: Any) -> Evidence:
    since = [0, 0]
    return Evidence(node="a", begin=0, end=END, period_s=1.0, since=since, **facts)


def states(known: Evidence) -> list[Fact]:
    return [(stretch.state, stretch.cause) for stretch in tell(known)]


LEFT = of(
    boots=[boot("1", 0, 50, left=us(49.9), stopped=us(50), reason="leave")],
    heard=[heard("b", 0, 49.5)],
    linked=[down("b", 49.95)],
)
STOPPED_BY_ERROR = of(boots=[boot("1", 0, 50, stopped=us(50), reason="disk is full")])
LEFT_AS_OTHERS_HEARD = of(
    boots=[boot("1", 0, 30, torn=True), boot("2", 60, 100)],
    said=[said("b", 50, "1", "left", "left")],
    heard=[heard("b", 0, 49.5), heard("b", 60, 100)],
)
CRASHED = of(
    boots=[boot("1", 0, 49.6), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), heard("b", 60, 100)],
    linked=[down("b", 50), down("c", 50.001, "connection lost: connection reset by peer"), up("b", 60)],
)
CRASHED_AND_HEARD_EARLY = of(
    boots=CRASHED.boots,
    heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), heard("b", 59.9, 100), heard("c", 59.88, 100)],
    linked=CRASHED.linked,
)
KILLED_IN_A_LOG_OF_SUMMARIES = of(
    boots=[boot("1", 0, 45, told=us(32)), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("b", 60, 100)],
    linked=[down("b", 52.5, "no answer in 3 rounds")],
)
CRASHED_WITHOUT_A_LOG = of(
    heard=CRASHED.heard,
    linked=CRASHED.linked,
    said=[said("b", 0.1, "1", "alive", "restarted"), said("b", 60, "2", "alive", "restarted")],
)
POWER_LOST = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), heard("b", 60, 100)],
    linked=[down("b", 52.5, "no answer in 3 rounds"), down("c", 52.5, "dead"), up("b", 60)],
)
POWER_LOST_AND_BACK_SOON = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 51.52, 100)],
    heard=[heard("b", 0, 49.5), heard("c", 0, 100), heard("b", 51.7, 100)],
    linked=[down("b", 51.51, "connection lost: connection reset by peer")],
)
POWER_LOST_RESET_LATER = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("b", 60, 100)],
    linked=[down("b", 51.9, "connection lost: connection reset by peer")],
)
RESET_BEFORE_POWER_LOST = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("c", 0, 49.9), heard("b", 60, 100)],
    linked=[
        down("b", 49.6, "connection lost: connection reset by peer"),
        up("b", 49.65),
        down("b", 52.5, "dead"),
    ],
)
RESET_AND_POWER_LOST_AT_ONCE = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.85), heard("c", 0, 49.9), heard("b", 60, 100)],
    linked=[down("b", 49.86, "connection lost: connection reset by peer"), down("c", 52.5, "dead")],
)
JUDGED_THEN_POWER_LOST = of(
    boots=[boot("1", 0, 41, torn=True), boot("2", 60, 100)],
    heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), heard("b", 60, 100)],
    linked=[down("b", 49.6, "nothing came on its data connection in 3 rounds")],
)
KILLED_WHILE_CUT_OFF = of(
    boots=[boot("1", 0, 49.6), boot("2", 60, 100)],
    heard=[heard("b", 0, 40), heard("b", 60, 100)],
    linked=[down("b", 43, "no answer in 3 rounds")],
    awake=[("1", 0, us(49.6))],
)
PAUSED = of(
    boots=[boot("1", 0, 100)],
    heard=[heard("b", 0, 40), heard("b", 46, 100)],
    awake=[("1", 0, us(40)), ("1", us(46), END)],
    late=[late("1", 46.2, 5.9)],
)
PAUSED_BEFORE_ITS_LOG_WAS_LOST = of(
    boots=[boot("1", 0, 49, torn=True), boot("2", 80, 100)],
    heard=[
        heard("b", 0, 40),
        heard("c", 0, 40.2),
        heard("b", 46.1, 70),
        heard("c", 46.3, 70),
        heard("b", 80, 100),
    ],
    linked=[down("b", 72.5, "dead")],
    awake=[("1", 0, us(40)), ("1", us(46), us(49)), ("2", us(80), END)],
)
PAUSED_IN_A_HOLE = of(
    boots=[boot("1", 0, 100)],
    heard=[heard("b", 0, 40), heard("c", 0, 40.2), heard("b", 46.1, 100)],
    awake=[("1", 0, us(30)), ("1", us(80), END)],
    holes=[Hole(RUN, "a", "1", us(30), us(80), 9)],
)
PAUSED_BETWEEN_HOLES = of(
    boots=[boot("1", 0, 100)],
    heard=[heard("b", 0, 40), heard("b", 95, 100)],
    awake=[("1", 0, us(30)), ("1", us(80), us(80)), ("1", us(90), END)],
    late=[late("1", 80, 5.9)],
    holes=[Hole(RUN, "a", "1", us(30), us(80), 9), Hole(RUN, "a", "1", us(80), us(90), 9)],
)
CUT_OFF_BEFORE_ITS_LOG_WAS_LOST = of(
    boots=PAUSED_BEFORE_ITS_LOG_WAS_LOST.boots,
    heard=PAUSED_BEFORE_ITS_LOG_WAS_LOST.heard,
    linked=PAUSED_BEFORE_ITS_LOG_WAS_LOST.linked,
    awake=[("1", 0, us(40)), ("1", us(42.5), us(42.6)), ("1", us(46), us(49)), ("2", us(80), END)],
)
CUT_OFF = of(
    boots=[boot("1", 0, 100)],
    heard=[heard("b", 0, 40), heard("b", 46, 100)],
    awake=[("1", 0, us(40)), ("1", us(46), END)],
)
RUNS_ON = of(boots=[boot("1", 0, 99.2)], heard=[heard("b", 0, 99.9)])
LOG_ENDS_EARLY = of(boots=[boot("1", 0, 40)], heard=[heard("b", 0, 60), heard("b", 70, 100)])
NOBODY_KNOWS = of(boots=[boot("1", 0, 40)], heard=[heard("b", 0, 40)])
LOG_LOST_WITH_THE_DISK = of(
    boots=[boot("2", 60, 100)],
    said=[said("b", 0.1, "1", "alive", "restarted"), said("b", 60, "2", "alive", "restarted")],
    heard=[heard("b", 0.2, 49.5), heard("b", 60, 100)],
    linked=[down("b", 52.5, "no answer in 3 rounds")],
)

EXPECTED: dict[str, tuple[Evidence, list[Fact]]] = {
    "left": (LEFT, [("up", "leave"), ("away", None)]),
    "stopped by an error": (STOPPED_BY_ERROR, [("up", "crash"), ("down", None)]),
    "left, as others heard": (LEFT_AS_OTHERS_HEARD, [("up", "leave"), ("away", "start"), ("up", None)]),
    "crashed": (CRASHED, [("up", "crash"), ("down", "restart"), ("up", None)]),
    "crashed, and heard early": (
        CRASHED_AND_HEARD_EARLY,
        [("up", "crash"), ("down", "restart"), ("up", None)],
    ),
    "killed, with a log of summaries": (
        KILLED_IN_A_LOG_OF_SUMMARIES,
        [("up", "crash"), ("down", "restart"), ("up", None)],
    ),
    "crashed without a log": (
        CRASHED_WITHOUT_A_LOG,
        [("up", "crash"), ("down", "restart"), ("up", None)],
    ),
    "reset and power lost at once": (
        RESET_AND_POWER_LOST_AT_ONCE,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "judged, then power lost": (
        JUDGED_THEN_POWER_LOST,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "power lost": (POWER_LOST, [("up", "power_off"), ("down", "restart"), ("up", None)]),
    "power lost, and back soon": (
        POWER_LOST_AND_BACK_SOON,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "power lost, reset later": (
        POWER_LOST_RESET_LATER,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "reset before power lost": (
        RESET_BEFORE_POWER_LOST,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "killed while cut off": (KILLED_WHILE_CUT_OFF, [("up", "crash"), ("down", "restart"), ("up", None)]),
    "paused": (PAUSED, [("up", "pause"), ("paused", "resume"), ("up", None)]),
    "paused before its log was lost": (
        PAUSED_BEFORE_ITS_LOG_WAS_LOST,
        [
            ("up", "log lost"),
            ("unknown", "heard again"),
            ("up", "power_off"),
            ("down", "restart"),
            ("up", None),
        ],
    ),
    "paused in a hole of its log": (
        PAUSED_IN_A_HOLE,
        [("up", "log lost"), ("unknown", "heard again"), ("up", None)],
    ),
    "paused between two holes of its log": (
        PAUSED_BETWEEN_HOLES,
        [
            ("up", "log lost"),
            ("unknown", "pause"),
            ("paused", "log lost"),
            ("unknown", "heard again"),
            ("up", None),
        ],
    ),
    "cut off before its log was lost": (
        CUT_OFF_BEFORE_ITS_LOG_WAS_LOST,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
    "cut off": (CUT_OFF, [("up", None)]),
    "runs on": (RUNS_ON, [("up", None)]),
    "log ends early": (LOG_ENDS_EARLY, [("up", "log lost"), ("unknown", "heard again"), ("up", None)]),
    "nobody knows": (NOBODY_KNOWS, [("up", "log lost"), ("unknown", None)]),
    "log lost with the disk": (
        LOG_LOST_WITH_THE_DISK,
        [("up", "power_off"), ("down", "restart"), ("up", None)],
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_life_follows_from_the_facts(name: str) -> None:
    known, expected = EXPECTED[name]

    assert states(known) == expected


@pytest.mark.parametrize(
    ("lateness", "expected"),
    [
        ([late("1", 80.2, 5.9)], [("up", 40.2), ("unknown", 74.1), ("paused", 80), ("up", 100)]),
        ([late("1", 80.2, 30)], [("up", 40.2), ("unknown", 50), ("paused", 80), ("up", 100)]),
        ([late("1", 80.2, 38.5)], [("up", 41.5), ("paused", 80), ("up", 100)]),
        ([], [("up", 40.2), ("unknown", 76), ("up", 100)]),
    ],
)
def test_a_pause_takes_only_its_own_time_of_an_unknown_time(
    lateness: list[Late], expected: list[tuple[str, float]]
) -> None:
    """The whole unknown time was told as up."""
    known = replace(
        PAUSED_IN_A_HOLE,
        heard=[heard("b", 0, 40), heard("c", 0, 40.2), heard("b", 76, 100), heard("c", 76.2, 100)],
        late=lateness,
    )

    assert [(each.state, each.end / SECOND) for each in tell(known)] == expected


def test_a_pause_that_directly_follows_an_unknown_time_begins_where_that_ends() -> None:
    """Its cause is what matches a pause with what was done."""
    known = replace(
        PAUSED_IN_A_HOLE,
        heard=[heard("b", 0, 40), heard("c", 0, 40.2), heard("b", 76, 100)],
        late=[late("1", 80.2, 5.9)],
    )

    assert states(known) == [("up", "log lost"), ("unknown", "pause"), ("paused", "resume"), ("up", None)]


def test_an_unknown_time_goes_on_after_a_pause_in_it() -> None:
    assert [(each.state, each.cause, each.end / SECOND) for each in tell(PAUSED_BETWEEN_HOLES)] == [
        ("up", "log lost", 40),
        ("unknown", "pause", 74.1),
        ("paused", "log lost", 80),
        ("unknown", "heard again", 90),
        ("up", None, 100),
    ]


def test_a_broker_heard_half_a_period_before_its_next_boot_was_still_up() -> None:
    known = replace(POWER_LOST, heard=[heard("b", 0, 49.5), heard("b", 59.5, 100)])

    assert tell(known)[-3].end == us(59.5)


def test_a_broker_heard_just_before_the_logs_end_is_up() -> None:
    """No boot follows to which that heartbeat could belong."""
    known = of(boots=[boot("1", 0, 40)], heard=[heard("b", 0, 60), heard("b", 99.9, 100)])

    assert states(known) == EXPECTED["log ends early"][1]


def test_a_time_without_signs_before_a_last_one_is_unknown() -> None:
    """Its log was lost, and it was heard once more before its power was. The time between was up."""
    known = of(
        boots=[boot("1", 0, 40, torn=True), boot("2", 80, 100)],
        heard=[heard("b", 0, 40), heard("b", 60, 60), heard("b", 80, 100)],
    )

    assert states(known)[:3] == [("up", "log lost"), ("unknown", "heard again"), ("up", "power_off")]
    assert [each.end for each in tell(known)][:3] == [us(40), us(60), us(60)]


def test_the_longest_of_the_times_in_which_peers_heard_a_broker_counts() -> None:
    known = replace(POWER_LOST, heard=[heard("b", 0, 49.8), heard("c", 1, 49.5), heard("b", 60, 100)])

    assert tell(known)[0].end == us(49.8)


def test_a_broker_unknown_since_its_first_sign_was_up_at_that_moment() -> None:
    known = of(said=[said("b", 10, "1", "alive", "restarted")], heard=[heard("b", 20, 100)])

    assert states(known) == [("up", "log lost"), ("unknown", "heard again"), ("up", None)]


def test_a_broker_that_starts_with_the_last_row_has_no_time_yet() -> None:
    known = of(boots=[boot("1", 0, 50), boot("2", 100, 100)])

    assert states(known) == [("up", "crash"), ("down", "restart")]


@pytest.mark.parametrize(
    ("of_boot", "reason", "expected"),
    [
        ("1", "refuted", [("up", None)]),
        ("0", "refuted", [("up", "log lost"), ("unknown", "heard again"), ("up", None)]),
        ("1", "no answer", [("up", "log lost"), ("unknown", "heard again"), ("up", None)]),
    ],
)
def test_a_broker_that_refutes_a_report_ran(of_boot: str, reason: str, expected: list[Fact]) -> None:
    """Its log is lost, and nobody heard it for three seconds."""
    known = of(
        boots=[boot("1", 0, 30)],
        heard=[heard("b", 0, 40), heard("b", 43, 100)],
        said=[said("c", 41.5, of_boot, "alive" if of_boot == "1" else "left", reason)],
    )

    assert states(known) == expected


def test_an_unknown_time_begins_with_the_last_sign() -> None:
    """Its log was lost at 40 s, and it was heard once more."""
    known = of(
        boots=[boot("1", 0, 40)],
        heard=[heard("b", 0, 38), heard("b", 41, 41), heard("b", 45, 100)],
        awake=[("1", 0, us(40))],
    )

    assert [(each.state, each.end / SECOND) for each in tell(known)][:2] == [("up", 41), ("unknown", 45)]


def test_a_broker_that_was_silent_before_others_heard_its_goodbye_was_up_until_then() -> None:
    """It was heard once afterwards: its last frames were slower than the goodbye."""
    known = replace(LEFT_AS_OTHERS_HEARD, heard=[heard("b", 0, 40), heard("b", 50.3, 50.3)])

    assert states(known)[:2] == [("up", "leave"), ("away", "start")]


def test_a_broker_that_was_cut_off_just_before_it_stopped_was_up() -> None:
    """It wrote its counters once more as it stopped, and they tell of no pause."""
    known = of(
        boots=[boot("1", 0, 50, stopped=us(50), reason="leave")],
        heard=[heard("b", 0, 40), heard("b", 46, 49.5)],
        awake=[("1", 0, us(40)), ("1", us(46), us(50))],
    )

    assert states(known) == [("up", "leave"), ("away", None)]


def test_a_hole_in_the_next_boots_log_tells_nothing_of_this_one() -> None:
    known, expected = EXPECTED["paused before its log was lost"]

    assert states(replace(known, holes=[Hole(RUN, "a", "2", us(85), us(90), 9)])) == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_stretches_follow_one_another_to_the_end_of_the_logs(name: str) -> None:
    told = tell(EXPECTED[name][0])

    assert [stretch.no for stretch in told] == list(range(1, len(told) + 1))
    assert [stretch.start for stretch in told[1:]] == [stretch.end for stretch in told[:-1]]
    assert told[-1].end == END
    assert [stretch.censored for stretch in told] == [stretch.cause is None for stretch in told]


def _nothing(*args: Any) -> None:
    return None


RULES: dict[str, tuple[Any, str, Any, str]] = {
    "its own word": (endings, "by_its_word", _nothing, "left"),
    "closed links are a crash": (endings, "by_its_links", _nothing, "crashed without a log"),
    "a log of summaries is quiet at times": (
        endings,
        "is_whole",
        lambda stay, spans: stay.log is not None and spans[-1].last - stay.log.last <= endings.FLUSH,
        "killed, with a log of summaries",
    ),
    "what was judged is no closing": (
        endings,
        "is_of_kernel",
        lambda reason: True,
        "judged, then power lost",
    ),
    "a link that came back was not closed permanently": (
        endings,
        "closings",
        lambda known, stay: {row.node: row.at for row in known.linked if "reset" in row.reason},
        "reset before power lost",
    ),
    "one link that broke by itself is no crash": (
        endings,
        "kept",
        lambda *args: [],
        "reset and power lost at once",
    ),
    "a reset that comes late is of a kernel that is back": (
        endings,
        "AT_ONCE",
        9.0,
        "power lost, reset later",
    ),
    "a reset of the next boot's kernel": (endings, "STARTING", -1.0, "power lost, and back soon"),
    "signs up to the end of the logs": (endings, "by_the_end_of_the_logs", _nothing, "runs on"),
    "the next boot may seem to be heard early": (telling, "EARLY", 0.0, "crashed, and heard early"),
    "a torn log": (endings, "by_its_torn_log", _nothing, "power lost"),
    "a whole log and a next boot": (endings, "by_its_whole_log", _nothing, "killed while cut off"),
    "only power takes rows that were written": (endings, "is_whole", lambda *args: True, "power lost"),
    "silence and lateness": (telling, "pauses", lambda *args: [], "paused"),
    "silence without counters after it is unknown": (
        telling,
        "_logged",
        lambda known, stay: [telling.Span(stay.first, stay.until)],
        "paused before its log was lost",
    ),
    "a hole in a log is no log": (
        telling,
        "_logged",
        lambda known, stay: [telling.Span(stay.first, stay.log.last)],
        "paused in a hole of its log",
    ),
    "silence beyond the log is unknown": (telling, "_silences", lambda *args: [], "log ends early"),
    "boots of which others spoke": (
        telling,
        "stays",
        lambda known: evidence.stays(replace(known, said=())),
        "log lost with the disk",
    ),
    "a leave that others heard": (
        telling,
        "ending",
        lambda known, stay, spans: endings.ending(replace(known, said=()), stay, spans),
        "left, as others heard",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_life_is_wrong_without_any_of_the_rules(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, instead, case = RULES[rule]
    known, expected = EXPECTED[case]
    assert states(known) == expected

    monkeypatch.setattr(module, name, instead)

    assert states(known) != expected


def test_late_without_silence_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop may be late for long and still write. Then it was not stopped."""
    awake = replace(PAUSED, awake=[("1", 0, END)])

    assert states(awake) == [("up", None)]
    monkeypatch.setattr(pauses, "_holds", lambda *args: True)
    assert states(PAUSED) == EXPECTED["paused"][1]


def test_a_crash_ends_when_its_links_were_closed_and_says_how_sure_that_is() -> None:
    died = tell(CRASHED)[0]

    assert died.end == us(50)
    assert died.error_s == pytest.approx(0.2)


def test_a_power_loss_ends_a_life_at_its_last_heartbeat() -> None:
    died = tell(POWER_LOST)[0]

    assert (died.end, died.error_s) == (us(49.8), 1.0)


def test_a_broker_heard_a_slot_before_its_next_boot_is_down_until_then() -> None:
    """A first heartbeat is known to an eighth of a period. It was taken for one of the boot before, which was
    up all the time between, and cut off."""
    early = replace(POWER_LOST, heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), heard("b", 59.88, 100)])

    assert [(each.state, each.end) for each in tell(early)][:2] == [("up", us(49.8)), ("down", us(60))]


def test_what_a_resumed_peer_hears_just_before_the_next_boot_is_of_that() -> None:
    """The peer read old heartbeats at 58.5 s, and those of the next boot soon after. The dead broker seemed
    to live until then, and a power loss was a crash."""
    back = heard("c", 58.5, 100, resumed=True)
    known = replace(POWER_LOST, heard=[heard("b", 0, 49.5), heard("c", 0, 49.8), back, heard("b", 60, 100)])

    assert [(each.state, each.end) for each in tell(known)][:2] == [("up", us(49.8)), ("down", us(60))]


def test_a_power_loss_of_a_broker_that_was_heard_into_its_next_boot_has_an_error() -> None:
    died = tell(POWER_LOST_AND_BACK_SOON)[0]

    assert died.end <= us(51.52) <= died.end + us(died.error_s)


def test_a_pause_is_as_long_as_the_loop_was_late() -> None:
    up, paused, _ = tell(PAUSED)

    assert (paused.start, paused.end) == (us(40.1), us(46))
    assert up.error_s == pytest.approx(0.1), "its last row was at 40 s"


@pytest.mark.parametrize(
    ("spans", "met"),
    [
        ([heard("b", 3, 40), heard("b", 48, 100)], [3, None, 48]),
        ([heard("b", 48, 100)], [None, None, 48]),
        ([heard("b", 3, 100)], [3, None, 46]),
    ],
    ids=["before and after", "only after", "all the time, as far as summaries tell"],
)
def test_a_life_tells_when_others_first_heard_it_before_and_after_its_pause(
    spans: list[Stretch], met: list[int | None]
) -> None:
    told = tell(replace(PAUSED, heard=spans))

    assert [None if each.met is None else each.met / SECOND for each in told] == met


def test_a_pause_of_less_than_2_2_periods_is_none() -> None:
    short = replace(PAUSED, late=[late("1", 46.2, 2.0)])

    assert states(short) == [("up", None)]


def test_a_log_that_lacks_its_beginning_is_of_a_life_that_had_begun() -> None:
    told = tell(replace(PAUSED, boots=[boot("1", 0, 100, first_seq=7)]))

    assert [each.truncated for each in told] == [True, False, False]
    assert not tell(CRASHED)[0].truncated


def test_a_broker_whose_joining_others_observed_had_not_begun_before() -> None:
    """Without its log, only the observer that met it first can tell: one that was already there, or one that
    came."""
    watched = tell(of(said=[said("b", 10, "1", "alive", "joined")], heard=[heard("b", 10, 100)]))
    found = tell(
        replace(
            of(said=[said("b", 10, "1", "alive", "joined")], heard=[heard("b", 10, 100)]),
            since=[us(9.9)],
        )
    )

    assert not watched[0].truncated
    assert found[0].truncated


def test_one_log_alone_does_not_show_the_states_of_others_during_silence() -> None:
    """Its writer may have been cut off from them, or they from it."""
    alone = of(
        said=[said("b", 0.1, "1", "alive", "restarted")], heard=[heard("b", 0.2, 40), heard("b", 60, 100)]
    )

    assert states(alone) == [("up", "log lost"), ("unknown", "heard again"), ("up", None)]


def test_a_broker_that_writes_alone_is_up_until_its_log_ends() -> None:
    alone = of(boots=[boot("1", 0, 94)])

    assert states(alone) == [("up", None)]


def test_a_broker_that_is_cut_off_to_the_end_is_up_until_its_log_ends() -> None:
    """It writes counters every five seconds, and nothing else."""
    cut = of(boots=[boot("1", 0, 94)], heard=[heard("b", 0, 40)], linked=[down("b", 43, "dead")])

    assert states(cut) == [("up", None)]


def test_a_broker_with_a_torn_log_before_the_end_of_all_logs_lost_its_power() -> None:
    torn = of(
        boots=[boot("1", 0, 90, torn=True)], heard=[heard("b", 0, 95)], linked=[down("b", 97.6, "dead")]
    )

    assert states(torn) == [("up", "power_off"), ("down", None)]


def test_rows_in_any_order_tell_the_same() -> None:
    for known, expected in EXPECTED.values():
        turned = replace(
            known,
            **{
                name: list(reversed(getattr(known, name)))
                for name in ("boots", "said", "linked", "heard", "awake", "late", "holes")
            },
        )

        assert states(turned) == expected


def test_an_hour_added_to_every_clock_shifts_all_times_and_changes_no_state() -> None:
    hour = 3600 * SECOND

    def later(record: Any) -> Any:
        moments = ("at", "first", "last", "stopped", "left", "start", "end")
        names = [name for name in moments if hasattr(record, name)]
        moved = {name: getattr(record, name) for name in names}
        return msgspec.structs.replace(
            record, **{name: None if value is None else value + hour for name, value in moved.items()}
        )

    shift: Callable[[Evidence], Evidence] = lambda known: replace(  # noqa: E731
        known,
        begin=known.begin + hour,
        end=known.end + hour,
        boots=[later(each) for each in known.boots],
        said=[later(each) for each in known.said],
        linked=[later(each) for each in known.linked],
        heard=[later(each) for each in known.heard],
        awake=[(name, first + hour, last + hour) for name, first, last in known.awake],
        late=[later(each) for each in known.late],
        holes=[later(each) for each in known.holes],
        since=[at + hour for at in known.since],
    )
    for known, expected in EXPECTED.values():
        assert states(shift(known)) == expected


def test_a_boot_that_ended_with_its_first_row_failed_like_any_other() -> None:
    """Stretches without length were left out, and the failures of a crash loop with them."""
    boots = [boot("1", 10, 10), boot("2", 12, 12), boot("3", 14, 14), boot("4", 16, 100)]
    assert states(of(boots=boots)) == [("up", "crash"), ("down", "restart")] * 3 + [("up", None)]
