"""An incident becomes a scenario file that the simulator accepts and plays."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.incident.happenings import Happening, Incident, incident
from mesh.analysis.incident.scenario_text import RoundTrips, Setting, scenario_text
from mesh.analysis.incident.scope import Scope, around, at_most
from mesh.analysis.results.tables import Life, LifeEnd, Outage, Part, PartSide, State
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load

RUN = "north"
S = 1_000_000
ENDED = 100 * S


def lives(node: str, *stretches: tuple[float, State, LifeEnd | None], start_s: float = 0.0) -> list[Life]:
    """One broker's life: for each stretch its end, its state, and why it ended."""
    made, start = [], round(start_s * S)
    for number, (end_s, state, cause) in enumerate(stretches, 1):
        end = round(end_s * S)
        made.append(Life(RUN, node, number, "b", state, start, end, cause, False, cause is None, 0.0))
        start = end
    return made


def calm(*nodes: str) -> list[Life]:
    return [life for node in nodes for life in lives(node, (100, "up", None))]


def silence(src: str, dst: str, last_s: float, next_s: float) -> Outage:
    return Outage(RUN, src, dst, round(last_s * S), round(next_s * S), True, "cut", 0.0)


def told(
    of: Sequence[Life],
    parts: Sequence[Part] = (),
    sides: Sequence[PartSide] = (),
    outages: Sequence[Outage] = (),
) -> Incident:
    return incident(of, parts, sides, outages, period_s=1.0)


def setting(**changes: object) -> Setting:
    given = {
        "run": RUN,
        "names": {"a": "oslo", "b": "bergen"},
        "period_s": 1.0,
        "deadline_s": 0.5,
        "round_trips": RoundTrips(400, 700, 0.01, 90_000),
        "published_per_s": 25.0,
        "verdict": ["One broker crashed."],
    }
    return Setting(**{**given, **changes})  # type: ignore[arg-type]


def whole(of: Incident) -> Scope:
    return Scope(of, (), 0)


def test_a_crash_lasts_until_the_next_start_and_a_pause_until_its_resume() -> None:
    found = told(
        [
            *lives("a", (20, "up", "crash"), (26, "down", "restart"), (100, "up", None)),
            *lives("b", (40, "up", "pause"), (44, "paused", "resume"), (100, "up", None)),
            *lives("c", (60, "up", "leave"), (100, "away", None)),
            *calm("d"),
        ]
    )
    assert found.happenings == (
        Happening(20 * S, "crash", ("a",), until=26 * S),
        Happening(40 * S, "pause", ("b",), until=44 * S),
        Happening(60 * S, "stop", ("c",)),
    )
    assert found.first == ("a", "b", "c", "d")


def test_a_broker_that_comes_after_something_happened_is_started_then() -> None:
    found = told(
        [
            *lives("a", (20, "up", "crash"), (26, "down", "restart"), (100, "up", None)),
            *lives("late", (100, "up", None), start_s=50),
            *calm("b"),
        ]
    )
    assert found.first == ("a", "b", "late")
    assert found.late == 1
    assert Happening(50 * S, "start", ("late",)) in found.happenings


def test_a_complete_part_is_a_partition_and_its_outages_are_not_repeated() -> None:
    part = Part(RUN, 1, 20 * S, 35 * S, "complete", True)
    sides = [PartSide(RUN, 1, "a", 0), PartSide(RUN, 1, "b", 0), PartSide(RUN, 1, "c", 1)]
    quiet = [silence(src, dst, 20.2, 35.1) for src, dst in ("ac", "ca", "bc", "cb")]
    found = told(calm("a", "b", "c"), [part], sides, quiet)
    assert found.happenings == (Happening(20 * S, "partition", ("c",), ("a", "b"), 35 * S),)


