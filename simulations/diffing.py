"""Finds the first event in which two runs differ that should be one.

A run's history is a chain of hashes with a checkpoint every thousand lines, so two runs are compared by their
checkpoints, whose first difference is found by bisection, and played once more to keep only the lines between
it and the one before. Each play is a process of its own with a hash seed of its own, since what differs
between processes (the order of sets, addresses) is what makes runs part. Histories that were written to files
are compared line by line.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from simulations import playing, scenario_file, swarming
from simulations.history import CHECKPOINT_LINES
from simulations.playing import Play, Result
from simulations.replaying import fingerprint
from simulations.scenario import Scenario

TRACE_FORMAT: Final = 1
HEAD: Final = "# mangrove history "
BEFORE: Final = 3
"""Lines that are shown before the first difference."""


class TraceError(ValueError):
    """A file is no history, or one of another version."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A history that was written down."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Run:
    """A run to be played."""

    scenario: Scenario
    seed: int
    size: str = "ci"
    hash_seed: int = 1
    """PYTHONHASHSEED of the process that plays it."""
    keeps: bool = False
    """Keep the whole history, as a trace does; this must not make a difference."""

    @property
    def name(self) -> str:
        traced = ", traced" if self.keeps else ""
        return f"{self.scenario.name}@{self.seed} (PYTHONHASHSEED={self.hash_seed}{traced})"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs part."""

    names: tuple[str, str]
    line: int | None
    """The number of the first line that differs; None if none does."""
    one: str = ""
    other: str = ""
    before: tuple[str, ...] = ()
    remark: str = ""

    def __str__(self) -> str:
        if self.line is None:
            return f"the same: {self.names[0]} and {self.names[1]}{self.remark}"
        lines = [f"they part at line {self.line}{self.remark}"]
        lines += [f"      {line}" for line in self.before]
        for name, line in zip(self.names, (self.one, self.other), strict=True):
            lines.append(f"  {name}:\n      {line or '(it has ended)'}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a process that played a run says of it."""

    digest: str
    lines: int
    checkpoints: tuple[str, ...]
    kept: tuple[str, ...]


def diff(one: TraceFile | Run, other: TraceFile | Run) -> Difference:
    """Where two runs part first.

    Raises:
        TraceError: a file is no history of this version.
        ValueError: a scenario cannot be played.
    """
    if isinstance(one, Run) and isinstance(other, Run):
        return _of_runs(one, other)
    with tempfile.TemporaryDirectory() as folder:
        files = [_as_file(each, Path(folder) / f"{n}.history") for n, each in enumerate((one, other))]
        return _of_files((one.name, other.name), *files)


def first_different(one: Sequence[str], other: Sequence[str]) -> int:
    """The index of the first checkpoint that differs, of chains that once apart never meet again; the length
    of the shorter one if none does.
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low


# --- histories in files


def trace_text(run: Play, result: Result) -> str:
    """A history as a file: what it is of, and its lines."""
    of = {
        "format": TRACE_FORMAT,
        "scenario": result.scenario.name,
        "seed": result.seed,
        "python": platform.python_version(),
        "code": fingerprint(),
        "history_hash": result.history_hash,
    }
    return "".join([f"{HEAD}{json.dumps(of)}\n", *(run.world.history.kept or ())])


def read_trace(path: Path) -> Iterator[str]:
    """The lines of a history, without their ends. Raises `TraceError`."""
    try:
        with path.open(encoding="utf-8") as file:
            head = file.readline()
            if not head.startswith(HEAD):
                raise TraceError(f"{path}:1: is no history; mesh simulate SCENARIO --trace FILE writes one")
            found = json.loads(head.removeprefix(HEAD)).get("format")
            if found != TRACE_FORMAT:
                raise TraceError(f"{path}:1: its format is {found}, and this program reads {TRACE_FORMAT}")
            for line in file:
                yield line.rstrip("\n")
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TraceError(f"{path}: is no history: {error}") from None


def _of_files(names: tuple[str, str], one: Path, other: Path) -> Difference:
    before: list[str] = []
    number = 0
    for number, (left, right) in enumerate(zip_longest(read_trace(one), read_trace(other)), 1):
        if left != right:
            return Difference(names, number, left or "", right or "", tuple(before))
        before = [*before[1 - BEFORE :], left]
    return Difference(names, None, remark=f", {number} lines")


def _as_file(side: TraceFile | Run, path: Path) -> Path:
    if isinstance(side, TraceFile):
        return side.path
    recorded = record(side, (1, sys.maxsize))
    head = f"{HEAD}{json.dumps({'format': TRACE_FORMAT})}\n"
    path.write_text("".join([head, *recorded.kept]), encoding="utf-8")
    return path


# --- runs in processes


def _of_runs(one: Run, other: Run) -> Difference:
    names = (one.name, other.name)
    first, second = record(one), record(other)
    if first.digest == second.digest:
        return Difference(names, None, remark=f", {first.lines} lines, history {first.digest}")
    index = first_different(first.checkpoints, second.checkpoints)
    window = (index * CHECKPOINT_LINES + 1, (index + 1) * CHECKPOINT_LINES)
    left, right = record(one, window), record(other, window)
    for offset, (a, b) in enumerate(zip_longest(left.kept, right.kept)):
        if a != b:
            before = tuple(line.rstrip() for line in left.kept[max(0, offset - BEFORE) : offset])
            told = ((a or "").rstrip(), (b or "").rstrip())
            return Difference(names, window[0] + offset, *told, before)
    return Difference(
        names,
        window[0],
        "not seen again",
        "not seen again",
        remark=f" to {window[1]}; played once more they did not, so it depends on more than the hash seed",
    )


def record(run: Run, window: tuple[int, int] | None = None) -> Recorded:
    """Play a run in a process of its own; keep its lines between two.

    Raises:
        ValueError: it cannot be played.
    """
    order = {
        "scenario": scenario_file.write(run.scenario),
        "seed": run.seed,
        "size": run.size,
        "keeps": run.keeps,
        "window": window,
    }
    done = subprocess.run(
        [sys.executable, "-m", "simulations.diffing"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": str(run.hash_seed)},
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ValueError(f"{run.name} could not be played: {last}")
    found = json.loads(done.stdout)
    return Recorded(found["digest"], found["lines"], tuple(found["checkpoints"]), tuple(found["kept"]))


def _record_here(order: dict[str, Any]) -> dict[str, Any]:
    """What the other process does."""
    scenario = scenario_file.parse(order["scenario"], "the scenario")
    run = playing.Play(scenario, seed=order["seed"], size=order["size"], keep_history=order["keeps"])
    history = run.world.history
    if order["window"] is not None:
        history.keep_lines(*order["window"])
    run.run()
    kept = history.kept if order["window"] is not None else []
    return {
        "digest": history.digest,
        "lines": history.lines,
        "checkpoints": history.checkpoints,
        "kept": kept,
    }


if __name__ == "__main__":
    swarming.hush()
    json.dump(_record_here(json.load(sys.stdin)), sys.stdout)
