"""Finds the first event in which two runs differ that should be equal.

A run's history is a chain of hashes with a checkpoint every thousand lines. Two runs are compared by their
checkpoints; bisection finds the first difference. Then both are played once more to keep only the lines
around it. Each play is a separate process with its own hash seed, since differences between processes (the
order of sets, addresses) are what makes runs diverge. Histories in files are compared line by line.

The output shows what led to the difference: the last lines before it, those of the processes in which it
happened, and the faults until then.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final

from simulations.faults import Fault
from simulations.kernel.history import CHECKPOINT_LINES
from simulations.kernel.scheduler import nanoseconds
from simulations.runs import playing, swarming
from simulations.runs.playing import Play, Result
from simulations.runs.replaying import fingerprint
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file

TRACE_FORMAT: Final = 2
WORLD: Final = "world"
"""The name under which faults stand in a history."""
HEAD: Final = "# mangrove history "
BEFORE: Final = 3
"""Lines that are shown before the first difference, of all and of each process in which it happened."""
AFTER: Final = 3
"""Lines of each run that are shown from there on."""
FAULTS: Final = 3
"""The number of the last faults that are shown."""
WORDS: Final = {
    "turn": "a turn of its event loop, {} callbacks",
    "data": "{1} bytes arrive on connection {0}, checksum {2}",
    "open": "connection {0} is made",
    "fin": "nothing more comes on connection {0}",
    "rst": "connection {0} is reset",
    "exit": "the process is over",
    "fault": "DONE: {}",
    "undo": "UNDONE: {}",
    "failure": "an exception that nobody handled: {0}",
}
"""What the kinds of lines mean. A connection has a number and a direction: > is what its dialler sends."""


class TraceError(ValueError):
    """A file is no history, or one of another version."""


class UnreadableTrace(TraceError):
    """The file does not exist, or cannot be read."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A history in a file."""

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
    """Keep the whole history, like a trace; this must not make a difference."""

    @property
    def name(self) -> str:
        traced = ", traced" if self.keeps else ""
        return f"{self.scenario.name}@{self.seed} (PYTHONHASHSEED={self.hash_seed}{traced})"


@dataclass(frozen=True, slots=True)
class Difference:
    """The point where two runs diverge."""

    names: tuple[str, str]
    line: int | None
    """The number of the first line that differs; None if none does."""
    one: tuple[str, ...] = ()
    """The lines of one run from there on; the first differs from the other run's. Empty if the run has
    ended.
    """
    other: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """Lines before it, in their order, which both have."""
    faults: tuple[str, ...] = ()
    """The last faults of both runs."""
    remark: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "same": self.line is None,
            "names": list(self.names),
            "line": self.line,
            "one": list(self.one),
            "other": list(self.other),
            "before": list(self.before),
            "faults": list(self.faults),
            "remark": self.remark.removeprefix(", "),
        }

    def __str__(self) -> str:
        if self.line is None:
            return f"the same: {self.names[0]} and {self.names[1]}{self.remark}"
        lines = [f"they part at line {self.line}{self.remark}"]
        for title, shown in (("what was done to both", self.faults), ("the last of both", self.before)):
            lines += [f"  {title}:", *map(_told, shown)] if shown else []
        for name, shown in zip(self.names, (self.one, self.other), strict=True):
            lines += [f"  then {name}:", *(map(_told, shown) if shown else ["      it has ended"])]
        return "\n".join(lines)


def _told(line: str) -> str:
    """A line of a history for people; an unknown line stays as it is."""
    try:
        t_ns, where, kind, key = line.split("|", 3)
        parts = [key] if kind in ("fault", "undo") else key.split("|")
        return f"      {int(t_ns) / 1e9:.9f} s  {where}: {WORDS[kind].format(*parts)}"
    except (ValueError, KeyError, IndexError):
        return f"      {line}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The report of a process that played a run."""

    digest: str
    lines: int
    checkpoints: tuple[str, ...]
    kept: tuple[str, ...]
    faults: tuple[tuple[int, str], ...] = ()
    """Lines of faults, with their times in nanoseconds."""


def diff(one: TraceFile | Run, other: TraceFile | Run) -> Difference:
    """The first point where two runs diverge.

    Raises:
        TraceError: a file is no history of this version.
        ValueError: a scenario cannot be played.
    """
    if isinstance(one, Run) and isinstance(other, Run):
        return _of_runs(one, other)
    for each in (one, other):
        if isinstance(each, TraceFile):
            trace_head(each.path)  # before the other one is played, which takes a while
    with tempfile.TemporaryDirectory() as folder:
        left, right = (_as_file(each, Path(folder) / f"{n}.history") for n, each in enumerate((one, other)))
        found = _compared((one.name, other.name), read_trace(left), read_trace(right))
        return replace(found, remark=found.remark + _strangers(trace_head(left), trace_head(right)))


