"""New lines of logs as the last rows of brokers and links, and deaths."""

from __future__ import annotations

import json
from typing import Any

from mesh.analysis.following.health import Death, Health, HeardLast, Wrote
from mesh.analysis.following.lately import batch_of

A, B = "00000000000000a1", "00000000000000b2"
SECOND = 1_000_000
START_US = 1_794_997_600 * SECOND


def line(second: int, node: str, kind: str, **columns: Any) -> str:
    row = {
        "v": 1,
        "run": "mangrove",
        "ts": f"2026-11-18T10:26:{40 + second}.250000Z",
        "mono_ns": second * 10**9,
        "node": node,
        "boot": node,
        "inc": 1,
        "seq": second + 1,
        "kind": kind,
    }
    return json.dumps(row | columns)


def beat(second: int, node: str, src: str) -> str:
    return line(second, node, "hb", msg="survey", src=src, dst=node, hb_seq=second, rtt_us=None)


def summary(second: int, node: str, src: str) -> str:
    counts = dict.fromkeys(("surveys", "answers", "first_ns", "last_ns", "rtt_sum_us", "slots"), 1)
    counters = dict.fromkeys(("rtt_counts_0", "rtt_counts_1", "rtt_counts_2"), 0)
    return line(second, node, "heard", src=src, window=0, window_ns=16 * 10**9, **counts, **counters)


def test_the_last_row_of_each_broker_and_link_counts() -> None:
    start = line(0, A, "meta", op="start", name="alpha")
    found = batch_of([start, beat(2, A, B), beat(1, A, B), beat(3, B, A), ""])
    assert found.wrote == (
        Wrote(("mangrove", A), START_US + 2_250_000, 3, "alpha", False),
        Wrote(("mangrove", B), START_US + 3_250_000, 1, None, None),
    )
    assert found.heard == (
        HeardLast("mangrove", A, B, START_US + 2_250_000),
        HeardLast("mangrove", B, A, START_US + 3_250_000),
    )
    assert (found.deaths, found.corrupt) == ((), 0)


def test_a_death_has_all_that_reported_it() -> None:
    about = {"subject": "c", "subject_name": "gamma", "subject_boot": A, "subject_inc": 1}
    told = {
        "subject": "00000000000000c3",
        "from_state": "suspect",
        "to_state": "dead",
        "reason": "-",
        "via": A,
    }
    dead = [line(second, node, "mem", **(about | told)) for second, node in ((2, A), (1, B), (3, B))]
    assert batch_of(dead).deaths == (
        Death(("mangrove", "00000000000000c3"), "gamma", START_US + 1_250_000, 2),
    )


def test_lines_that_are_not_rows_are_counted_and_a_simulators_truth_is_not() -> None:
    glued = beat(1, A, B) * 2
    strange = ["half a li", glued, line(1, A, "news"), beat(1, A, B).replace("-18T", "-99T"), "[]"]
    found = batch_of([*strange, line(1, A, "truth", op="crash"), beat(1, A, B)])
    assert found.corrupt == len(strange)
    assert sum(wrote.rows for wrote in found.wrote) == 1


def test_brokers_that_combine_heartbeats_are_one_mesh_between_two_windows() -> None:
    """With log_heartbeats = "summary" every broker was silent, or a part of its own, most of the time."""
    health = Health()
    health.take(batch_of([summary(0, A, B), summary(0, B, A)]), 0.0)
    health.take(batch_of([line(15, A, "stats", published=0, delivered=0, dropped=0)]), 0.0)
    picture = health.picture(0.0)
    assert [broker.state for broker in picture.brokers] == ["up", "up"]
    assert picture.parts == ((A, B),)
