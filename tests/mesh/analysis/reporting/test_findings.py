"""Findings state the content of the tables in clear words and numbers."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from mesh.analysis.reporting.digest import Holes
from mesh.analysis.reporting.findings import duration, findings_of, natural, share
from mesh.analysis.reporting.terminal import summary
from mesh.analysis.results.tables import FileRow, Match, Part, PartSide
from tests.mesh.analysis.reporting.tables_by_hand import RUN, at, broker, dead, digest, life


def text_of(found: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(found))  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_only_crashes_and_power_losses_are_failures() -> None:
    (run,) = findings_of(digest()).runs
    assert run.failures == {"crash": 1}
    assert run.deaths_told == {"crash": 1, "cut off": 1, "paused": 1}
    assert run.availability == pytest.approx(294 / 300)
    assert run.mttf_s == 294
    assert run.mttr_s == 6
    assert run.verdict == (
        "3 brokers in 1 min 40 s, 1 crash, 1 partition, 2 deaths reported for brokers that had not failed "
        "(1 cut off, 1 paused), availability 98.0 %."
    )


def test_a_calm_run_says_so() -> None:
    calm = digest(
        lives=[life("a", 1, "up", 0, 100, None)],
        brokers=[broker("a", "oslo")],
        availability=[],
        parts=[],
        part_sides=[],
        changes=[],
    )
    (run,) = findings_of(calm).runs
    assert run.verdict == "1 broker in 1 min 40 s, no failure, no partition."
    assert run.availability is None, "nothing was observed, which is not zero"


def test_the_verdict_names_brokers_whose_logs_are_missing() -> None:
    """One of eight logs of a mesh that was split for a minute said "no partition" without a reservation."""
    alone = digest(
        lives=[life("a", 1, "up", 0, 100, None), life("b", 1, "unknown", 0, 100, None)],
        brokers=[broker("a", "oslo")],
        availability=[],
        parts=[],
        part_sides=[],
        changes=[],
    )
    (run,) = findings_of(alone).runs
    assert run.verdict == (
        "2 brokers in 1 min 40 s, no failure, no partition, "
        "but 1 broker left no log: what nobody else saw is unknown."
    )


def test_the_verdict_names_holes_that_may_hide_a_silence() -> None:
    """With a file of a log gone, the report said nothing of it."""
    (run,) = findings_of(digest(holes=[Holes(RUN, "a", 3, 500, at(30), at(50))])).runs
    assert run.verdict.endswith("but 1 log has holes: what nobody else saw is unknown.")
    assert [(hole.broker, hole.rows) for hole in run.holes] == [("broker-10", 500)]
    assert "the log of broker-10 lacks 500 rows, longest from 22:13:50.0 to 22:14:10.0" in text_of(
        findings_of(digest(holes=[Holes(RUN, "a", 3, 500, at(30), at(50))]))
    )
    short = findings_of(digest(holes=[Holes(RUN, "a", 1, 1, at(30), at(31))]))
    assert short.runs[0].holes == [] and short.quality.gaps == 1


def test_a_broker_without_a_log_has_the_name_that_others_give_it() -> None:
    """It was shown as 16 hex digits, though each of its peers had told its name."""
    others = [broker("a", "oslo"), broker("b", "bergen", boots=0, published=None, loop_late_ms_max=None)]
    (run,) = findings_of(digest(brokers=others, parts=[], part_sides=[])).runs
    assert run.unlogged == ["bergen", "c"]
    assert {each.name for each in run.brokers} == {"oslo", "bergen", "c"}


def test_events_are_in_order_with_names_in_natural_order() -> None:
    (run,) = findings_of(digest()).runs
    assert [(event.what, event.brokers) for event in run.events] == [
        ("start", ["broker-1", "broker-2", "broker-10"]),
        ("crash", ["broker-10"]),
        ("pause", ["broker-2"]),
        ("part", ["broker-1"]),
    ]
    crash = run.events[1]
    assert (crash.at, crash.lasted_s, crash.told_s, crash.told_by) == (at(20), 6, 2.5, 2)
    assert run.parts[0].sides == [["broker-2", "broker-10"], ["broker-1"]]


def test_simultaneous_changes_are_one_event() -> None:
    lives = [
        each
        for node, start in (("a", 20.0), ("b", 20.3), ("c", 20.9))
        for each in (
            life(node, 1, "up", 0, start, "crash"),
            life(node, 2, "down", start, 30, "restart"),
            life(node, 3, "up", 30, 100, None),
        )
    ]
    (run,) = findings_of(digest(lives=lives, changes=[], parts=[], part_sides=[])).runs
    assert [event.brokers for event in run.events if event.what == "crash"] == [
        ["broker-2", "broker-10"],
        ["broker-1"],
    ]


def test_programs_get_plain_values_with_times_as_text() -> None:
    plain = json.loads(json.dumps(findings_of(digest()).as_json()))
    assert plain["schema"] == "mangrove.analysis/2"
    assert plain["runs"][0]["started"] == "2023-11-14T22:13:20.000000Z"
    assert plain["runs"][0]["parts"][0]["end"] == "2023-11-14T22:14:30.000000Z"
    assert plain["quality"] == {
        "files": 1,
        "bytes": 1000,
        "lines": 11,
        "rows": 10,
        "corrupt": 1,
        "unknown": 0,
        "duplicates": 0,
        "conflicts": 0,
        "gaps": 2,
        "damaged": [],
    }


def test_the_terminal_shows_causes_beside_counts() -> None:
    said = text_of(findings_of(digest()))
    assert "1 crash, 1 partition" in said
    assert "after 2.5 s by 2" in said
    assert "broker-2, broker-10 | broker-1" in said
    assert "members reported dead: crash 1, cut off 1, paused 1" in said
    assert "unknown" not in said, "columns of zeros are left out"
    assert "570 surveys heard, 30 missed" in said
    assert "queue full 3" in said


def test_the_terminal_names_the_score_if_there_is_a_truth() -> None:
    """It was in the report and in the JSON alone."""
    assert "compared with what was done" not in text_of(findings_of(digest()))
    verdicts = ["tp", "tp", "fn", "below resolution"]
    matches = [Match(RUN, "crash", "done", "found", each, at(1), 0.0, None) for each in verdicts]  # type: ignore[arg-type]
    assert (
        "compared with what was done: 2 found (tp), 0 not done (fp), 1 missed (fn), 1 too short to tell\n"
    ) in text_of(findings_of(digest(matches=matches)))


def test_a_narrow_terminal_loses_no_name() -> None:
    said = text_of(findings_of(digest()), width=50)
    assert "broker-10" in said


def test_markup_in_names_is_text() -> None:
    found = findings_of(digest(brokers=[broker("a", "[red]x[/red]"), broker("b", "b"), broker("c", "c")]))
    assert "[red]x[/red]" in text_of(found)


def test_natural_order() -> None:
    assert sorted(["b10", "b2", "b", "10", "9", "b2a"], key=natural) == ["9", "10", "b", "b2", "b2a", "b10"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (18_120, "5 h 2 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "100 %"),
        (0.98, "98.0 %"),
        (0.9976, "99.8 %"),
        (0.99996, "99.996 %"),
        (0.9999999, "99.9999 %"),
        (0, "0.0 %"),
    ],
)
def test_a_share_is_never_rounded_to_all(value: float, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize("names", [["run²", "1²"], ["1" * 5000, "2"], ["007", "7", "07a"]])
def test_any_name_has_its_place(names: list[str]) -> None:
    """A digit that is no decimal, and a number of more than 4,300 digits, ended the report."""
    assert sorted(sorted(names), key=natural)


def test_a_death_that_no_log_explains_is_neither_a_failure_nor_a_mistake() -> None:
    """It was counted among the deaths of brokers that had not failed."""
    (run,) = findings_of(digest(changes=[dead("c", "c-1", None, "log lost", 1, 0.0)])).runs
    assert run.verdict == (
        "3 brokers in 1 min 40 s, 1 crash, 1 partition, 1 death that no log explains, availability 98.0 %."
    )


def test_parts_that_began_together_are_told_with_their_own_sides() -> None:
    """The terminal showed the sides of the first one for all of them."""
    parts = [Part(RUN, no, at(60), at(70), "one-way", False) for no in (1, 2)]
    sides = [
        PartSide(RUN, 1, "a", 0),
        PartSide(RUN, 1, "c", 1),
        PartSide(RUN, 2, "b", 0),
        PartSide(RUN, 2, "c", 1),
    ]
    said = text_of(findings_of(digest(parts=parts, part_sides=sides)))
    assert "broker-10 did not hear broker-1" in said and "broker-2 did not hear broker-1" in said
    assert said.count("one-way cut") == 2


def test_times_of_the_terminal_name_their_zone() -> None:
    """Nothing said that --around takes UTC, and that these times are."""
    holes = [Holes(RUN, "b", 2, 40, at(10), at(20))]
    said = text_of(findings_of(digest(holes=holes)))
    assert re.search(r"time \(UTC\) +what +brokers", said)
    assert re.search(r"lacks 40 rows, longest from \S+ to \S+ UTC: what", said)


def test_uncounted_messages_are_not_zero() -> None:
    nothing = {"published": None, "delivered": None, "dropped": None}
    found = findings_of(digest(brokers=[broker(node, node, **nothing) for node in "abc"], drops=[]))
    assert found.runs[0].traffic == {}
    assert "messages: not counted" in text_of(found)


def test_a_file_of_two_runs_has_its_bytes_once() -> None:
    rows = [FileRow(run, "a.jsonl", 1000, 5, 5, 0, 0, 0, 0, 0, at(0), at(9)) for run in (RUN, "south")]
    assert (quality := findings_of(digest(files=rows)).quality).bytes == 1000
    assert (quality.files, quality.lines) == (1, 10)


def test_damaged_files_are_named_with_what_was_read_of_them() -> None:
    early = "its compressed data end early"
    rows = [
        FileRow(run, "a [x].jsonl.gz", 1000, n, n - 1, 1, 0, 0, 0, 0, at(0), at(9), early)
        for run, n in ((RUN, 2), ("south", 1))
    ]
    rows += [
        FileRow(None, f"{n}.parquet", 9, 1, 0, 1, 0, 0, 0, 0, None, None, "it is cut off, or not Parquet")
        for n in range(10)
    ]
    found = findings_of(digest(files=rows))
    first, *_, last = [each.sentence for each in found.quality.damaged]
    assert first == "0.parquet is damaged: it is cut off, or not Parquet; no row of it could be read"
    assert last == "a [x].jsonl.gz is damaged: its compressed data end early; 1 row of it could be read"
    said = text_of(found)
    assert first in said and "5 more files damaged; the report names them" in said
    assert last in text_of(findings_of(digest(files=rows[:2])))
    assert found.as_json()["quality"]["damaged"][-1] == {"file": rows[0].file, "damage": early, "rows": 1}


def test_brokers_without_a_log_are_named() -> None:
    """The log of one broker alone was reported as if all was known."""
    found = findings_of(digest(brokers=[broker("b", "oslo")]))
    assert found.runs[0].unlogged == ["a", "c"]
    assert found.verdict.endswith("but 2 brokers left no log: what nobody else saw is unknown.")
    assert "no log of a, c: what is known of them comes from the logs of others" in text_of(found)
    found = findings_of(digest(brokers=[broker("b", "oslo"), broker("c", "rome")]))
    assert "no log of a: what is known of it comes from the logs of others" in text_of(found)
