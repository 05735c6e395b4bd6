"""Runs benchmarks: worker processes, rounds that alternate between systems, medians and ratios.

A *case* names a work and a system. It runs once, in fresh processes, and gives figures by name (a rate a
second, a latency in microseconds). Rounds go through all cases in turn, so that whatever else the machine
does affects every system alike. A figure is the median over the rounds, and a claim is a ratio of two medians
of one run.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import platform
import queue
import signal
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from mesh.errors import MeshError

WORKER_TIMEOUT_S = 120.0

Figures = dict[str, float]


class BenchError(MeshError):
    """A worker of a benchmark failed; the message holds its last output."""


@dataclass(frozen=True, slots=True)
class Case:
    """One system doing one work."""

    work: str
    system: str
    run: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio to hold: ``ours`` divided by ``peer`` in ``figure``, at least or at most ``bound``.

    Without a ``peer`` the bound is on the figure itself.
    """

    work: str
    figure: str
    ours: str
    peer: str | None
    bound: float
    at_least: bool

    def value(self, medians: Mapping[tuple[str, str], Figures]) -> float | None:
        """The ratio (or the figure), or None if one of the two did not run."""
        ours = medians.get((self.work, self.ours), {}).get(self.figure)
        if ours is None:
            return None
        if self.peer is None:
            return ours
        peer = medians.get((self.work, self.peer), {}).get(self.figure)
        return None if not peer else ours / peer

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(slots=True)
class Outcome:
    """All figures of one run."""

    rounds: int
    medians: dict[tuple[str, str], Figures] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


# --- worker processes


def _worker(
    function: Callable[..., None], arguments: tuple[Any, ...], core: int | None, mailbox: Any, gate: Any
) -> None:
    logging.lastResort = None  # a warning of one worker, such as a retry, would be written into the progress
    try:
        if core is not None:
            _stay_on(core)
        function(*arguments, mailbox.put, gate)
    except Exception:
        mailbox.put(("failed", traceback.format_exc()))
        if os.environ.get("MANGROVE_DEBUG"):
            raise
        sys.exit(1)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in this block ignore Ctrl-C, which a terminal sends to all. This one ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stay_on(core: int) -> None:
    """Keep this process, threads included, on one core if the system can do that (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


@dataclass(slots=True)
class Worker:
    """One process of a case. It sends reports, and waits at its gate until it is released."""

    name: str
    process: Any
    mailbox: Any
    gate: Any

    def hear(self, timeout_s: float = WORKER_TIMEOUT_S) -> Any:
        """The worker's next report.

        Raises:
            BenchError: it failed, or said nothing for ``timeout_s``.
        """
        try:
            report = self.mailbox.get(timeout=timeout_s)
        except queue.Empty:
            raise BenchError(f"benchmark worker {self.name} was silent for {timeout_s:g} s") from None
        if isinstance(report, tuple) and report and report[0] == "failed":
            raise BenchError(f"benchmark worker {self.name} failed: {report[1].strip().splitlines()[-1]}")
        return report

    def release(self) -> None:
        """Let the worker pass its gate."""
        self.gate.set()


class Workers:
    """Starts worker processes and ends them all."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[Worker] = []

    def start(self, function: Callable[..., None], *arguments: Any, core: int | None = None) -> Worker:
        """Run ``function(*arguments, report, gate)`` in a new process.

        With ``core`` the process stays on that core. Round trips need it: by itself, the kernel runs some
        pairs of processes on one core and others on two. That changes the figure by a factor of three,
        whatever the library (see `docs/design/decisions.md`).
        """
        mailbox, gate = self._context.Queue(), self._context.Event()
        name = (function.func if isinstance(function, partial) else function).__name__
        process = self._context.Process(
            target=_worker,
            args=(function, arguments, core, mailbox, gate),
            daemon=True,
            name=name,
        )
        with _without_interrupts():
            process.start()
        worker = Worker(name, process, mailbox, gate)
        self._workers.append(worker)
        return worker

    def end(self) -> None:
        for worker in self._workers:
            worker.release()
        for worker in self._workers:
            worker.process.join(0.5)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(5)
            worker.mailbox.close()


