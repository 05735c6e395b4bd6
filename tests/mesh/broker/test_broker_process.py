"""Brokers as processes: signals, ports, restarts and the contents of their folders."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.clients.client import Client
from tests.mesh.loopback import eventually, rows
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

LIMIT_S = 120.0
"""Time limit on a busy machine for work that takes three seconds on an idle one."""


class BrokerProcess:
    """``mesh broker`` in its own folder. A deadline of a second gives a busy machine time to answer."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.ports = folder / f"{name}.json"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, *arguments: str) -> dict[str, Any]:
        """Run until ready. Returns the content of the ports file."""
        self.ports.unlink(missing_ok=True)
        command = [sys.executable, "-m", "mesh", "broker", "--name", self.name]
        command += ["--ports-file", str(self.ports), "--log-dir", str(self.folder / "logs")]
        command += ["--state-dir", str(self.folder / "state"), "--period", "1", "--deadline", "1"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MANGROVE_")}
        self.process = subprocess.Popen(
            ends_with_tests([*command, *arguments]), cwd=self.folder, env=environment, stderr=subprocess.PIPE
        )
        await eventually(self.is_ready, f"{self.name} is ready")
        document: dict[str, Any] = json.loads(self.ports.read_text())
        return document

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None and self.process.stderr is not None:
            raise AssertionError(self.process.stderr.read().decode())
        return self.ports.exists()

    async def end(self, number: int) -> int:
        """Send a signal and wait for the end. Returns the exit code."""
        assert self.process is not None and self.process.stderr is not None
        self.process.send_signal(number)
        await eventually(lambda: self.process is None or self.process.poll() is not None, "it ended")
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        assert "Traceback" not in said, said
        code = self.process.returncode
        self.process = None
        return code


@asynccontextmanager
async def processes(folder: Path, *names: str) -> AsyncIterator[list[BrokerProcess]]:
    brokers = [BrokerProcess(folder, name) for name in names]
    try:
        yield brokers
    finally:
        for broker in brokers:
            if broker.process is not None:
                await broker.end(signal.SIGKILL)


async def member_states(url: str) -> dict[str, str]:
    async with Client(url) as client:
        status = json.loads(await client.request("$sys.status", b""))
    return {member["name"]: member["state"] for member in status["members"]}


async def wait_for_states(url: str, expected: dict[str, str]) -> None:
    states: dict[str, str] = {}
    try:
        async with asyncio.timeout(LIMIT_S):
            while (states := await member_states(url)) != expected:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"after {LIMIT_S} s the states are {states}, not {expected}") from None


async def test_a_killed_broker_restarts_with_its_id_and_one_told_to_stop_leaves(tmp_path: Path) -> None:
    listen = ("--listen", "tcp://127.0.0.1:0")
    async with processes(tmp_path, "alpha", "bravo", "charlie") as (alpha, bravo, charlie):
        seed = (await alpha.start(*listen))["url"]
        await bravo.start(*listen, "--join", seed)
        first = await charlie.start(*listen, "--join", seed)
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "alive"})
        assert await charlie.end(signal.SIGKILL) == -signal.SIGKILL
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "dead"})
        again = await charlie.start(*listen)  # its state folder knows the peers to look for
        assert again["id"] == first["id"] and again["boot"] != first["boot"]
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "alive"})
        assert await charlie.end(signal.SIGTERM) == 0
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "left"})
        assert await bravo.end(signal.SIGTERM) == 0
        assert await alpha.end(signal.SIGTERM) == 0
    found = rows(tmp_path / "logs")
    boots = {row["boot"] for row in found if row["node"] == first["id"]}
    assert boots == {first["boot"], again["boot"]}
    leaves = [row for row in found if row["kind"] == "mem" and row["subject"] == row["node"]]
    assert sum(row["to_state"] == "left" for row in leaves) == 3
    assert len(list((tmp_path / "logs").glob("*.part"))) == 1, "only the killed one left its file open"
    for boot in boots | {row["boot"] for row in found}:
        seqs = [row["seq"] for row in found if row["boot"] == boot]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_paused_broker_is_dead_for_the_others_and_refutes_when_it_wakes(tmp_path: Path) -> None:
    listen = ("--listen", "tcp://127.0.0.1:0")
    async with processes(tmp_path, "alpha", "bravo", "charlie") as (alpha, bravo, charlie):
        seed = (await alpha.start(*listen))["url"]
        await bravo.start(*listen, "--join", seed)
        paused = await charlie.start(*listen, "--join", seed)
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "alive"})
        assert charlie.process is not None
        charlie.process.send_signal(signal.SIGSTOP)
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "dead"})
        charlie.process.send_signal(signal.SIGCONT)
        await wait_for_states(seed, {"alpha": "alive", "bravo": "alive", "charlie": "alive"})
        for broker in (charlie, bravo, alpha):
            assert await broker.end(signal.SIGTERM) == 0
    by_paused = [row for row in rows(tmp_path / "logs") if row["node"] == paused["id"]]
    accused = [row for row in by_paused if row["kind"] == "mem" and row["to_state"] in ("suspect", "dead")]
    assert [row for row in accused if row["subject"] != paused["id"]] == [], "it judged nobody"
