"""`mesh analyze --follow` as a command: one sentence and one exit code for each mistake, and for a full
disk."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.analysis.following.command import Timed
from mesh.analysis.following.health import Health, Picture
from mesh.analysis.reading.reduced import MANIFEST
from mesh.analysis.results.folder import LOCK, LocalPlace
from mesh.cli.app import main
from tests.mesh.analysis.reading.test_logs import SMALL
from tests.mesh.analysis.synthetic import write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def follow(logs: Path, out: Path, *arguments: str) -> int:
    return main(["analyze", str(logs), "--follow", "--json", "--out", str(out), *arguments])


def test_a_folder_that_does_not_exist_yet_ends_with_no_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert follow(tmp_path / "nowhere", tmp_path / "out") == 66
    said = capsys.readouterr().err
    assert said.startswith("mesh analyze: --follow reads files of this machine, and ")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_cluster_cannot_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(tmp_path, tmp_path / "out", "--master", "spark://master:7077") == 64
    assert "leave --master away, or name local[N]" in capsys.readouterr().err


def test_a_second_follower_is_refused_before_it_starts_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert follow(tmp_path, tmp_path) == 73
    said = capsys.readouterr().err
    assert said == (
        f"mesh analyze: --out {tmp_path} is in use by another process; "
        "wait for that analysis to end, or name another folder\n"
    )


def test_a_timeout_counts_from_the_first_view_since_spark_takes_longer_to_start() -> None:
    """With --timeout 5 nothing was shown, and the exit code was 0."""
    now_s = 0.0
    shown: list[Picture] = []
    timed = Timed(shown.append, 5.0, lambda: now_s)
    now_s = 12.0
    assert not timed.ended()
    picture = Health().picture(now_s)
    timed.show(picture)
    now_s = 16.5
    timed.show(picture)
    assert not timed.ended()
    now_s = 17.0
    assert timed.ended()
    assert shown == [picture, picture]


def test_without_a_timeout_it_does_not_end() -> None:
    now_s = 0.0
    timed = Timed(lambda picture: None, None, lambda: now_s)
    timed.show(Health().picture(now_s))
    now_s = 1e9
    assert not timed.ended()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_full_disk_ends_it_with_a_sentence_and_commits_nothing(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="a source of our own needs pyarrow")

    def full(place: LocalPlace, name: str, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    logs, out = tmp_path / "logs", tmp_path / "out"
    write_logs(SMALL, logs)
    monkeypatch.setattr(LocalPlace, "write", full)
    assert follow(logs, out, "--timeout", "600") == 74
    assert list(out.glob(f"reduced/*/{MANIFEST}")) == []
    said = capfd.readouterr().err
    assert said == (
        f"mesh analyze: --out {out} cannot be written: No space left on device; "
        "the current result is unchanged\n"
    )
