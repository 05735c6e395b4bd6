"""Programs as processes of their own that tests kill, and start again at once.

A new interpreter that imports a broker takes a second. These processes are forked from one that has imported
it already (multiprocessing's fork server), so a matrix of hundreds of kills takes minutes. Each is a process
like any other: own memory, descriptors and signals. It gets SIGKILL when the tests die.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tests.support.end_with_parent import PR_SET_PDEATHSIG

PRELOADED: Final = ("mesh.cli.app", "mesh.broker.broker", "mesh.clients.client", "mesh.journal.journal")

Program = Callable[..., None]
"""Gets its end of a pipe, and its arguments. Must be importable by name."""


class Killable:
    """A program that is restarted again and again. Everything it sends by its pipe is given to ``told``, in
    this process's loop. Everything it writes to standard error goes to a file."""

    def __init__(self, program: Program, stderr: Path, told: Callable[[Any], None]) -> None:
        self.lives = 0
        self._program = program
        self._stderr = stderr
        self._told = told
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, program.__module__])
        self._process: Any = None
        self._pipe: Connection | None = None
        self._loop = asyncio.get_running_loop()

    def start(self, *arguments: object) -> None:
        assert self._process is None
        self.lives += 1
        ours, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_run, args=(str(self._stderr), self._program, theirs, *arguments)
        )
        self._process.start()
        theirs.close()
        self._pipe = ours
        self._loop.add_reader(ours.fileno(), self._read)

    def send(self, message: object) -> None:
        assert self._pipe is not None
        self._pipe.send(message)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it now; what it sent before is told before this returns."""
        if self._process.is_alive():
            os.kill(self._process.pid, number)
        self._process.join()
        while self._pipe is not None:
            self._read()
        self._process.close()
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def died(self) -> bool:
        """True if it ended by itself."""
        return self._process is not None and not self._process.is_alive()

    @property
    def said(self) -> str:
        """Standard error of all its lives."""
        return self._stderr.read_text(errors="replace") if self._stderr.exists() else ""

    def _read(self) -> None:
        """The messages that came by the pipe. Closes the pipe when the program has ended."""
        pipe = self._pipe
        if pipe is None:
            return
        try:
            while pipe.poll():
                self._told(pipe.recv())
        except (EOFError, OSError):
            self._loop.remove_reader(pipe.fileno())
            pipe.close()
            self._pipe = None


def _run(stderr: str, program: Program, pipe: Connection, *arguments: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    file = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(sys.stderr)
    program(pipe, *arguments)
