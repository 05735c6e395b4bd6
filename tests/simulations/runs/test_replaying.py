"""A failure in a file can be repeated, and a file of another program is recognised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulations.faults import Fault
from simulations.invariants import Verdict
from simulations.runs import playing, replaying
from simulations.runs.replaying import Failure, Replay, failing, failure_of, read, replay, write
from simulations.scenario import Expectation, Scenario, Workload
from simulations.scenarios import scenario_file
from simulations.scenarios.scenario_file import ScenarioFileError
from tests.simulations.broken import play_blind

SMALL = Scenario(
    "small",
    brokers=3,
    warm_s=1.0,
    quiet_s=1.0,
    workload=Workload(publishers=1, subscribers=1, pause_s=0.2),
    faults=(Fault(3.0, "power_off", ("1 of brokers",), for_s=8.0),),
)


@pytest.fixture(scope="module")
def failure() -> Failure:
    return failure_of(play_blind(SMALL, seed=3))


def test_a_failure_survives_its_file_and_is_reproduced_exactly(failure: Failure, tmp_path: Path) -> None:
    path = tmp_path / "failure.toml"
    path.write_text(write(failure, "a remark\nin \x1blines"))
    assert path.read_text().startswith("# a remark\n# in ?lines\n")
    found = read(path)
    assert found == failure and not found.strangers
    again = replay(found, play=play_blind)
    assert again.exact and str(again).startswith(f"reproduced exactly, history {failure.history_hash}: ")
    assert failure.violation in str(again)
    assert scenario_file.read(path) == failure.scenario  # and it is a scenario like any other


def test_a_fixed_failure_says_so(failure: Failure) -> None:
    mended = replay(replace(failure, code="elsewhere"))
    assert mended.again is None and not mended.broken
    assert str(mended).startswith("another run, by other code")
    assert str(mended).endswith(f"{failure.check} does not fail any more")


def test_the_same_code_with_another_history_is_reported_as_not_reproducible(failure: Failure) -> None:
    found = Replay(replace(failure, history_hash="00" * 16), play_blind(failure.scenario, seed=3))
    assert found.broken and str(found).startswith("NOT THE SAME RUN")


def test_a_file_written_by_another_python_or_code_says_so(failure: Failure) -> None:
    stranger = replace(failure, python="3.99.1", code="abc")
    assert "Python 3.99.1 and not" in stranger.strangers and "other code (abc" in stranger.strangers


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("format = 1", "format = 9", "its format is 9, and this program reads 1"),
        ("seed = 3", 'seed = "3"', "seed of the failure is '3'"),
        ("python = ", "snake = ", "python of the failure is missing"),
        ('check = "detected"', 'check = "detectd"', "there is no check 'detectd'; did you mean 'detected'?"),
        ("[failure]", "[failures]", "there is no field 'failures' in a scenario"),
    ],
)
def test_a_file_of_another_version_is_one_sentence_with_its_line(
    failure: Failure, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    path = tmp_path / "failure.toml"
    text = write(failure)
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ScenarioFileError, match=r"failure\.toml:\d+: ") as caught:
        read(path)
    assert sentence in str(caught.value)


def test_a_scenario_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "plain.toml"
    path.write_text('name = "plain"\n')
    with pytest.raises(ScenarioFileError, match=r"there is no \[failure\] in it"):
        read(path)


def test_a_check_without_a_subject_comes_after_one_with_a_violation() -> None:
    empty, full = (
        Verdict("one", "0", ("there is no round to look at",), 0, empty=True),
        Verdict("two", "3", ("wrong",), 3),
    )
    assert failing((empty, full)) is full
    assert failing((empty,)) is empty
    assert failing((empty, full), "one") is empty
    assert failing((Verdict("one", "0", ("it was not seen",), 0),), "one") is not None
    assert failing((Verdict("one", "1", ()),)) is None


def test_a_failure_of_a_check_without_a_subject_is_reproduced(tmp_path: Path) -> None:
    path = tmp_path / "nothing.toml"
    nobody_dies = replace(SMALL, faults=(), expect=(Expectation("detected"),))
    path.write_text(write(failure_of(playing.play(nobody_dies, seed=3))))
    again = replay(read(path))
    assert str(again).endswith("detected fails: there is no death noticed to look at")


def test_the_fingerprint_is_of_the_code_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mesh").mkdir()
    source = tmp_path / "mesh" / "broker.py"
    source.write_text("one")
    monkeypatch.setattr(replaying, "ROOT", tmp_path)
    prints = []
    for text in ("one", "one", "two"):
        source.write_text(text)
        prints.append(replaying.fingerprint.__wrapped__())
    assert prints[0] == prints[1] != prints[2]