def first_different(one: Sequence[str], other: Sequence[str]) -> int:
    """The index of the first checkpoint that differs; the length of the shorter chain if none does.

    Chains that have diverged never meet again.
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
    """A history as a file: its origin, and its lines."""
    of = {"scenario": result.scenario.name, "seed": result.seed, "history_hash": result.history_hash}
    return _text(of, run.world.history.kept or ())


def _text(of: dict[str, Any], lines: Iterable[str]) -> str:
    written_by = {"format": TRACE_FORMAT, "python": platform.python_version(), "code": fingerprint()}
    return "".join([f"{HEAD}{json.dumps(written_by | of)}\n", *lines])


def read_trace(path: Path) -> Iterator[str]:
    """The lines of a history, without their ends. Raises `TraceError`."""
    trace_head(path)
    with _readable(path), path.open(encoding="utf-8") as file:
        next(file)
        for number, line in enumerate(file, 2):
            if not line.endswith("\n"):
                raise TraceError(f"{path}:{number}: ends within a line: the writing of it was broken off")
            yield line.rstrip("\n")


def trace_head(path: Path) -> dict[str, Any]:
    """The origin in a history's first line. Raises `TraceError`."""
    with _readable(path), path.open(encoding="utf-8") as file:
        head = file.readline()
        if not head.startswith(HEAD):
            raise TraceError(f"{path}:1: is no history; mesh simulate SCENARIO --trace FILE writes one")
        of = json.loads(head.removeprefix(HEAD))
    if not isinstance(of, dict):
        raise TraceError(f"{path}:1: is no history: its first line says nothing of it")
    if of.get("format") != TRACE_FORMAT:
        raise TraceError(
            f"{path}:1: its format is {of.get('format')}, and this program reads {TRACE_FORMAT}: "
            f"write it anew by this one"
        )
    return of


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is no history: it is not even text") from None
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}: is no history: {error}") from None
    except OSError as error:
        raise UnreadableTrace(f"{path}: cannot be read: {error.strerror}") from None


def _strangers(one: dict[str, Any], other: dict[str, Any]) -> str:
    """A remark on histories of different programs, which may well differ."""
    told = [
        f"{what} {one.get(key)} and {other.get(key)}"
        for key, what in (("code", "code"), ("python", "Python"))
        if one.get(key) != other.get(key)
    ]
    return f"; they were written by {' and '.join(told)}" if told else ""


def _compared(names: tuple[str, str], one: Iterable[str], other: Iterable[str], first: int = 1) -> Difference:
    """Where two rows of lines diverge; the first line has that number."""
    lefts, rights = iter(one), iter(other)
    last: deque[tuple[int, str]] = deque(maxlen=BEFORE)
    of_each: dict[str, deque[tuple[int, str]]] = {}
    done: deque[str] = deque(maxlen=FAULTS)
    number = first - 1
    for number, (left, right) in enumerate(zip_longest(lefts, rights), first):
        if left != right:
            near = [*last, *of_each.get(_where(left), ()), *of_each.get(_where(right), ())]
            before = tuple(dict(sorted(near)).values())
            faults = tuple(line for line in done if line not in before)
            ours, theirs = _following(left, lefts), _following(right, rights)
            return Difference(names, number, ours, theirs, before, faults)
        last.append((number, left))
        if _where(left) == WORLD:
            done.append(left)
        else:
            of_each.setdefault(_where(left), deque(maxlen=BEFORE)).append((number, left))
    return Difference(names, None, remark=f", {number} lines")


def _where(line: str | None) -> str:
    """The process of a line."""
    return "" if line is None else line.split("|", 2)[1] if "|" in line else ""


def _following(line: str | None, rest: Iterator[str]) -> tuple[str, ...]:
    return () if line is None else (line, *islice(rest, AFTER - 1))


def _as_file(side: TraceFile | Run, path: Path) -> Path:
    if isinstance(side, TraceFile):
        return side.path
    recorded = record(side, (1, sys.maxsize))
    path.write_text(_text({}, recorded.kept), encoding="utf-8")
    return path


# --- runs in processes


def _of_runs(one: Run, other: Run) -> Difference:
    names = (one.name, other.name)
    first, second = record(one), record(other)
    if first.digest == second.digest:
        return Difference(names, None, remark=f", {first.lines} lines, history {first.digest}")
    index = first_different(first.checkpoints, second.checkpoints)
    # Include the lines before their last common checkpoint, to show what led to it.
    window = (max(0, index - 1) * CHECKPOINT_LINES + 1, (index + 1) * CHECKPOINT_LINES)
    left, right = record(one, window), record(other, window)
    found = _compared(names, map(str.rstrip, left.kept), map(str.rstrip, right.kept), window[0])
    if found.line is None:
        once_more = "played once more they did not, so it depends on more than the hash seed"
        return Difference(names, window[0], remark=f" to {window[1]}; {once_more}")
    return replace(found, faults=_done_before(found, left))


def _done_before(found: Difference, run: Recorded) -> tuple[str, ...]:
    """The faults of a run of which only some lines were kept."""
    t_ns = min(int(line.partition("|")[0]) for line in (*found.one[:1], *found.other[:1]))
    done = [line for at_ns, line in run.faults if at_ns < t_ns][-FAULTS:]
    return tuple(line for line in done if line not in found.before)


def record(run: Run, window: tuple[int, int] | None = None) -> Recorded:
    """Play a run in a separate process; keep its lines between two numbers.

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
        [sys.executable, "-m", "simulations.runs.diffing"],
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
    return Recorded(
        found["digest"],
        found["lines"],
        tuple(found["checkpoints"]),
        tuple(found["kept"]),
        tuple((at_ns, line) for at_ns, line in found["faults"]),
    )


def _record_here(order: dict[str, Any]) -> dict[str, Any]:
    """The work of the other process."""
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
        "faults": [_fault_line(at_s, fault) for at_s, fault in run.world.faults],
    }


def _fault_line(at_s: float, fault: Fault) -> tuple[int, str]:
    """A fault's line in the history."""
    at_ns = nanoseconds(at_s)
    return at_ns, f"{at_ns}|{WORLD}|fault|{fault}"


if __name__ == "__main__":
    swarming.hush()
    json.dump(_record_here(json.load(sys.stdin)), sys.stdout)
