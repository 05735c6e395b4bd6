"""How one boot ended: each condition of the rules, by an example in which it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mesh.analysis.facts import Boot, Linked
from mesh.analysis.lives.endings import is_of_kernel
from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.telling import tell
from tests.mesh.analysis.lives.test_telling import (
    CRASHED,
    KILLED_WHILE_CUT_OFF,
    LEFT,
    POWER_LOST,
    Fact,
    boot,
    down,
    heard,
    of,
    said,
    states,
    up,
    us,
)

CRASH: list[Fact] = [("up", "crash"), ("down", "restart"), ("up", None)]
POWER_OFF: list[Fact] = [("up", "power_off"), ("down", "restart"), ("up", None)]
LOST: list[Fact] = [("up", "log lost"), ("unknown", None)]
RUNS: list[Fact] = [("up", None)]

NEXT = boot("2", 60, 100)
TORN = boot("1", 0, 41, torn=True)
RESET = "connection lost: connection reset by peer"
JUDGED = "no answer in 3 rounds"


def ended(known: Evidence) -> float:
    """When the first boot ended, in seconds."""
    return next(told.end for told in tell(known) if told.state == "up") / us(1)


@pytest.mark.parametrize(
    ("reason", "of_kernel"),
    [
        ("closed by the peer", True),
        ("connection lost: Connection reset by peer", True),
        ("[Errno 32] Broken pipe", True),
        (JUDGED, False),
        ("dead", False),
    ],
)
def test_words_tell_a_kernel_from_a_judgement(reason: str, of_kernel: bool) -> None:
    assert is_of_kernel(reason) is of_kernel


# --- it said so


def test_a_leave_begins_with_the_row_that_says_so() -> None:
    assert ended(LEFT) == 49.9
    assert states(of(boots=[boot("1", 0, 50, stopped=us(50), reason="leave")])) == [
        ("up", "leave"),
        ("away", None),
    ]


def test_the_first_goodbye_that_others_heard_counts() -> None:
    words = [said(dst, at, "1", "left", "left") for dst, at in (("b", 50.4), ("c", 50))]
    assert ended(of(boots=[TORN, NEXT], heard=[heard("b", 0, 49.5)], said=words)) == 50


@pytest.mark.parametrize("word", [{"left": us(60.02)}, {"stopped": us(60.02), "reason": "leave"}, {}])
def test_a_boot_ends_before_the_next_even_if_clocks_differ_a_little(word: dict[str, Any]) -> None:
    assert ended(of(boots=[boot("1", 0, 60.02, **word), NEXT])) == 60


# --- its links were closed


def test_a_process_restarted_a_second_after_its_kill_ended_when_its_links_were_closed() -> None:
    assert ended(replace(CRASHED, boots=[boot("1", 0, 49.6), boot("2", 51, 100)])) == 50


def test_a_paused_process_with_a_whole_log_is_killed_when_its_links_are_closed() -> None:
    """Its last sign was five seconds before."""
    known = of(boots=[boot("1", 0, 40), NEXT], heard=[heard("b", 0, 39.5)], linked=[down("b", 45)])
    assert (states(known), ended(known)) == (CRASH, 45)


def test_one_closed_link_is_enough_if_the_log_is_whole() -> None:
    """Its other peer was cut off from it."""
    known = of(
        boots=[boot("1", 0, 49.6), NEXT],
        heard=[heard("b", 0, 49.5), heard("c", 0, 49.5)],
        linked=[down("b", 50), down("c", 52.5, JUDGED)],
    )
    assert (states(known), ended(known)) == (CRASH, 50)


def test_more_closed_links_than_kept_ones_are_a_crash_even_if_the_log_is_torn() -> None:
    known = of(
        boots=[TORN, NEXT],
        heard=[heard(dst, 0, 49.5) for dst in "bcd"],
        linked=[down("b", 49.2), down("c", 50.6), down("d", 52.5, JUDGED)],
    )
    assert states(known) == CRASH


@pytest.mark.parametrize(
    ("last_heard", "rows"),
    [
        (30, [down("c", 52.5, JUDGED)]),
        (49.5, [msgspec.structs.replace(down("c", 52.5, JUDGED), boot="c2")]),
        (49.5, [down("c", 20, JUDGED), up("c", 25)]),
    ],
    ids=["did not hear it any more", "was restarted", "kept it before"],
)
def test_a_link_counts_as_kept_only_by_a_peer_that_had_just_heard_it(
    last_heard: float, rows: list[Linked]
) -> None:
    spans = [heard("b", 0, 49.5), heard("c", 0, last_heard)]
    assert states(of(boots=[TORN, NEXT], heard=spans, linked=[down("b", 49.9), *rows])) == CRASH


@pytest.mark.parametrize(("at", "reason"), [(49.9, JUDGED), (52.5, RESET)], ids=["judged", "later"])
def test_a_link_that_was_judged_or_that_went_down_later_was_kept(at: float, reason: str) -> None:
    """The other link broke by itself, just before the power was lost."""
    spans = [heard("b", 0, 49.5), heard("c", 0, 49.5)]
    rows = [down("b", 49.6, RESET), down("c", at, reason)]
    assert states(of(boots=[TORN, NEXT], heard=spans, linked=rows)) == POWER_OFF


def test_a_link_that_came_back_in_the_same_microsecond_was_not_closed() -> None:
    spans = [heard("b", 0, 49.9), heard("c", 0, 49.9)]
    rows = [up("b", 49.6), down("b", 49.6, RESET)]
    assert states(of(boots=[TORN, NEXT], heard=spans, linked=rows)) == POWER_OFF


def test_a_reset_that_comes_late_is_no_crash_at_the_end_of_the_logs_either() -> None:
    torn = boot("1", 0, 90, torn=True)
    known = of(boots=[torn], heard=[heard("b", 0, 98)], linked=[down("b", 99.9, RESET)])
    assert states(known) == RUNS


# --- the end of the logs


def test_a_process_that_was_restarted_just_before_the_end_of_the_logs_ended() -> None:
    assert states(of(boots=[boot("1", 0, 97), boot("2", 99, 100)])) == CRASH


# --- its log lost its end


@pytest.mark.parametrize(
    "log",
    [boot("1", 0, 49.6, torn=True), boot("1", 0, 41)],
    ids=["the last line is torn", "rows are missing"],
)
def test_a_log_that_lost_anything_is_of_a_power_loss(log: Boot) -> None:
    assert states(replace(POWER_LOST, boots=[log, NEXT])) == POWER_OFF


def test_a_log_that_ends_early_tells_no_power_loss_unless_another_boot_followed() -> None:
    assert states(of(boots=[boot("1", 0, 40)], heard=[heard("b", 0, 60)])) == LOST


def test_a_missing_log_tells_a_power_loss_only_before_a_boot_that_has_one() -> None:
    """Where no boot has a log, logs may never have been kept. The last boot may still write its own."""
    words = [said("b", 0.1, "1", "alive", "restarted"), said("b", 60, "2", "alive", "restarted")]
    spans = [heard("b", 0.2, 49.5), heard("b", 60, 80)]
    assert states(of(said=words, heard=spans)) == [("up", "log lost"), ("unknown", "restart"), *LOST]
    last = of(boots=[boot("1", 0, 49.6)], said=words[1:], heard=spans, linked=[down("b", 50)])
    assert states(last) == [("up", "crash"), ("down", "restart"), *LOST]


# --- its log is whole


@pytest.mark.parametrize(("restarted", "error_s"), [(60, 7.0), (52, 2.4)])
def test_a_kill_that_nobody_observed_was_between_its_last_row_and_the_next_that_was_due(
    restarted: float, error_s: float
) -> None:
    """Counters are due after five seconds, and a kill loses two seconds of rows."""
    known = replace(
        KILLED_WHILE_CUT_OFF,
        boots=[boot("1", 0, 49.6), boot("2", restarted, 100)],
        heard=[heard("b", 0, 40), heard("b", restarted, 100)],
    )
    assert (states(known), tell(known)[0].error_s) == (CRASH, error_s)


def test_a_crash_in_the_last_moment_of_the_logs_is_one() -> None:
    """No boot follows whose kernel could have closed the links."""
    known = of(boots=[boot("1", 0, 99.9)], heard=[heard("b", 0, 99.9)], linked=[down("b", 99.98)])

    assert states(known) == [("up", "crash"), ("down", None)]
