"""`mesh demo`, which `make demo` runs: five brokers, two faults, and an analysis that must find them.

The exit code is 0 only if the mesh recovered after each fault and the analysis found exactly what was done
here. The analysis reads nothing but the brokers' own logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.signals import cleaning_up
from mesh.demo.federation import NAMES, Federation
from mesh.demo.story import leave, run_faults
from mesh.demo.traffic import Tally
from mesh.demo.verdict import Event, differences
from mesh.logs import log
from mesh.storage import disk_advice

if TYPE_CHECKING:
    from mesh.analysis.reporting.findings import Findings

MARK = ".mangrove-demo"


def demo(*, out: Path = Path("demo-out"), plain: bool = False) -> int:
    """Run five brokers, kill one, pause another, and let the analysis find out what happened.

    Parameters
    ----------
    out
        Where logs, state and the report go; what an earlier demonstration left there is removed.
    plain
        Print progress lines even where there is a terminal, instead of the live console.
    """
    started = time.monotonic()
    console = Console()
    _check_analysis()
    folder = _fresh(out)
    federation = Federation(folder)
    with cleaning_up():
        try:
            done, tally = asyncio.run(_act(federation, console, live=console.is_terminal and not plain))
        finally:
            federation.end()
    _print_tally(console, tally)
    found, report = _analyse(console, federation, folder)
    wrong = differences(done, found)
    _print_verdict(console, done, found, wrong)
    console.print(f"report: {report}")
    console.print(f"the demonstration took {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def _fresh(out: Path) -> Path:
    """An empty folder. Only a folder that a demonstration made is ever emptied.

    Raises `CommandFailed` if the folder has other content or cannot be made.
    """
    folder = out.resolve()
    try:
        if folder.is_dir():
            if any(folder.iterdir()) and not (folder / MARK).exists():
                raise CommandFailed(
                    ExitCode.CANNOT_CREATE,
                    f"--out {folder} holds something else than a demonstration; name another folder",
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / MARK).touch()
    except OSError as error:
        raise CommandFailed(
            ExitCode.CANNOT_CREATE, f"--out {folder} cannot be made: {disk_advice(error)}"
        ) from error
    return folder


def _check_analysis() -> None:
    """Report at once what the analysis would miss at the end: Spark, or a Java for it."""
    from mesh.analysis.cluster.java import find_java

    for name in ("pyspark", "pandas"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"the demonstration needs {name} (pip install '.[analysis]' in a checkout)")
    find_java(os.environ)


async def _act(federation: Federation, console: Console, *, live: bool) -> tuple[list[Event], Tally]:
    began = time.monotonic()
    lines: list[str] = []

    def say(sentence: str) -> None:
        line = f"{time.monotonic() - began:5.1f} s  {sentence}"
        lines.append(line)
        if not live:
            console.print(line, highlight=False)

    await federation.start_all()
    say(
        f"{len(NAMES)} brokers started: "
        + ", ".join(f"{m.name} {m.url}" for m in federation.members.values())
    )
    with _unwarned():
        with _top(next(iter(federation.members.values())).url) if live else contextlib.nullcontext():
            done, tally = await run_faults(federation, say)
        done += await leave(federation, say)
    if live:
        for line in lines:
            console.print(line, highlight=False)
    return done, tally


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Silence the warnings of clients whose broker is killed on purpose, between the lines of the story."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    log.addFilter(is_error)
    try:
        yield
    finally:
        log.removeFilter(is_error)


@contextlib.contextmanager
def _top(url: str) -> Iterator[None]:
    """The console itself, on the same terminal, while the block runs."""
    process = subprocess.Popen([sys.executable, "-m", "mesh", "top", "--url", url])
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def _analyse(console: Console, federation: Federation, folder: Path) -> tuple[list[Event], Path]:
    """Run the analysis, which reads only the logs, and return its findings and its report."""
    from mesh.analysis.pipeline import analyse

    out = folder / "report"
    if not console.is_terminal:
        console.print("Spark reads the brokers' logs", highlight=False)
    with console.status("Spark reads the brokers' logs") as status:
        done = analyse(federation.log_dir, out, say=lambda stage: status.update(f"the analysis is {stage}"))
    return _events(done.findings), Path(done.where) / "report.html"


def _events(findings: Findings) -> list[Event]:
    """The events of the brokers, without the first start of each, which is no part of the story."""
    events = []
    for run in findings.runs:
        for found in run.events:
            at = found.at / 1e6
            if found.what == "part":
                events.append(Event("partition", ",".join(found.brokers), at))
            elif found.what != "start":
                events += [Event(found.what, name, at) for name in found.brokers]
                back = AFTER.get(found.what)
                if back is not None and found.lasted_s is not None:
                    events += [Event(back, name, at + found.lasted_s) for name in found.brokers]
    return events


AFTER: Final = {"crash": "start", "pause": "resume"}
"""The event with which a broker comes back from each fault."""


def _print_tally(console: Console, tally: Tally) -> None:
    table = Table(title="traffic: every message was for all five subscribers", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    rows: Sequence[tuple[str, int]] = (
        ("published with a receipt", tally.published),
        ("outcome unknown (the broker was lost before its receipt)", tally.unknown),
        ("refused or timed out", tally.refused),
        ("deliveries wanted", tally.wanted),
        ("delivered", tally.delivered),
        ("lost while the subscriber had no broker", tally.lost_away),
        ("lost, and the receipt had named that broker as absent", tally.lost_named),
        ("lost otherwise (accepted by a broker that was killed before it passed them on)", tally.lost),
        ("duplicated", tally.duplicated),
    )
    for what, count in rows:
        table.add_row(what, f"{count:,}")
    console.print(table)


def _print_verdict(
    console: Console, done: Sequence[Event], found: Sequence[Event], wrong: Sequence[str]
) -> None:
    table = Table(title="what was done, and what the analysis found in the logs", title_justify="left")
    table.add_column("done")
    table.add_column("found")
    for kind in dict.fromkeys(event.kind for event in (*done, *found)):
        deeds, findings = ([str(e) for e in events if e.kind == kind] for events in (done, found))
        table.add_row("\n".join(deeds), "\n".join(findings))
    console.print(table)
    for sentence in wrong:
        console.print(f"[red]{sentence}")
    if not wrong:
        console.print("[green]the analysis found exactly what was done, and no partition")
