"""Two runs that diverge are shown at the first line in which they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulations.faults import Fault
from simulations.kernel.history import CHECKPOINT_LINES, History
from simulations.runs import diffing
from simulations.runs.diffing import HEAD, Recorded, Run, TraceError, TraceFile, diff, first_different, record
from simulations.scenario import Scenario, Workload

SMALL = Scenario("small", brokers=2, warm_s=0.0, quiet_s=1.0, workload=Workload(publishers=1, subscribers=1))


def trace(path: Path, *lines: str, head: str = f'{HEAD}{{"format": 2}}') -> TraceFile:
    path.write_text("".join(f"{line}\n" for line in (head, *lines)))
    return TraceFile(path)


@pytest.mark.parametrize("parted", range(8))
def test_the_first_checkpoint_that_differs_is_found(parted: int) -> None:
    one = [str(number) for number in range(7)]
    other = [*one[:parted], *("x" for _ in one[parted:])]
    assert first_different(one, other) == parted


def test_histories_in_files_are_compared_line_by_line(tmp_path: Path) -> None:
    one = trace(tmp_path / "one", "a", "b", "c", "d", "e")
    same = trace(tmp_path / "same", "a", "b", "c", "d", "e")
    other = trace(tmp_path / "other", "a", "b", "c", "d", "x", "y", "z", "z")
    short = trace(tmp_path / "short", "a", "b")
    assert diff(one, same).line is None
    found = diff(one, other)
    assert (found.line, found.one, found.other) == (5, ("e",), ("x", "y", "z"))
    assert found.before == ("b", "c", "d")
    ended = diff(one, short)
    assert (ended.line, ended.one, ended.other) == (3, ("c", "d", "e"), ()) and "it has ended" in str(ended)


COMMON = (
    "0|world|fault|start broker-1",
    "5000000|broker-1|turn|1",
    "1000000000|world|fault|crash broker-2",
    *(f"{1_000_000_000 + number}|broker-3|turn|2" for number in range(10)),
)


def test_histories_of_different_programs_are_named_as_such(tmp_path: Path) -> None:
    one = trace(tmp_path / "one", "a", head=f'{HEAD}{{"format": 2, "python": "3.11.7", "code": "ab"}}')
    other = trace(tmp_path / "other", "b", head=f'{HEAD}{{"format": 2, "python": "3.11.7", "code": "cd"}}')
    assert "part at line 1; they were written by code ab and cd\n" in str(diff(one, other))


def test_the_events_before_the_difference_are_shown_for_people(tmp_path: Path) -> None:
    one = trace(tmp_path / "one", *COMMON, "2500000001|broker-1|data|9>|8|2f604ce4")
    other = trace(tmp_path / "other", *COMMON, "2500000002|broker-1|rst|9>")
    assert str(diff(one, other)).splitlines() == [
        "they part at line 14",
        "  what was done to both:",
        "      0.000000000 s  world: DONE: start broker-1",
        "      1.000000000 s  world: DONE: crash broker-2",
        "  the last of both:",
        "      0.005000000 s  broker-1: a turn of its event loop, 1 callbacks",
        *(
            f"      1.00000000{number} s  broker-3: a turn of its event loop, 2 callbacks"
            for number in (7, 8, 9)
        ),
        f"  then {one.name}:",
        "      2.500000001 s  broker-1: 8 bytes arrive on connection 9>, checksum 2f604ce4",
        f"  then {other.name}:",
        "      2.500000002 s  broker-1: connection 9> is reset",
    ]


def test_faults_long_before_the_difference_are_shown() -> None:
    crashed = replace(SMALL, safety_s=8.0, faults=(Fault(0.0, "crash", ("broker-2",)),))
    later = replace(crashed, faults=(*crashed.faults, Fault(6.0, "reset", ("broker-1",))))
    found = diff(Run(crashed, 5), Run(later, 5))
    assert any(line.endswith("|world|fault|crash broker-2") for line in found.faults)
    assert found.other[0].endswith("|world|fault|reset broker-1")
    shown = found.as_json()
    assert shown["line"] == found.line and not shown["same"] and shown["other"] == list(found.other)


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ("12|broker-1|turn|", "is no history; mesh simulate SCENARIO --trace FILE writes one"),
        (f'{HEAD}{{"format": 9}}', "its format is 9, and this program reads 2"),
        (f"{HEAD}nothing", "is no history: Expecting value"),
        (f"{HEAD}[]", "is no history: its first line says nothing of it"),
    ],
)
def test_a_file_of_something_else_is_one_sentence(tmp_path: Path, head: str, sentence: str) -> None:
    good, bad = trace(tmp_path / "good", "a"), trace(tmp_path / "bad", "a", head=head)
    with pytest.raises(TraceError, match="bad:") as caught:
        diff(good, bad)
    assert sentence in str(caught.value)


def test_a_truncated_history_is_one_sentence(tmp_path: Path) -> None:
    good, torn = trace(tmp_path / "good", "a", "b"), trace(tmp_path / "torn", "a", "b")
    torn.path.write_bytes(torn.path.read_bytes()[:-1])
    with pytest.raises(TraceError, match="torn:3: ends within a line: the writing of it was broken off"):
        diff(good, torn)


def test_a_file_that_is_no_text_is_no_history(tmp_path: Path) -> None:
    good, bad = trace(tmp_path / "good", "a"), trace(tmp_path / "bad", "a")
    bad.path.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(TraceError, match="bad: is no history: it is not even text"):
        diff(good, bad)


def test_only_requested_lines_are_kept_and_the_hash_stays() -> None:
    whole, some = History(keep=True), History()
    some.keep_lines(CHECKPOINT_LINES + 1, CHECKPOINT_LINES + 3)
    for history in (whole, some):
        for number in range(3 * CHECKPOINT_LINES):
            history.record(number, "here", "turn", "")
            if number % 700 == 0:
                assert history.digest
    assert whole.digest == some.digest and whole.kept is not None
    assert some.kept == whole.kept[CHECKPOINT_LINES : CHECKPOINT_LINES + 3]


def test_a_run_is_the_same_under_another_hash_seed_and_traced() -> None:
    found = diff(Run(SMALL, 5, hash_seed=1), Run(SMALL, 5, hash_seed=2, keeps=True))
    assert found.line is None and str(found).startswith("the same: small@5 (PYTHONHASHSEED=1) and")


def test_runs_of_two_seeds_diverge_at_the_line_that_their_whole_histories_show() -> None:
    one, other = Run(SMALL, 5), Run(SMALL, 6)
    found = diff(one, other)
    left, right = (record(each, (1, 10**9)).kept for each in (one, other))
    expected = next(n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    assert found.line == expected + 1
    assert (found.one[0], found.other[0]) == (left[expected].rstrip(), right[expected].rstrip())


def test_runs_that_diverge_late_are_kept_only_between_two_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows: list[Any] = []

    def stand_in(run: Run, window: tuple[int, int] | None = None) -> Recorded:
        windows.append(window)
        kept = ("1|a|turn|1\n", f"{run.seed}\n") if window else ()
        return Recorded(str(run.seed), 3000, ("a", "b", str(run.seed)), kept)

    monkeypatch.setattr(diffing, "record", stand_in)
    found = diff(Run(SMALL, 1), Run(SMALL, 2))
    assert windows == [None, None, (1001, 3000), (1001, 3000)]
    assert (found.line, found.one, found.other, found.before) == (1002, ("1",), ("2",), ("1|a|turn|1",))


def test_a_difference_that_does_not_recur_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(run: Run, window: tuple[int, int] | None = None) -> Recorded:
        return Recorded(str(run.hash_seed), 1000, (str(run.hash_seed),), ("same\n",) if window else ())

    monkeypatch.setattr(diffing, "record", stand_in)
    shown = str(diff(Run(SMALL, 1), Run(SMALL, 1, hash_seed=2)))
    assert "part at line 1 to 1000; played once more they did not" in shown


def test_a_run_that_cannot_be_played_says_why() -> None:
    crowd = Scenario("crowd", brokers=1000)
    with pytest.raises(ValueError, match="crowd@1 .*could not be played: .*1000 brokers"):
        record(Run(crowd, 1))
