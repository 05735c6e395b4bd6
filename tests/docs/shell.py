"""A reader's terminal: one folder, one environment, background commands, ports that are free here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from tests.docs.blocks import ROOT, says
from tests.support.children import ends_with_tests
from tests.support.ports import free_port

COMMAND_TIMEOUT_S = 600.0
"""Far longer than any command takes on a busy machine: only a hang reaches it."""
READY = ("ready", "subscribed", "running on")
"""The words that a command in the background prints once it can be used."""


@dataclass
class Background:
    """A command that runs on, and what it has said so far."""

    command: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "".join(list(self.lines))

    def follow(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            self.readers.append(threading.Thread(target=self._read, args=(stream,), daemon=True))
            self.readers[-1].start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.lines.append(line)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not any(word in self.said for word in READY):
            assert self.process.poll() is None or self.process.returncode == 0, f"{self.command}: {self.said}"
            assert time.monotonic() < deadline, f"{self.command} was never ready: {self.said}"
            time.sleep(0.02)

    def end(self) -> None:
        """As Ctrl-C does: to everything the line started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for reader in self.readers:
            reader.join(120)


class Shell:
    """The shell stands in a folder with `docs` in it, as that of a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}
        self.background: list[Background] = []
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        (folder / "docs").symlink_to(ROOT / "docs")
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(runtime),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }

    def translated(self, text: str) -> str:
        return re.sub(r"\b777\d\b", lambda match: self.ports.setdefault(match[0], str(free_port())), text)

    def run(self, line: str) -> str:
        """Runs one line to its end, or until it is ready if it is to stay; returns what it said."""
        line = self.translated(line)
        stays = line.rstrip().endswith("&")
        process = subprocess.Popen(
            ends_with_tests(["bash", "-c", line.rstrip().rstrip("&")], signal.SIGTERM),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stays else subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if stays:
            job = Background(line, process)
            job.follow()
            self.background.append(job)
            job.wait_until_ready()
            return ""
        try:
            said, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            pytest.fail(f"{line} did not end within {COMMAND_TIMEOUT_S:g} s; it said: {said}")
        assert process.returncode == 0, f"{line} ended with exit code {process.returncode}: {said}"
        return said

    def expect(self, line: str, said: str) -> None:
        """Fails unless this was said, or a command in the background says it."""
        line = self.translated(line)
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not says(line, said) and not any(says(line, job.said) for job in self.background):
            everything = said + "".join(job.said for job in self.background)
            assert time.monotonic() < deadline, f"expected {line!r} in: {everything}"
            time.sleep(0.02)

    def close(self) -> None:
        for job in reversed(self.background):
            job.end()
