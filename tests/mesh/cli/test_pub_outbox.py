"""``mesh pub --outbox`` as a process: what it keeps goes with the next one that finds a broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mesh import Broker, Client

pytestmark = pytest.mark.process


def pub(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mesh", "pub", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)


async def test_messages_of_runs_without_a_broker_are_stored_by_the_next_run_with_one(
    tmp_path: Path,
) -> None:
    outbox = str(tmp_path / "shell.outbox")
    nowhere = ("--outbox", outbox, "--url", "tcp://127.0.0.1:1", "--timeout", "1.5")
    first = await asyncio.to_thread(pub, "jobs.a", "1", *nowhere)
    assert first.returncode == 75
    assert first.stdout == "outbox topic=jobs.a broker=- seq=1\n"
    assert f"1 message(s) wait in the outbox {outbox} after 1.5 s: no broker at" in first.stderr
    assert len(first.stderr.splitlines()) == 1, "the reason is told once"
    second = await asyncio.to_thread(pub, "jobs.a", "-", "--json", *nowhere, stdin="2\n3\n")
    assert second.returncode == 75
    assert sum(json.loads(line)["count"] for line in second.stdout.splitlines()) == 2
    assert "3 message(s) wait" in second.stderr
    async with Broker(name="home", listen="tcp://127.0.0.1:0", state_dir=tmp_path / "home") as broker:
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail") as jobs:
            found = ("--outbox", outbox, "--url", broker.url, "--timeout", "60")
            third = await asyncio.to_thread(pub, "jobs.a", "4", "--level", "outbox", *found)
            assert (third.returncode, third.stderr) == (0, "")
            for body in (b"1", b"2", b"3", b"4"):
                job = await anext(jobs)
                assert bytes(job.body) == body and job.done()


@pytest.mark.parametrize("wrong", [("--level", "outbox"), ("--level", "stored", "--outbox", "o")])
def test_level_outbox_and_its_file_go_together(wrong: tuple[str, ...], tmp_path: Path) -> None:
    ran = pub("t", "x", *wrong, "--url", "tcp://127.0.0.1:1")
    assert ran.returncode == 64 and "--outbox PATH and level outbox go together" in ran.stderr


def test_an_empty_path_is_a_usage_error() -> None:
    """It was called a fault of the program."""
    ran = pub("t", "x", "--outbox", "", "--url", "tcp://127.0.0.1:1")
    assert ran.returncode == 64 and ran.stderr == "mesh pub: --outbox is empty; it is the path of a file\n"
