"""The effects of a simulation's faults."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.analysis.truth import effects as module
from mesh.analysis.truth.effects import Effects, Row, effects
from mesh.analysis.truth.scoring import truth_row

NAMES = ("a", "b", "c")
S = 1_000_000


def row(
    at_s: float,
    op: str,
    a: str = "",
    b: str = "",
    of: str | None = None,
    value: float | None = None,
    **more: Any,
) -> Row:
    return Row(round(at_s * S), op, of or op, tuple(a), tuple(b), value, None, more)


def follow(*rows: Row) -> Effects:
    return effects([row(0, "start", "abc"), *rows], NAMES, 100 * S)


def lives(found: Effects, name: str) -> list[tuple[str, float, float]]:
    return [(life.state, life.start / S, life.end / S) for life in found.lives if life.name == name]


def seconds(times: list[tuple[int, int]]) -> list[tuple[float, float]]:
    return [(begin / S, end / S) for begin, end in times]


def test_a_killed_broker_is_down_until_it_is_started_again() -> None:
    found = follow(row(10, "crash", "a"), row(14, "restart", "a", of="start"), row(20, "power_off", "a"))
    assert lives(found, "a") == [("up", 0, 10), ("down", 10, 14), ("up", 14, 20), ("down", 20, 100)]
    assert [each.what for each in found.done if each.name == "a"] == ["start", "crash", "start", "power_off"]


def test_two_pauses_at_once_last_until_the_later_ends() -> None:
    found = follow(
        row(10, "pause", "a"),
        row(12, "pause", "ab"),
        row(15, "end", "a", of="pause"),
        row(20, "end", "ab", of="pause"),
    )
    assert lives(found, "a") == [("up", 0, 10), ("paused", 10, 20), ("up", 20, 100)]
    assert lives(found, "b") == [("up", 0, 12), ("paused", 12, 20), ("up", 20, 100)]


def test_a_resume_ends_all_pauses() -> None:
    found = follow(
        row(10, "pause", "a"), row(12, "pause", "a"), row(15, "resume", "a"), row(20, "end", "a", of="pause")
    )
    assert lives(found, "a") == [("up", 0, 10), ("paused", 10, 15), ("up", 15, 100)]


def test_a_broker_killed_while_paused_is_down() -> None:
    found = follow(
        row(10, "pause", "a"),
        row(12, "crash", "a"),
        row(14, "restart", "a", of="start"),
        row(20, "end", "a", of="pause"),
    )
    assert lives(found, "a") == [("up", 0, 10), ("paused", 10, 12), ("down", 12, 14), ("up", 14, 100)]


def test_a_broker_killed_while_paused_may_be_paused_again() -> None:
    found = follow(
        row(10, "pause", "a"),
        row(12, "crash", "a"),
        row(14, "restart", "a", of="start"),
        row(20, "pause", "a"),
    )
    assert lives(found, "a")[-1] == ("paused", 20, 100)


def test_a_resume_of_a_running_broker_does_not_prevent_its_next_pause() -> None:
    found = follow(row(5, "resume", "a"), row(10, "pause", "a"), row(20, "end", "a", of="pause"))
    assert lives(found, "a") == [("up", 0, 10), ("paused", 10, 20), ("up", 20, 100)]


def test_a_start_of_a_running_broker_has_no_effect() -> None:
    found = follow(row(10, "restart", "a", of="start"))
    assert lives(found, "a") == [("up", 0, 100)]
    assert [each.what for each in found.done if each.name == "a"] == ["start"]


def test_a_broker_killed_with_the_last_row_is_never_down() -> None:
    assert lives(follow(row(100, "crash", "a")), "a") == [("up", 0, 100)]


def test_rows_may_come_in_any_order() -> None:
    assert lives(follow(row(14, "restart", "a", of="start"), row(10, "crash", "a")), "a") == [
        ("up", 0, 10),
        ("down", 10, 14),
        ("up", 14, 100),
    ]


def test_a_stall_is_a_pause_of_its_length() -> None:
    assert lives(follow(row(10, "stall", "a", value=4.0)), "a") == [
        ("up", 0, 10),
        ("paused", 10, 14),
        ("up", 14, 100),
    ]
    killed = follow(row(10, "stall", "a", value=4.0), row(20, "crash", "a"))
    assert lives(killed, "a") == [
        ("up", 0, 10),
        ("paused", 10, 14),
        ("up", 14, 20),
        ("down", 20, 100),
    ]
    assert lives(follow(row(10, "stall", "a", value=0.0)), "a") == [("up", 0, 100)]


def test_a_broker_killed_in_a_stall_stays_down() -> None:
    found = follow(row(10, "stall", "a", value=4.0), row(12, "crash", "a"))
    assert lives(found, "a") == [("up", 0, 10), ("paused", 10, 12), ("down", 12, 100)]


def test_a_leave_is_no_crash_and_faults_do_not_affect_a_broker_that_is_down() -> None:
    found = follow(
        row(10, "stop", "a"), row(11, "ended", "a", of="stop"), row(12, "crash", "a"), row(13, "pause", "a")
    )
    assert lives(found, "a") == [("up", 0, 10), ("away", 10, 100)]


def test_an_unannounced_end_is_taken_from_its_row() -> None:
    found = follow(
        row(10, "ended", "a", of="stop"),
        row(10, "restart", "a", of="start"),
        row(30, "ended", "b", of="crash"),
    )
    assert lives(found, "a") == [("up", 0, 10), ("up", 10, 100)]
    assert lives(found, "b") == [("up", 0, 30), ("down", 30, 100)]
    assert [each.what for each in found.done if each.name == "a"] == ["start", "leave", "start"]


def test_a_link_works_once_the_last_of_its_cuts_has_ended() -> None:
    found = follow(
        row(10, "cut", "a", "bc", of="partition"),
        row(15, "cut", "ab", "c", of="partition"),
        row(20, "end", "a", "bc", of="partition"),
        row(30, "end", "ab", "c", of="partition"),
    )
    assert seconds(found.cut["a", "b"]) == [(10, 20)]
    assert seconds(found.cut["a", "c"]) == seconds(found.cut["c", "a"]) == [(10, 30)]
    assert seconds(found.cut["b", "c"]) == [(15, 30)]


def test_an_end_of_a_cut_that_was_not_made_does_not_keep_a_later_one() -> None:
    ops = (5, "end"), (10, "cut"), (20, "end")
    found = follow(*(row(at, op, "a", "b", of="partition") for at, op in ops))
    assert seconds(found.cut["a", "b"]) == [(10, 20)]


@pytest.mark.parametrize(
    ("fault", "links"),
    [
        (row(10, "cut_one_way", "a", "b"), {"ab"}),
        (row(10, "cut_one_way", "a"), {"ab", "ac"}),
        (row(10, "cut_one_way", "", "a"), {"ba", "ca"}),
        (row(10, "isolate", "ab"), {"ab", "ba", "ac", "ca", "bc", "cb"}),
        (row(10, "clog", "c"), {"ca", "ac", "cb", "bc"}),
        (row(10, "cut", "ax", "bx", of="partition"), {"ab", "ba"}),
    ],
)
def test_each_fault_cuts_its_links(fault: Row, links: set[str]) -> None:
    found = follow(fault)
    assert {src + dst for src, dst in found.cut} == links
    assert all(seconds(times) == [(10, 100)] for times in found.cut.values())


@pytest.mark.parametrize(
    ("fault", "strained"),
    [
        (row(10, "lossy_link", "a", "b", value=0.05), False),
        (row(10, "lossy_link", "a", "b", value=0.5), True),
        (row(10, "slow_link", "a", "b", value=0.1), False),
        (row(10, "slow_link", "a", "b", value=0.1, tail_s=0.5), True),
        (row(10, "slow_link", "a", "b", value=0.1, jitter_s=0.2), True),
        *(
            (row(10, kind, "a", "b"), True)
            for kind in ("bursty_link", "narrow_link", "half_open", "cut_short")
        ),
        *((row(10, kind, "a", "b"), True) for kind in ("reset", "refuse", "black_hole", "silent_accept")),
        *((row(10, kind, "a"), True) for kind in ("slow_reader", "block_io", "starve", "hog")),
        (row(10, "slow_process", "a", value=3.0), False),
        (row(10, "slow_process", "a", value=100.0), True),
    ],
    ids=lambda value: value.of if isinstance(value, Row) else None,
)
def test_each_fault_strains_its_links(fault: Row, strained: bool) -> None:
    found = follow(fault)
    assert (("a", "b") in found.strained) is strained
    assert not found.cut


def test_a_one_way_fault_strains_one_direction() -> None:
    assert set(follow(row(10, "lossy_link", "a", "b", value=0.5, ways="there")).strained) == {("a", "b")}


def test_a_cut_is_no_strain_without_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule switched off, every fault of a link would be a cut, and loss of 5 % a partition."""
    fault = row(10, "lossy_link", "a", "b", value=0.05)
    assert not follow(fault).cut
    monkeypatch.setattr(module, "CUTS", (*module.CUTS, "lossy_link"))
    assert follow(fault).cut


def test_a_damaged_row_of_the_truth_has_no_effect() -> None:
    """An end of an unknown kind, and a word for a number, ended the analysis with a traceback."""
    rows = [
        truth_row(0, "start", "start", "a", None, None, {}),
        truth_row(1, "ended", None, "a", None, None, {}),
        truth_row(2, "slow_link", "slow_link", "a", "b", 0.1, {"jitter_s": "much"}),
    ]
    found = effects(rows, ["a", "b"], 10)
    assert [effect.what for effect in found.done] == ["start"] and not found.strained