def test_a_cut_that_was_there_before_its_listener_begins_with_it() -> None:
    """An outage without a heartbeat before it was played from 1970 on, or no scenario was made at all."""
    found = told(
        [*calm("a", "b"), *lives("c", (20, "up", "leave"), (60, "away", "start"), (100, "up", None))],
        outages=[
            Outage(RUN, "a", "c", None, 72 * S, True, "cut", 0.0),
            Outage(RUN, "c", "a", 19 * S, 72 * S, True, "cut", 0.0),
        ],
    )
    assert found.happenings == (
        Happening(20 * S, "stop", ("c",), until=60 * S),
        Happening(60 * S, "partition", ("a",), ("c",), 72 * S),
    )
    assert found.late == 0


def test_a_cut_that_was_one_way_at_first_begins_then() -> None:
    """Links are given up after some silent rounds, and then it is a part; two periods of it were lost."""
    part = Part(RUN, 1, 22 * S, 40 * S, "complete", True)
    sides = [PartSide(RUN, 1, "a", 0), PartSide(RUN, 1, "b", 0), PartSide(RUN, 1, "c", 1)]
    deaf = [silence(src, "c", 20.2, 40) for src in "ab"]
    quiet = [silence("c", dst, 21, 40) for dst in "ab"]
    found = told(calm("a", "b", "c"), [part], sides, [*deaf, *quiet])
    assert [(each.kind, each.at, each.a, each.b) for each in found.happenings] == [
        ("cut_one_way", round(20.2 * S), ("a", "b"), ("c",)),
        ("partition", 22 * S, ("c",), ("a", "b")),
    ]


def test_a_broker_that_leaves_in_a_part_causes_no_cuts_beside_the_part() -> None:
    """Its outages have no end, and were also reported as endless cuts beside the part."""
    part = Part(RUN, 1, 20 * S, 50 * S, "complete", True)
    sides = [PartSide(RUN, 1, "a", 0), PartSide(RUN, 1, "b", 0), PartSide(RUN, 1, "c", 1)]
    quiet = [Outage(RUN, src, "c", 20 * S, None, True, "cut", 0.0) for src in "ab"]
    quiet += [Outage(RUN, "c", dst, 20 * S, None, True, "cut", 0.0) for dst in "ab"]
    found = told(
        [*calm("a", "b"), *lives("c", (30, "up", "leave"), (100, "away", None))], [part], sides, quiet
    )
    assert found.happenings == (
        Happening(20 * S, "partition", ("c",), ("a", "b"), 50 * S),
        Happening(30 * S, "stop", ("c",)),
    )


def test_three_sides_are_two_partitions() -> None:
    part = Part(RUN, 1, 20 * S, None, "complete", False)
    sides = [PartSide(RUN, 1, node, side) for side, node in enumerate("abc")]
    found = told(calm("a", "b", "c"), [part], sides)
    assert [(each.a, each.b, each.until) for each in found.happenings] == [
        (("b",), ("a",), None),
        (("c",), ("a", "b"), None),
    ]


def test_silent_pairs_are_cuts_grouped_by_the_broker_that_is_cut_off() -> None:
    quiet = [silence(src, dst, 20.2, 35.1) for src, dst in ("ac", "ca", "bc", "cb")]
    found = told(calm("a", "b", "c", "d"), [Part(RUN, 1, 20 * S, 35 * S, "partial", True)], [], quiet)
    (cut,) = found.happenings
    assert cut.kind == "partition"
    assert {*cut.a, *cut.b} == {"a", "b", "c"}
    assert ("c",) in (cut.a, cut.b)


def test_a_pair_with_one_heard_direction_is_cut_one_way() -> None:
    found = told(calm("a", "b", "c"), outages=[silence("a", "b", 20, 30), silence("a", "c", 20.5, 30.4)])
    (cut,) = found.happenings
    assert (cut.kind, cut.a, cut.b) == ("cut_one_way", ("a",), ("b", "c"))


def test_a_lost_log_is_mentioned_and_not_played() -> None:
    found = told([*lives("a", (20, "up", "log lost"), (100, "unknown", None)), *calm("b")])
    assert not found.happenings
    assert found.untold[0].nodes == ("a",)


