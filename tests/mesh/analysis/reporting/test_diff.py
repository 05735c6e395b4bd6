"""Two analyses are compared by their findings."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mesh.analysis.reporting.diff import Difference, differences
from mesh.analysis.reporting.findings import findings_of
from tests.mesh.analysis.reporting.tables_by_hand import RUN, digest


@pytest.fixture
def before() -> dict[str, Any]:
    return findings_of(digest()).as_json()


def test_the_same_findings_do_not_differ(before: dict[str, Any]) -> None:
    assert differences(before, copy.deepcopy(before)) == []


def test_each_change_is_reported_with_both_values(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    run = after["runs"][0]
    run["failures"] = {"crash": 2, "power_off": 1}
    run["availability"] = 0.5
    run["heartbeats"]["heard"] = 571
    run["brokers"][0]["down_s"] = 50.0
    run["brokers"][0]["failures"] = 2
    after["quality"]["gaps"] = 9
    assert differences(before, after) == [
        Difference(RUN, "failures: crash", 1, 2, "failures"),
        Difference(RUN, "failures: power_off", None, 1, "failures"),
        Difference(RUN, "broker broker-1: failures", 0, 2, "failures"),
        Difference(RUN, "availability", before["runs"][0]["availability"], 0.5, "availability"),
        Difference(RUN, "broker broker-1: down_s", 0.0, 50.0, "availability"),
        Difference(RUN, "heartbeats: heard", 570, 571, "amounts"),
        Difference("", "logs: gaps", 2, 9, "amounts"),
    ]


def test_a_part_is_the_same_if_its_sides_and_its_time_in_the_run_are(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    run = after["runs"][0]
    run["started"] = "2024-01-01T00:00:00.000000Z"
    run["parts"][0] |= {"start": "2024-01-01T00:01:01.000000Z", "end": "2024-01-01T00:01:11.500000Z"}
    assert differences(before, after) == [], "a second later in a run of another day"
    run["parts"][0]["sides"] = [["broker-2"], ["broker-10", "broker-1"]]
    gone, come = differences(before, after)
    assert (gone.what, gone.after) == ("part", None)
    assert come.after == "complete at 61.0 s for 10.5 s: broker-2 | broker-10, broker-1"


def test_a_one_way_part_in_the_other_direction_is_another(before: dict[str, Any]) -> None:
    """Its sides were compared in any order."""
    after = copy.deepcopy(before)
    for each in (before, after):
        each["runs"][0]["parts"][0] |= {"kind": "one-way", "sides": [["a"], ["b"]]}
    assert not differences(before, after)
    after["runs"][0]["parts"][0]["sides"].reverse()
    gone, came = differences(before, after)
    assert "a did not hear b" in gone.before and "b did not hear a" in came.after


@pytest.mark.parametrize(
    ("end", "told"), [("2023-11-14T22:20:00.000000Z", "for 340.0 s"), (None, "to the end")]
)
def test_a_part_that_lasted_longer_is_a_difference(
    before: dict[str, Any], end: str | None, told: str
) -> None:
    """A cut of a minute was the same as one of a second, if they began together."""
    after = copy.deepcopy(before)
    after["runs"][0]["parts"][0]["end"] = end
    (found,) = differences(before, after)
    assert found.topic == "partitions"
    assert found.before == "complete at 60.0 s for 10.0 s: broker-2, broker-10 | broker-1"
    assert found.after == f"complete at 60.0 s {told}: broker-2, broker-10 | broker-1"


def test_a_run_or_a_broker_that_is_missing(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    gone = after["runs"][0]["brokers"].pop()
    assert differences(before, after) == [Difference(RUN, f"broker {gone['name']}", "there", None, "brokers")]
    both = copy.deepcopy(before)
    both["runs"].append({**copy.deepcopy(before["runs"][0]), "run": "south"})
    assert differences(before, both) == [Difference("south", "run", None, before["runs"][0]["verdict"])]


def test_single_runs_are_compared_under_any_names(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    after["runs"][0]["run"] = "replay-7"
    assert differences(before, after) == [Difference("", "run", RUN, "replay-7")]


def test_the_logs_are_compared_too_if_runs_have_other_names(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    after["runs"][0]["run"] = "replay-7"
    after["quality"]["gaps"] = 9
    assert Difference("", "logs: gaps", 2, 9, "amounts") in differences(before, after)


def test_a_damaged_file_is_a_difference(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    del before["quality"]["damaged"]  # of version 0.1
    after["quality"]["damaged"] = [{"file": "a.jsonl.gz", "damage": "it is cut off", "rows": 3}]
    assert differences(before, after) == [Difference("", "logs: damaged", None, "a.jsonl.gz", "amounts")]
    after["quality"]["damaged"] = []
    assert differences(before, after) == []


def test_two_brokers_of_one_name_are_compared_each_with_its_own(before: dict[str, Any]) -> None:
    """A broker that lost its state returns with another id. Only the last one of a name was compared."""
    (run,) = before["runs"]
    run["brokers"].append({**copy.deepcopy(run["brokers"][0]), "node": "z"})
    after = copy.deepcopy(before)
    after["runs"][0]["brokers"][0]["failures"] = 7
    name = run["brokers"][0]["name"]
    assert differences(before, after) == [Difference(RUN, f"broker {name}: failures", 0, 7, "failures")]
