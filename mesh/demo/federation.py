"""Five `mesh broker` processes on loopback that can be killed, paused, brought back and asked to leave.

Each keeps its port and its state folder over a restart, so a killed broker comes back as the same member.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh.clients.client import Client
from mesh.errors import MeshError

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
START_TIMEOUT_S = 20.0
LEAVE_TIMEOUT_S = 10.0
POLL_S = 0.1


def undisturbed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the settings of the user's own brokers, so that the demonstration does not join
    their mesh."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("MANGROVE_") or name == "MANGROVE_DEBUG"
    }


class DemoError(MeshError):
    """The demonstration could not go on; the message says what happened and where to look."""


@dataclass(slots=True)
class Member:
    """One broker process: its address, its identity, and the process while it runs."""

    name: str
    url: str = ""
    id: str = ""
    process: subprocess.Popen[bytes] | None = None


@dataclass(slots=True)
class Federation:
    """The processes of one demonstration below ``folder`` (logs, state, ports, each broker's stderr)."""

    folder: Path
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def log_dir(self) -> Path:
        return self.folder / "logs"

    async def start_all(self) -> None:
        """Start every broker; each but the first knows the address of one other."""
        for name in NAMES:
            self.members[name] = Member(name)
            await self.start(name)

    async def start(self, name: str) -> None:
        """Start, or start again, one broker and wait until it listens.

        Raises:
            DemoError: it ended, or did not listen within 20 s.
        """
        member = self.members[name]
        ports = self.folder / f"{name}.ports.json"
        ports.unlink(missing_ok=True)
        settings = self.folder / "settings.toml"
        settings.touch()
        command = [sys.executable, "-m", "mesh", "broker", "--config", str(settings)]
        command += ["--name", name, "--ports-file", str(ports)]
        command += ["--listen", member.url or "tcp://127.0.0.1:0"]
        command += ["--log-dir", str(self.log_dir), "--state-dir", str(self.folder / "state" / name)]
        if seed := next(
            (other.url for other in self.members.values() if other.url and other is not member), ""
        ):
            command += ["--join", seed]
        member.process = self._spawn(name, command)
        member.url = await self._listening(member, ports)
        member.id = (await self.status(name))["id"]

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that Ctrl-C in the terminal does not reach it before
        this program."""
        with (self.folder / f"{name}.stderr").open("ab") as stderr:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
                env=undisturbed(os.environ),
            )

    async def _listening(self, member: Member, ports: Path) -> str:
        give_up = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < give_up:
            assert member.process is not None
            if member.process.poll() is not None:
                said = (self.folder / f"{member.name}.stderr").read_text().strip().splitlines()
                last = said[-1] if said else "nothing"
                raise DemoError(f"broker {member.name} ended at its start; its last line: {last}")
            if url := _bound_url(ports):
                return url
            await asyncio.sleep(POLL_S)
        raise DemoError(f"broker {member.name} did not listen within {START_TIMEOUT_S:g} s")

    async def status(self, name: str) -> dict[str, Any]:
        """The status of one broker."""
        async with Client(self.members[name].url) as client:
            status: dict[str, Any] = await client.status()
            return status

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one broker's process."""
        process = self.members[name].process
        assert process is not None
        process.send_signal(number)

    async def wait_for_view(
        self, expected: Mapping[str, str], observers: Iterator[str] | tuple[str, ...], timeout_s: float
    ) -> None:
        """Wait until every observer sees each named broker in the expected state.

        Raises:
            DemoError: one of them does not within ``timeout_s``; the message shows what it holds.
        """
        give_up = time.monotonic() + timeout_s
        for observer in observers:
            while True:
                status = await self.status(observer)
                held = {member["name"]: member["state"] for member in status["members"]}
                if all(held.get(name) == state for name, state in expected.items()):
                    break
                if time.monotonic() > give_up:
                    raise DemoError(f"{observer} sees {held}, not {dict(expected)}, after {timeout_s:g} s")
                await asyncio.sleep(POLL_S)

    async def leave_all(self) -> dict[str, float]:
        """Ask all brokers to leave, one after another; returns the wall time of each request by name."""
        asked: dict[str, float] = {}
        for name, member in self.members.items():
            asked[name] = time.time()
            self.signal(name, signal.SIGTERM)
            assert member.process is not None
            code = await asyncio.to_thread(_wait, member.process, LEAVE_TIMEOUT_S)
            if code != 0:
                raise DemoError(f"broker {name} was asked to leave and ended with {code}")
        return asked

    def end(self) -> None:
        """End all processes, whatever happened. A stopped process is continued so that it can be killed."""
        for member in self.members.values():
            if member.process is not None and member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
                member.process.kill()
                member.process.wait(5)


def _bound_url(ports: Path) -> str:
    """The first URL in a broker's ports file; empty while there is none."""
    if not ports.exists():
        return ""
    url: str = json.loads(ports.read_text())["listeners"][0]
    return url


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | str:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return f"nothing within {timeout_s:g} s"
