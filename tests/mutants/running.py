"""A module's tests in a forked child, with one change of the module or none."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tests.mutants.mutating import mutated
from tests.mutants.targets import ROOT, Target

MEMORY_MAX: Final = 4 << 30
LIMIT_MIN_S: Final = 20.0
LIMIT_FACTOR: Final = 5.0
"""A child may take that many times what the tests take without a change, and no less than `LIMIT_MIN_S`."""
POLL_S: Final = 0.01
PR_SET_PDEATHSIG: Final = 1
"""A constant of Linux's prctl."""
OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--tb=line")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a module's tests. ``killed_by``: the test that failed, or that the time was over."""

    passed: bool
    seconds: float
    killed_by: str


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from code that is there already."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Finder:
    """Finds the changed module before anybody else finds it on disk."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        self._name = name
        self._loader = _Changed(name, path, code)
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self._loader)


def run(target: Target, id: str | None, limit_s: float | None, root: Path = ROOT) -> Outcome:
    """Run the tests of a module with that change (None: as it is), in a child that is given that long.

    The child begins as a copy of this process, which should have loaded none of what the tests load.
    """
    parent = os.getpid()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        child = os.fork()
        if not child:
            status = 70
            with contextlib.suppress(BaseException):
                _end_with(parent)
                status = _in_child(target, id, Path(scratch), root)
            os._exit(status)
        status_of_child = _wait(child, limit_s)
        printed = (
            Path(scratch, "printed").read_text(errors="replace") if Path(scratch, "printed").exists() else ""
        )
    seconds = time.monotonic() - began
    if status_of_child is None:
        return Outcome(False, seconds, f"no end within {limit_s:.0f} s")
    return Outcome(status_of_child == 0, seconds, "" if status_of_child == 0 else _reason(printed))


def limit_of(unchanged: Outcome) -> float:
    """How long a changed module's tests may take."""
    return max(LIMIT_MIN_S, LIMIT_FACTOR * unchanged.seconds)


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)


def _in_child(target: Target, id: str | None, scratch: Path, root: Path) -> int:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(scratch / "printed", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(scratch / "hypothesis")
    os.chdir(root)
    if id is not None:
        path = root / target.module
        code = compile(mutated(path.read_text(), id), str(path), "exec", dont_inherit=True)
        sys.meta_path.insert(0, _Finder(target.name, str(path), code))
    import pytest

    return int(pytest.main([*OPTIONS, "--hypothesis-seed=0", f"--basetemp={scratch}/tmp", *target.tests]))


def _wait(child: int, limit_s: float | None) -> int | None:
    """Its exit status; None if it took too long. Whatever it started is ended with it."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    status: int | None = None
    while status is None:
        done, waited = os.waitpid(child, os.WNOHANG)
        if done:
            status = waited
        elif deadline is not None and time.monotonic() > deadline:
            break
        else:
            time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def _reason(printed: str) -> str:
    for line in reversed(printed.splitlines()):
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    lines = [line for line in printed.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "the child ended without a word"
