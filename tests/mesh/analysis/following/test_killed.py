"""`mesh analyze --follow` as a process, killed between write and commit while brokers write: each row counts
once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
pytest.importorskip("pyarrow", reason="a source of our own needs pyarrow")

from mesh.analysis.reading.reduced import MANIFEST, Manifest, Store
from mesh.analysis.results.folder import REDUCED, open_place
from tests.mesh.analysis.cluster.test_ending import javas
from tests.mesh.analysis.reading.test_reduced import tables
from tests.mesh.analysis.synthetic import Broker, Mesh, write_logs
from tests.support.children import ends_with_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(900)]

WAIT_S = 600.0
LOOK_S = 0.02
PIECE = 300
"""Bytes that a broker writes at once, rarely the end of a line."""
STORY = Mesh(
    [
        Broker("alpha", [(0.0, 20.0, "leave")]),
        Broker("beta", [(0.4, 9.3, "kill"), (12.1, 20.5, "leave")]),
        Broker("gamma", [(0.8, 19.0, "leave")]),
    ]
)


class Writer:
    """Brokers that write their logs a piece at a time, cut anywhere. Each finishes a file in the middle and
    at the end. A killed one ends in half a line, and its last file keeps its ``.part``."""

    def __init__(self, logs: Path, scratch: Path) -> None:
        logs.mkdir()
        write_logs(STORY, scratch)
        self._rng = random.Random(1)
        self._brokers = [
            self._write(logs / path.name.partition(".")[0], path.read_bytes(), path.suffix == ".part")
            for path in sorted(scratch.iterdir())
        ]
        self._size = sum(path.stat().st_size for path in scratch.iterdir())
        self._written = 0

    def _write(self, stem: Path, text: bytes, killed: bool) -> Iterator[None]:
        middle = text.index(b"\n", len(text) // 2) + 1
        for number, content in enumerate((text[:middle], text[middle:])):
            growing = stem.with_name(f"{stem.name[:-1]}{number}.jsonl.part")
            at = 0
            while at < len(content):
                piece = content[at : at + self._rng.randint(1, PIECE)]
                with growing.open("ab") as file:
                    file.write(piece)
                at += len(piece)
                self._written += len(piece)
                yield
            if not (killed and number):
                growing.rename(growing.with_suffix(""))

    def write_up_to(self, share: float) -> bool:
        """One piece of one broker. False if this share of everything is written."""
        if self._written >= share * self._size and share < 1:
            return False
        while self._brokers:
            broker = self._rng.choice(self._brokers)
            if next(broker, broker) is None:
                return True
            self._brokers.remove(broker)
        return False


class Followed:
    """The command as a process that is started again and again, and what it leaves behind."""

    def __init__(self, logs: Path, out: Path, scratch: Path) -> None:
        self._command = ["mesh", "analyze", str(logs), "--follow", "--json", "--out", str(out)]
        self._reduced = out / REDUCED
        self._scratch = scratch
        self._said = scratch / "said.txt"

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *self._command, "--memory", "1g"]
        with self._said.open("ab") as said:
            return subprocess.Popen(
                ends_with_tests(command),
                env={**os.environ, "TMPDIR": str(self._scratch)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def pictures(self) -> list[Any]:
        """What it printed, of which the last line may not be whole yet. A traceback is no JSON."""
        *whole, _ = self._said.read_text().split("\n")
        return [json.loads(line) for line in whole]

    def batch(self, number: int) -> Path:
        return self._reduced / f"{number:09d}-{number:09d}"

    def stop_at_commit(self, batch: Path) -> None:
        """Let the process stop for ever where it opens the manifest, which is a pipe that nobody reads."""
        pipe = batch / f".{MANIFEST}.new"
        if batch.exists() and not pipe.exists():
            os.mkfifo(pipe)

    def committed(self) -> int:
        return len(self._manifests())

    def covers(self, logs: Path) -> bool:
        """True if the manifests say that every whole line of every file is stored."""
        stored: dict[str, int] = {}
        for manifest in self._manifests():
            seen = msgspec.json.decode(manifest.read_bytes(), type=Manifest).seen
            stored.update((each.stem, each.covered) for each in seen)
        texts = {path.name.removesuffix(".part"): path.read_bytes() for path in logs.iterdir()}
        return stored == {stem: text.rfind(b"\n") + 1 for stem, text in texts.items()}

    def _manifests(self) -> list[Path]:
        return sorted(self._reduced.glob(f"*/{MANIFEST}"))


def wait_a_look(follower: subprocess.Popen[bytes]) -> None:
    assert follower.poll() is None, "the follower ended"
    time.sleep(LOOK_S)


def test_a_follower_killed_between_write_and_commit_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's file source doubled 1 982 rows of 8 679, or missed the killed broker's last 79."""
    logs, out, scratch = tmp_path / "logs", tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    writer = Writer(logs, tmp_path / "whole")
    followed = Followed(logs, out, scratch)

    def kill_at_commit(number: int, share: float) -> None:
        """Start it, and kill it when a batch is written completely and its commit is not."""
        process = followed.start()
        batch = followed.batch(number)
        try:
            while followed.committed() < number - 1:
                wait_a_look(process)
                writer.write_up_to(share - 0.2)
            while not (batch / "periods" / "_SUCCESS").exists():
                wait_a_look(process)
                followed.stop_at_commit(batch)
                writer.write_up_to(share)
        finally:
            process.kill()
            process.wait()
        assert not (batch / MANIFEST).exists()
        assert followed.committed() == number - 1

    kill_at_commit(1, 0.4)
    kill_at_commit(2, 0.8)  # the first batch is committed, the second is not
    process = followed.start()
    try:
        while writer.write_up_to(1.0) or not followed.covers(logs):
            wait_a_look(process)
        while followed.pictures()[-1]["stopped"] != ["alpha", "beta", "gamma"]:
            wait_a_look(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 143
    finally:
        process.kill()
        process.wait()
    assert followed.pictures(), "no traceback of py4j or of Spark's server of counters among the lines"

    while javas(scratch):  # those of the killed ones end by themselves
        time.sleep(LOOK_S)
    stored = Store(spark, open_place(spark, str(out / REDUCED)))
    monkeypatch.setattr(stored, "append", lambda *arguments: pytest.fail("rows are read a second time"))
    found = tables(spark, logs, stored)
    assert found == tables(spark, logs), "a batch analysis reads the same rows"
    lines = [path.read_bytes().splitlines(keepends=True) for path in logs.iterdir()]
    assert sum(row["rows"] for row in found["files"]) == sum(len(each) for each in lines) - 1
    assert sum(row["duplicates"] + row["gaps"] for row in found["files"]) == 0
    assert sum(row["corrupt"] for row in found["files"]) == 1, "the half line of the broker that was killed"
