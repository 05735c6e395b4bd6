"""`mesh analyze` as a command: exit codes and sentences. Spark is needed by the last test only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.cli.app import main
from tests.mesh.analysis.synthetic import demo_mesh, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_missing_folder_ends_with_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path / "nowhere")]) == 66
    said = capsys.readouterr().err
    assert said.startswith(f"mesh analyze: there is no folder {tmp_path / 'nowhere'}; name the one that ")


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
    assert "the analysis needs pyspark (pip install 'mangrove-mesh[analysis]')" in capsys.readouterr().err


@pytest.mark.spark
def test_a_summary_is_printed_with_the_reports_path(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_logs(demo_mesh(), tmp_path / "logs")
    arguments = ["analyze", str(tmp_path / "logs"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "2 failures, 2 rejoins, 5 leaves and no partition" in said
    assert str(tmp_path / "out" / "report.html") in said


@pytest.mark.spark
def test_garbage_ends_with_bad_data(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("garbage\n")
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == 65
    assert "not one of 1 lines" in capsys.readouterr().err
