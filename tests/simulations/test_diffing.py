"""Two runs that part are shown at the first line in which they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulations import diffing
from simulations.diffing import HEAD, Recorded, Run, TraceError, TraceFile, diff, first_different, record
from simulations.history import CHECKPOINT_LINES, History
from simulations.scenario import Scenario, Workload

SMALL = Scenario("small", brokers=2, warm_s=0.0, quiet_s=1.0, workload=Workload(publishers=1, subscribers=1))


def trace(path: Path, *lines: str, head: str = f'{HEAD}{{"format": 1}}') -> TraceFile:
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
    other = trace(tmp_path / "other", "a", "b", "c", "d", "x")
    short = trace(tmp_path / "short", "a", "b")
    assert diff(one, same).line is None
    found = diff(one, other)
    assert (found.line, found.one, found.other, found.before) == (5, "e", "x", ("b", "c", "d"))
    ended = diff(one, short)
    assert (ended.line, ended.one, ended.other) == (3, "c", "") and "(it has ended)" in str(ended)


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ("12|broker-1|turn|", "is no history; mesh simulate SCENARIO --trace FILE writes one"),
        (f'{HEAD}{{"format": 9}}', "its format is 9, and this program reads 1"),
        (f"{HEAD}nothing", "is no history: Expecting value"),
    ],
)
def test_a_file_of_something_else_is_one_sentence(tmp_path: Path, head: str, sentence: str) -> None:
    good, bad = trace(tmp_path / "good", "a"), trace(tmp_path / "bad", "a", head=head)
    with pytest.raises(TraceError, match="bad:") as caught:
        diff(good, bad)
    assert sentence in str(caught.value)


def test_only_the_lines_asked_for_are_kept_and_the_hash_stays() -> None:
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


def test_runs_of_two_seeds_part_at_the_line_that_their_whole_histories_show() -> None:
    one, other = Run(SMALL, 5), Run(SMALL, 6)
    found = diff(one, other)
    left, right = (record(each, (1, 10**9)).kept for each in (one, other))
    expected = next(n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    assert found.line == expected + 1
    assert (found.one, found.other) == (left[expected].rstrip(), right[expected].rstrip())


def test_runs_that_part_late_are_kept_only_between_two_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[Any] = []

    def stand_in(run: Run, window: tuple[int, int] | None = None) -> Recorded:
        windows.append(window)
        kept = ("same\n", f"{run.seed}\n") if window else ()
        return Recorded(str(run.seed), 3000, ("a", "b", str(run.seed)), kept)

    monkeypatch.setattr(diffing, "record", stand_in)
    found = diff(Run(SMALL, 1), Run(SMALL, 2))
    assert windows == [None, None, (2001, 3000), (2001, 3000)]
    assert (found.line, found.one, found.other, found.before) == (2002, "1", "2", ("same",))


def test_what_is_not_seen_again_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(run: Run, window: tuple[int, int] | None = None) -> Recorded:
        return Recorded(str(run.hash_seed), 1000, (str(run.hash_seed),), ("same\n",) if window else ())

    monkeypatch.setattr(diffing, "record", stand_in)
    shown = str(diff(Run(SMALL, 1), Run(SMALL, 1, hash_seed=2)))
    assert "part at line 1 to 1000; played once more they did not" in shown


def test_a_run_that_cannot_be_played_says_why() -> None:
    crowd = Scenario("crowd", brokers=1000)
    with pytest.raises(ValueError, match="crowd@1 .*could not be played: .*1000 brokers"):
        record(Run(crowd, 1))