@contextmanager
def workers() -> Iterator[Workers]:
    """Worker processes that live no longer than the block."""
    group = Workers()
    try:
        yield group
    finally:
        group.end()


# --- running and reporting


@contextmanager
def progress_of(total: int, console: Console) -> Iterator[Callable[[str], None]]:
    """Shows on ``console`` which of ``total`` steps is running; call the yielded function for each step."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=total)

        def advance(description: str) -> None:
            progress.update(task, description=description, advance=1)

        yield advance


def run_cases(cases: Sequence[Case], rounds: int, skipped: dict[str, str], console: Console) -> Outcome:
    """Run every case once a round, in turn, and show which one is running."""
    samples: dict[tuple[str, str], list[Figures]] = {}
    with progress_of(rounds * len(cases), console) as advance:
        for number in range(1, rounds + 1):
            for case in cases:
                advance(f"round {number} of {rounds}: {case.work}, {case.system}")
                samples.setdefault((case.work, case.system), []).append(case.run())
    medians = {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for key, runs in samples.items()
    }
    return Outcome(rounds, medians, dict(skipped))


def machine() -> dict[str, Any]:
    """The machine on which a figure was measured, as printed beside it."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def as_json(name: str, outcome: Outcome, targets: Sequence[Target]) -> str:
    """One JSON document with all medians, ratios and whether each target was met."""
    return json.dumps(
        {
            "schema": 1,
            "bench": name,
            "rounds": outcome.rounds,
            "machine": machine(),
            "medians": [
                {"work": work, "system": system, **figures}
                for (work, system), figures in outcome.medians.items()
            ],
            "ratios": [
                {
                    "work": target.work,
                    "figure": target.figure,
                    "ours": target.ours,
                    "peer": target.peer,
                    "value": value,
                    "bound": target.bound,
                    "at_least": target.at_least,
                    "met": target.met(value),
                }
                for target in targets
                if (value := target.value(outcome.medians)) is not None
            ],
            "skipped": outcome.skipped,
        },
        indent=2,
    )


def show(name: str, outcome: Outcome, targets: Sequence[Target], console: Console) -> None:
    """Print a table of medians for each work, and one of the ratios against their targets."""
    what = machine()
    heading = (
        f"mesh bench {name}: medians of {outcome.rounds}, Python {what['python']}, {what['cores']} cores"
    )
    console.print(heading, highlight=False)
    for work in dict.fromkeys(work for work, _ in outcome.medians):
        console.print()
        console.print(_medians_of(work, outcome))
    ratios = _ratios(outcome, targets)
    if ratios.row_count:
        console.print()
        console.print(ratios)
    for system, reason in outcome.skipped.items():
        console.print(f"not run: {system}: {reason}", style="yellow", markup=False, highlight=False)


def _medians_of(work: str, outcome: Outcome) -> Table:
    """A row for each system, and a column for each figure that any of them has."""
    rows = {system: figures for (of, system), figures in outcome.medians.items() if of == work}
    table = _table(work, "system")
    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    for name in names:
        table.add_column(name, justify="right")
    for system, figures in rows.items():
        table.add_row(system, *(_number(figures[name]) if name in figures else "" for name in names))
    return table


def _ratios(outcome: Outcome, targets: Sequence[Target]) -> Table:
    table = _table("targets", "work", "figure")
    for column in ("measured", "wanted"):
        table.add_column(column, justify="right")
    table.add_column("")
    for target in targets:
        value = target.value(outcome.medians)
        if value is None:
            continue
        against = f"{target.ours} / {target.peer}" if target.peer else target.ours
        sign = ">=" if target.at_least else "<="
        met = "[green]met" if target.met(value) else "[red]short"
        figure = f"{target.figure}: {against}"
        table.add_row(target.work, figure, f"{value:.2f}", f"{sign} {target.bound:g}", met)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
