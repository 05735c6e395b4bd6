"""`mesh analyze` as a command: exit codes and sentences. Only the last test needs Spark."""

from __future__ import annotations

import errno
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

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
        ([""], 64, "LOGDIR is empty; name a folder of event logs"),
        (["logs", "--out", ""], 64, "--out is empty; name a folder or a URL"),
        (["logs", "--memory", "1k"], 64, "--memory 1k is too little for Spark; use 512m or more"),
        (["logs", "--memory", "2"], 64, "--memory 2 is too little for Spark; use 512m or more"),
        (["logs", "--memory", "100m"], 64, "--memory 100m is too little for Spark; use 512m or more"),
        (["logs", "--doctor"], 64, "--doctor does nothing else; leave out LOGDIR"),
        (["--doctor", "--package", "p.zip"], 64, "--doctor does nothing else; leave out --package"),
        (["--doctor", "--follow"], 64, "--doctor does nothing else; leave out --follow"),
        (["--doctor", "--json"], 64, "--doctor does nothing else; leave out --json"),
        (["--doctor", "--window", "0"], 64, "--doctor does nothing else; leave out --window"),
        (["--doctor", "--conf", "spark.a=1"], 64, "--doctor does nothing else; leave out --conf"),
        (["logs", "--package", "p.zip"], 64, "--package does nothing else; leave out LOGDIR"),
        (["--package", "p.zip", "--follow"], 64, "--package does nothing else; leave out --follow"),
        (["logs", "--around", "12:00:00"], 64, "--around says what goes into a scenario"),
        (["logs", "--run", "north"], 64, "--run says what goes into a scenario"),
        (
            ["logs", "--within", "5"],
            64,
            "--within has no effect without --around; name a time with --around",
        ),
        (["logs", "--scenario", "s.toml", "--within", "5"], 64, "--within has no effect without --around"),
        (["logs", "--timeout", "5"], 64, "--timeout has no effect without --follow; add"),
        (["logs", "--follow", "--timeout", "nan"], 64, "--timeout nan is not a number of seconds"),
        (["logs", "--follow", "--timeout", "-1"], 64, "--timeout -1 is not a number of seconds"),
        (["logs", "--follow", "--timeout", "0"], 64, "above zero and at most 2592000 (30 days)"),
        (["logs", "--follow", "--timeout", "1e9"], 64, "--timeout 1e+09 is not a number of seconds"),
        (["logs", "--follow", "--scenario", "s.toml"], 64, "--scenario has no effect with --follow"),
        (["logs", "--follow", "--run", "north"], 64, "--run has no effect with --follow"),
        (["logs", "--follow", "--around", "12:00"], 64, "--around has no effect with --follow"),
        (["logs", "--follow", "--within", "5"], 64, "--within has no effect with --follow"),
        (["logs", "--follow", "--window", "5"], 64, "--window has no effect with --follow"),
        (["logs", "--scenario", "s.toml", "--around", "yesterday"], 64, "--around 'yesterday' is not a time"),
        (
            ["logs", "--scenario", "none/s.toml"],
            73,
            "none/s.toml cannot be written: No such file or directory; make",
        ),
        (["logs", "--scenario", "file/s.toml"], 73, "file/s.toml cannot be written: Not a directory"),
        (["logs", "--scenario", "logs"], 73, "--scenario logs is a folder; name a file"),
        (["logs", "--conf", "spark"], 64, "--conf "),
        (["logs", "--window", "0"], 64, "a window of 0 s"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_spark_starts(
    arguments: list[str],
    code: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some were ignored without a word, and others refused after the whole analysis."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mesh.analysis.cluster.session.prepare_environment", _no_spark)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text("{}\n")
    (tmp_path / "file").touch()
    assert main(["analyze", *arguments]) == code
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "file"}


def _no_spark(environ: object, *, local: bool) -> None:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EROFS, 77), (errno.EACCES, 77), (errno.ENOSPC, 74), (errno.ENAMETOOLONG, 73)]
)
def test_a_scenario_that_cannot_be_written_is_refused_with_the_reason(
    number: int,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    opened = os.open

    def refused(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith("s.toml"):
            raise OSError(number, os.strerror(number), path)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refused)
    assert main(["analyze", str(tmp_path), "--scenario", str(tmp_path / "s.toml")]) == code
    assert f"s.toml cannot be written: {os.strerror(number)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a.jsonl"], "the only event log in {logs} is empty"),
        (["a.jsonl", "b/c.jsonl.part"], "all 2 event logs in {logs} are empty"),
    ],
)
def test_empty_logs_end_with_no_input(
    names: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "the 1 event logs", after the start of Spark."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == 66
    assert capsys.readouterr().err == f"mesh analyze: {sentence.format(logs=tmp_path)}\n"


def test_a_scenario_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.toml"
    kept.write_text("mine")
    assert main(["analyze", str(tmp_path), "--scenario", str(kept)]) == 73
    assert "exists; name another file" in capsys.readouterr().err
    assert kept.read_text() == "mine"


def test_a_package_replaces_only_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It wrote over any file, such as a log."""
    package, mine, other = tmp_path / "mangrove.zip", tmp_path / "a.jsonl", tmp_path / "other.zip"
    for _ in range(2):
        assert main(["analyze", "--package", str(package)]) == 0
    mine.write_text("mine")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("mine.py", "")
    for kept in (mine, other):
        before = kept.read_bytes()
        capsys.readouterr()
        assert main(["analyze", "--package", str(kept)]) == 73
        said = capsys.readouterr().err
        assert said == (
            f"mesh analyze: --package {kept} exists and is no package of mesh analyze; "
            "name another file, or remove it\n"
        )
        assert kept.read_bytes() == before
    assert main(["analyze", "--package", str(tmp_path)]) == 73
    assert f"--package {tmp_path} is a folder; name a file" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"mangrove.zip", "a.jsonl", "other.zip"}


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
