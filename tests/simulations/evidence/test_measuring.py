"""The figures of a run, from rows and faults written by hand."""

from __future__ import annotations

from typing import Any

from simulations.evidence.measuring import AFTERMATH_S, TOLD, Spread, measure
from simulations.faults import Fault, Span

BROKERS = ("broker-1", "broker-2", "broker-3")
IDS = {name: f"{number:016x}" for number, name in enumerate(BROKERS, 1)}


def row(kind: str, writer: str, at_s: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "node": IDS[writer], "boot": "b", "at_s": at_s, "name": writer, **more}


def change(writer: str, subject: str, to_state: str, at_s: float) -> dict[str, Any]:
    return row("mem", writer, at_s, subject=IDS[subject], subject_name=subject, to_state=to_state)


STARTS = [row("meta", name, 0.0, op="start") for name in BROKERS]


def test_detection_is_measured_from_the_outage_to_each_observers_first_row() -> None:
    spans = [Span(Fault(10.0, "crash", ("broker-3",)), 10.0)]
    rows = [
        *STARTS,
        change("broker-1", "broker-3", "dead", 13.0),
        change("broker-1", "broker-3", "alive", 13.5),
        change("broker-1", "broker-3", "dead", 14.0),
        change("broker-2", "broker-3", "dead", 13.5),
    ]
    found = measure(rows, spans, BROKERS)
    assert found.detection_s == Spread(2, 3.5, 3.5, 3.5)
    assert (found.deaths, found.false_deaths, found.flaps) == (3, 0, 1)


def test_no_detection_counts_after_a_return() -> None:
    spans = [Span(Fault(10.0, "crash", ("broker-3",)), 10.0), Span(Fault(12.0, "start", ("broker-3",)), 12.0)]
    found = measure([*STARTS, change("broker-1", "broker-3", "dead", 13.0)], spans, BROKERS)
    assert found.detection_s is None and found.false_deaths == 0


def test_a_cut_is_detected_by_each_side_of_the_other_and_taken_back_after_it() -> None:
    spans = [Span(Fault(10.0, "partition", ("broker-1",), for_s=10.0), 10.0, 20.0)]
    rows = [
        *STARTS,
        change("broker-1", "broker-2", "dead", 12.0),
        change("broker-2", "broker-1", "dead", 13.0),
        change("broker-2", "broker-3", "dead", 13.0),  # of its own side
        change("broker-3", "broker-1", "dead", 20.5),  # when it is over
        change("broker-2", "broker-1", "alive", 20.25),
        change("broker-1", "broker-2", "alive", 21.0),
    ]
    found = measure(rows, spans, BROKERS)
    assert found.detection_s == Spread(2, 3.0, 3.0, 3.0)
    assert found.return_s == Spread(2, 1.0, 1.0, 1.0)


def test_a_cut_in_one_direction_detects_only_the_unheard_side() -> None:
    spans = [Span(Fault(10.0, "cut_one_way", ("broker-1",), ("broker-2",), 10.0), 10.0, 20.0)]
    rows = [
        *STARTS,
        change("broker-1", "broker-2", "dead", 12.0),
        change("broker-2", "broker-1", "dead", 14.0),
    ]
    found = measure(rows, spans, BROKERS)
    assert found.detection_s == Spread(1, 4.0, 4.0, 4.0) and found.return_s is None


def test_every_comparable_measure_has_a_phrase() -> None:
    found = measure([*STARTS, change("broker-1", "broker-3", "suspect", 13.0)], [], BROKERS, whole_s=0.25)
    assert found.told("whole_s") == "whole 0.25 s after the heal"
    assert found.told("suspicions") == "1 suspicions in all tables together"
    assert found.told("detection_s") == "no broker was reported dead"
    assert all(found.told(name) and name in found.as_json() for name in TOLD)


def test_a_death_of_a_broker_without_a_fault_is_false() -> None:
    spans = [Span(Fault(10.0, "pause", ("broker-3",), for_s=2.0), 10.0, 12.0)]
    late_s = 12.0 + AFTERMATH_S + 1
    rows = [
        *STARTS,
        change("broker-3", "broker-1", "dead", 12.1),  # by a member that a fault affects
        change("broker-1", "broker-2", "dead", 12.2),
        change("broker-1", "broker-3", "dead", late_s),
    ]
    found = measure(rows, spans, BROKERS)
    assert (found.false_deaths, found.false_deaths_of_healthy) == (3, 2)


def test_a_split_from_all_others_affects_every_broker() -> None:
    rows = [*STARTS, change("broker-1", "broker-2", "dead", 12.0)]
    one = measure(rows, [Span(Fault(10.0, "partition", ("broker-3",)), 10.0)], BROKERS)
    other = measure(rows, [Span(Fault(10.0, "partition", ("broker-3",), ("broker-1",)), 10.0)], BROKERS)
    assert (one.false_deaths, other.false_deaths) == (0, 1)


def test_views_are_counted_by_size() -> None:
    rows = [
        *STARTS,
        change("broker-1", "broker-2", "alive", 1.0),
        change("broker-1", "broker-3", "alive", 1.0),
        change("broker-1", "broker-3", "suspect", 2.0),
        change("broker-1", "broker-3", "dead", 3.0),
        change("broker-2", "broker-1", "alive", 1.0),
    ]
    assert measure(rows, [], BROKERS).view_sizes == 2


def test_messages_heard_are_measured_per_second_of_each_life() -> None:
    link = {"msgs_in": 30, "bytes_in": 500, "bytes_out": 100}
    rows = [
        row("meta", "broker-1", 0.0, op="start"),
        *(row("hb", "broker-1", float(at_s)) for at_s in range(10)),
        row("stats", "broker-1", 5.0, links=[{"msgs_in": 1, "bytes_in": 1, "bytes_out": 1}]),
        row("stats", "broker-1", 10.0, links=[link, link]),
    ]
    found = measure(rows, [], BROKERS)
    assert found.messages_per_broker_s == Spread(1, 7.0, 7.0, 7.0)
    assert found.bytes_per_broker_s == Spread(1, 120.0, 120.0, 120.0)


def test_a_spread_without_values_is_none() -> None:
    assert Spread.of([]) is None
    assert Spread.of(float(number) for number in range(1, 201)) == Spread(200, 101.0, 199.0, 200.0)