@pytest.mark.parametrize("of", [[], calm("a", "b")])
def test_an_incident_without_events_is_one_sentence(of: list[Life]) -> None:
    with pytest.raises(ValueError, match="nothing to make a scenario of"):
        scenario_text(whole(told(of)), setting())


def test_only_events_around_the_given_time_are_kept() -> None:
    found = told(
        [
            *lives("a", (20, "up", "crash"), (90, "down", "restart"), (100, "up", None)),
            *lives("b", (25, "up", "crash"), (28, "down", "restart"), (100, "up", None)),
            *lives("c", (70, "up", "pause"), (74, "paused", "resume"), (100, "up", None)),
        ]
    )
    scope = around(found, 70 * S, 10)
    assert scope.incident.happenings == (
        Happening(60 * S, "crash", ("a",), until=90 * S),
        Happening(70 * S, "pause", ("c",), until=74 * S),
    )
    assert scope.dropped == 1


def test_the_affected_brokers_of_a_large_mesh_are_kept_and_the_rest_are_named() -> None:
    crowd = [f"n{number:03d}" for number in range(150)]
    part = Part(RUN, 1, 30 * S, 40 * S, "complete", True)
    sides = [PartSide(RUN, 1, node, int(number >= 75)) for number, node in enumerate(crowd)]
    sides.append(PartSide(RUN, 1, "z", 0))
    of = [*calm(*crowd), *lives("z", (20, "up", "crash"), (26, "down", "restart"), (100, "up", None))]
    scope = at_most(whole(told(of, [part], sides)))
    assert len(scope.incident.first) == 100
    assert "z" in scope.incident.first
    crash, cut = scope.incident.happenings
    assert crash.a == ("z",)
    assert cut.a and cut.b
    text = scenario_text(scope, setting())
    assert scope.left_out[0] in text


def test_too_many_affected_brokers_are_one_sentence() -> None:
    of = [
        life
        for number in range(120)
        for life in lives(f"n{number:03d}", (20, "up", "crash"), (26, "down", "restart"), (100, "up", None))
    ]
    with pytest.raises(ValueError, match="--around"):
        at_most(whole(told(of)))


def test_the_simulator_plays_it(tmp_path: Path) -> None:
    part = Part(RUN, 1, 30 * S, 36 * S, "complete", True)
    sides = [PartSide(RUN, 1, "a", 1), PartSide(RUN, 1, "b", 0), PartSide(RUN, 1, "late", 0)]
    found = told(
        [
            *lives("a", (20, "up", "crash"), (23, "down", "restart"), (100, "up", None)),
            *calm("b"),
            *lives("late", (100, "up", None), start_s=25),
        ],
        [part],
        sides,
    )
    path = tmp_path / "incident.toml"
    path.write_text(scenario_text(whole(found), setting()))
    scenario = load(str(path))
    assert (scenario.brokers, scenario.spares, scenario.period_s) == (2, 1, 1.0)
    assert [fault.kind for _, fault in _faults(path)] == ["crash", "start", "partition"]
    assert Play(scenario, seed=1).run().ok


def _faults(path: Path) -> list[tuple[float, Happening]]:
    document = tomllib.loads(path.read_text())
    return [(each["at_s"], Happening(0, each["kind"], (each["a"],))) for each in document["fault"]]


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_the_file_is_toml_for_any_names_of_brokers(run: str, name: str, verdict: str) -> None:
    of = [*lives("a", (20, "up", "crash"), (26, "down", "restart"), (100, "up", None)), *calm("b")]
    text = scenario_text(whole(told(of)), setting(run=run, names={"a": name, "b": run}, verdict=[verdict]))
    document = tomllib.loads(text)
    assert document["fault"] == [{"at_s": 3, "kind": "crash", "a": "broker-1", "for_s": 6}]


def test_the_leaving_of_all_brokers_at_the_end_is_no_incident() -> None:
    of = [life for node in "abc" for life in lives(node, (90, "up", "leave"), (100, "away", None))]
    of += lives("d", (20, "up", "crash"), (23, "down", "restart"), (91, "up", "leave"), (100, "away", None))
    assert [each.kind for each in told(of).happenings] == ["crash"]
