"""Which files of a folder are event logs that can be read."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from mesh.analysis.pipeline import analyse
from mesh.analysis.reading.finding import RESULTS, NoLogs, NotReadable, is_skipped


@pytest.mark.parametrize(
    ("path", "skipped"),
    [
        ("a-1.jsonl", False),
        ("_a-1.jsonl", True),
        ("_east/a-1.jsonl", True),
        ("_day=3/a.jsonl.gz", False),
        ("._a-1.jsonl", False),
        (".old/_a-1.jsonl", False),
        ("lake/_delta_log/10.checkpoint.parquet", False),
    ],
)
def test_a_log_that_only_spark_holds_for_hidden_is_known(path: str, skipped: bool) -> None:
    assert is_skipped(PurePath(path)) is skipped


def test_a_log_that_spark_would_pass_over_is_told(tmp_path: Path) -> None:
    """The log of a broker named _edge was not read, and nothing said so."""
    for name in ("hub-1.jsonl", "_edge-1.jsonl.part"):
        (tmp_path / "logs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "logs" / name).write_text("{}\n")
    with pytest.raises(NoLogs, match=r"begins with _, such as .*/_edge-1.jsonl.part; rename it"):
        analyse(tmp_path / "logs", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "is_result"),
    [
        ("mesh-report/0123456789abcdef/tables/lives/part-0.parquet", True),
        ("reduced/000000001-000000016/rows/part-0.parquet", True),
        ("tables/a.parquet", False),
        ("0123456789abcdef-0.jsonl", False),
    ],
)
def test_results_below_the_logs_are_no_logs(name: str, is_result: bool) -> None:
    """`mesh analyze .` took the tables of the run before for logs."""
    assert (RESULTS.search(name) is not None) is is_result


def test_a_folder_may_be_named_from_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder below ~ passed the check and was then not found; an unknown user was a traceback."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    with pytest.raises(NoLogs, match=f"{tmp_path}/logs holds no event log"):
        analyse("~/logs", "~/out")
    with pytest.raises(NoLogs, match="there is no folder ~nobody-of-this-name/logs"):
        analyse("~nobody-of-this-name/logs", "~nobody-of-this-name/out")


@pytest.mark.parametrize("closed", ["logs", "logs/east", "logs/east/a-1.jsonl.part"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_log_that_may_not_be_read_is_refused(
    closed: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark took it for a file that was gone. The analysis lacked a broker, and nothing said so."""
    for name in ("b-1.jsonl", "east/a-1.jsonl.part", "east/notes.txt"):
        (tmp_path / "logs" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "logs" / name).write_text("{}\n")
    refused = {str(tmp_path / closed), str(tmp_path / "logs/east/notes.txt")}
    right = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in refused and right(path, mode))
    with pytest.raises(NotReadable, match=f"{tmp_path / closed}: Permission denied; run it as a user"):
        analyse(f"{scheme}{tmp_path}/logs", tmp_path / "out")
