"""From findings to the text of a scenario, and the times that users name."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.carried.round_trips import BUCKETS, tail
from mesh.analysis.incident.writing import NoScenario, moment_of, write_scenario
from mesh.analysis.reporting.findings import findings_of
from tests.mesh.analysis.reporting.tables_by_hand import ZERO, S, at, digest, life


def test_the_incident_of_a_run() -> None:
    tables = digest()
    text = write_scenario(findings_of(tables), tables, [])
    document = tomllib.loads(text)
    assert [(fault["kind"], fault["a"]) for fault in document["fault"]] == [
        ("crash", "broker-1"),
        ("pause", "broker-2"),
        ("partition", "broker-3"),
    ]
    assert "#   broker-1 was broker-10" in text
    assert "1 crash, 1 partition" in text


def test_only_events_around_a_time_are_written() -> None:
    tables = digest()
    text = write_scenario(findings_of(tables), tables, [], at=at(42), within_s=5)
    assert [fault["kind"] for fault in tomllib.loads(text)["fault"]] == ["pause"]


def test_a_time_without_events_is_named_and_events_outside_are_counted() -> None:
    """It said that nothing had happened to brokers or links, although much had."""
    tables = digest()
    sentence = (
        r"nothing happened to brokers or links within 2 s of 22:13:25 UTC, but 3 events happened outside of "
        r"that time; name a longer time with --within"
    )
    with pytest.raises(NoScenario, match=sentence):
        write_scenario(findings_of(tables), tables, [], at=at(5), within_s=2)
    lives = [life("a", 1, "up", 0, 20, "crash"), life("a", 2, "down", 20, 26, "restart")]
    tables = digest(lives=[*lives, life("a", 3, "up", 26, 100, None)], parts=[], part_sides=[])
    with pytest.raises(NoScenario, match="but 1 event happened outside of that time"):
        write_scenario(findings_of(tables), tables, [], at=at(5), within_s=2)
    text = write_scenario(findings_of(digest()), digest(), [], at=at(42), within_s=5)
    assert "# 2 more events lie outside of what was asked for." in text
    text = write_scenario(findings_of(digest()), digest(), [], at=at(42), within_s=17)
    assert "# 1 more event lies outside of what was asked for." in text


def test_a_calm_run_makes_no_scenario() -> None:
    tables = digest(lives=[life("a", 1, "up", 0, 100, None)], parts=[], part_sides=[])
    for moment in (None, at(5)):
        with pytest.raises(NoScenario, match="links, so there is nothing to make a scenario of"):
            write_scenario(findings_of(tables), tables, [], at=moment)


def test_a_run_among_several_has_to_be_named() -> None:
    """The error did not say how to choose one."""
    tables = digest()
    lives = [*tables.lives, *(msgspec.structs.replace(each, run="south") for each in tables.lives[:2])]
    found = findings_of(digest(lives=lives))
    with pytest.raises(NoScenario, match="the logs hold 2; name one with --run: north, south$"):
        write_scenario(found, digest(lives=lives), [])
    with pytest.raises(NoScenario, match="the logs hold no run 'west'; name one of these .*: north, south$"):
        write_scenario(found, digest(lives=lives), [], run="west")
    for run, faults in (("north", 3), ("south", 1)):
        text = write_scenario(found, digest(lives=lives), [], run=run)
        assert f"What happened in the mesh {run}," in text
        assert len(tomllib.loads(text)["fault"]) == faults


def moment(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("22:13:30", "2023-11-14T22:13:30"),
        ("22:14", "2023-11-14T22:14:00"),
        ("22:13:30.5", "2023-11-14T22:13:30.500"),
        ("2023-11-14T22:13:30Z", "2023-11-14T22:13:30"),
        ("2023-11-14T23:13:30+01:00", "2023-11-14T22:13:30"),
        ("00:10", "2023-11-15T00:10:00"),
    ],
)
def test_formats_of_times_are_accepted(text: str, told: str) -> None:
    assert moment_of(text, ZERO, ZERO + 7200 * S) == moment(told)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "23:59:59", "2020-01-01"])
def test_malformed_times_and_times_outside_the_run_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|outside of the run, from 2023-.*Z to 2023-.*Z"):
        moment_of(text, ZERO, ZERO + 100 * S)


@given(st.lists(st.integers(0, 100), min_size=BUCKETS, max_size=BUCKETS), st.floats(1, 1e6))
def test_a_tail_is_the_share_of_slower_round_trips(counts: list[int], p50_us: float) -> None:
    share, typical_us = tail(counts, p50_us, 8)
    assert 0 <= share <= 1
    assert not share or typical_us >= 8 * p50_us
