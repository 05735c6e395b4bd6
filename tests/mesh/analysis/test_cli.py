"""`mesh analyze` as a command: exit codes and sentences. Only the last test needs Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mesh.analysis.reporting.findings import findings_of
from mesh.cli.app import main
from tests.mesh.analysis.reporting.tables_by_hand import digest


def test_a_missing_folder_ends_with_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path / "nowhere")]) == 66
    said = capsys.readouterr().err
    assert said.startswith(f"mesh analyze: there is no folder {tmp_path / 'nowhere'}; name the folder that ")


def test_an_empty_folder_ends_with_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == 66
    assert "holds no event log" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == 69
    assert "the analysis needs pyspark (pip install '.[analysis]' in a checkout)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 64, "it needs a folder of event logs"),
        (["logs", "--around", "12:00:00"], 64, "--around says what goes into a scenario"),
        (["logs", "--conf", "spark"], 64, "--conf "),
        (["logs", "--window", "0"], 64, "a window of 0 s"),
    ],
)
def test_flags_that_make_no_sense(
    arguments: list[str],
    code: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    assert main(["analyze", *arguments]) == code
    assert sentence in capsys.readouterr().err


def test_a_scenario_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.toml"
    kept.write_text("mine")
    assert main(["analyze", str(tmp_path), "--scenario", str(kept)]) == 73
    assert "exists; name another file" in capsys.readouterr().err
    assert kept.read_text() == "mine"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with a current one."""
    folder = tmp_path / "results"
    (folder / "0123456789abcdef").mkdir(parents=True)
    summary = json.dumps(findings_of(digest()).as_json())
    (folder / "0123456789abcdef" / "summary.json").write_text(summary)
    (folder / "current.json").write_text('{"format": 1, "no": 1, "current": "0123456789abcdef", "kept": []}')
    return folder


def test_diff_of_equal_results(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "diff", str(results), str(results / "0123456789abcdef")]) == 0
    assert capsys.readouterr().out == "no difference\n"


def test_diff_of_others(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps(findings_of(digest(parts=[], part_sides=[])).as_json()))
    assert main(["analyze", "diff", str(results), str(other), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {each["what"] for each in told["differences"]} == {"verdict", "part"}
    assert main(["analyze", "diff", str(results), str(other)]) == 1
    assert "complete at 60.0 s" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "code"), [(None, 66), ("{}", 65), ("half", 65), ("[]", 65)])
def test_diff_of_a_file_that_is_no_result(
    results: Path, tmp_path: Path, text: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    if text is not None:
        other.write_text(text)
    assert main(["analyze", "diff", str(results), str(other)]) == code
    assert capsys.readouterr().err.startswith("mesh analyze: ")
