"""The evidence of a run is read once, in the order of time, and each reader gets what it asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesh.cluster.membership import State
from simulations.evidence import EVERY, Change, Evidence, Reader, Row, Sample, View, read
from simulations.scenario import Scenario
from tests.simulations.invariants.histories import ONE, THREE, TWO, record


def row(kind: str, at_s: float, seq: int = 1) -> dict[str, Any]:
    return {"kind": kind, "at_s": at_s, "node": "01", "boot": "0b", "seq": seq}


def view(name: str, **more: Any) -> View:
    seen = View(name=name, life=1, id=record(name).id, boot=11, state="ready", table=(record(name),))
    return replace(seen, **more)


def sample(at_s: float, *views: View) -> Sample:
    return Sample(at_s, {each.name: each for each in views})


class Diary(Reader):
    """Notes its calls."""

    kinds = EVERY

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_row(self, row: Row) -> None:
        self.told.append((row["kind"], row["at_s"]))

    def on_change(self, change: Change) -> None:
        self.told.append((change.view.name, change.at_s))

    def on_look(self, sample: Sample) -> None:
        self.told.append(sample.at_s)


class Links(Reader):
    kinds = ("link",)

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def on_row(self, row: Row) -> None:
        self.rows.append(row)


def evidence(*samples: Sample, rows: list[Row]) -> Evidence:
    return Evidence(Scenario("read"), rows=rows, samples=list(samples))


def test_rows_up_to_a_look_come_before_it_and_changes_before_the_look_as_a_whole() -> None:
    diary, links = Diary(), Links()
    rows = [row("hb", 0.5), row("link", 1.0), row("hb", 1.5), row("mem", 9.0)]
    left = evidence(sample(1.0, view(ONE), view(TWO)), sample(2.0, view(ONE), view(TWO)), rows=rows)
    read(left, [diary, links])
    assert diary.told == [
        ("hb", 0.5),
        ("link", 1.0),
        (ONE, 1.0),
        (TWO, 1.0),
        1.0,
        ("hb", 1.5),
        2.0,
        ("mem", 9.0),
    ]
    assert links.rows == rows[1:2]


def test_looks_without_rows_and_rows_without_a_look_reach_the_readers() -> None:
    for left in (evidence(sample(1.0, view(ONE)), rows=[]), evidence(rows=[row("hb", 0.5)])):
        diary = Diary()
        read(left, [diary])
        assert len(diary.told) == 2 * len(left.samples) + len(left.rows)


class Changes(Reader):
    def __init__(self) -> None:
        self.told: list[Change] = []

    def on_change(self, change: Change) -> None:
        self.told.append(change)


def changes(*samples: Sample) -> list[Change]:
    reader = Changes()
    read(evidence(*samples, rows=[]), [reader])
    return reader.told


def test_a_broker_with_only_new_counts_has_not_changed() -> None:
    first, *others = changes(
        sample(1.0, view(ONE)),
        sample(2.0, view(ONE, counters={"rounds": 2}, sizes={"members": 3}, void_at=1.5, paused=True)),
    )
    assert not others
    assert first.before is None and first.records == first.view.table


def test_a_change_says_which_records_are_new() -> None:
    me, suspect = record(ONE), record(THREE, State.SUSPECT)
    held = (me, record(TWO), record(THREE))
    _, change = changes(
        sample(1.0, view(ONE, table=held)), sample(2.0, view(ONE, table=(*held[:2], suspect)))
    )
    assert change.before is not None and change.before.table == held
    assert change.records == (suspect,)


def test_another_life_of_a_broker_has_nothing_before_it() -> None:
    _, change = changes(sample(1.0, view(ONE)), sample(2.0, view(ONE, life=2, boot=12)))
    assert change.before is None


def test_a_broker_away_at_a_look_has_nothing_before_it() -> None:
    told = changes(sample(1.0, view(ONE)), sample(2.0), sample(3.0, view(ONE)))
    assert [(each.at_s, each.before) for each in told] == [(1.0, None), (3.0, None)]


def test_each_difference_that_checks_ask_for_is_a_change() -> None:
    differences: list[dict[str, Any]] = [
        {"links": (2,)},
        {"state": "isolated"},
        {"held": {2: (1, ())}},
        {"interest": (("#", 0),)},
        {"interest_version": 2},
        {"digest": b"other"},
    ]
    for different in differences:
        assert len(changes(sample(1.0, view(ONE)), sample(2.0, view(ONE, **different)))) == 2, different
