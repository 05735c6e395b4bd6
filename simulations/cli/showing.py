"""The output of `mesh simulate`: a run in lines, tables, and a swarm during and after its run.

Progress goes to standard error, results to standard output.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from simulations.cli.listing import Row, Status
from simulations.faults.kind import Kind, Parameter
from simulations.runs.playing import Result
from simulations.runs.swarming import Outcome, Report

SHOWN_MAX: Final = 10
"""The number of violations of one check that a summary shows."""
CLEAR: Final = "\r\x1b[K"
WIDTH: Final = 160
"""The width of tables that go to a file."""
STATES: Final = {
    "under load": "load",
    "idle": "idle",
    "joining": "join",
    "leaving": "leave",
    "down": "down",
    "partitioned": "cut",
    "impaired": "slow",
    "struck": "hit",
    "healing": "heal",
}
"""The states that a fault can meet, in the order shown, and the short word for each column head."""


def summary(result: Result, wall_s: float, out: str | None, again: str | None) -> str:
    """The result in lines. The first line names scenario, seed and verdict.

    If the run failed, the last line is the command that plays it ``again``.
    """
    verdict = "passed" if result.ok else "VIOLATED"
    counts = result.counts
    lines = [
        f"{result.scenario.name} --seed {result.seed}{' --full' if result.size == 'full' else ''}: {verdict}",
        f"  history {result.history_hash}, {result.virtual_s:.1f} virtual seconds in {wall_s:.1f} real ones"
        f" ({result.virtual_s / wall_s if wall_s else 0:.0f} : 1)",
        f"  {counts['published']} published: {counts['accepted']} accepted, {counts['refused']} refused, "
        f"{counts['unknown']} unknown; {counts['delivered']} delivered",
        f"  {counts['events']} events, {counts['turns']} loop turns, {counts['connections']} connections, "
        f"{counts['log_rows']} log rows",
    ]
    if result.whole_in_s is not None:
        lines.append(f"  whole {result.whole_in_s:.2f} s after the heal")
    lines += [f"  at {fault}" for fault in result.faults]
    for each in result.verdicts:
        lines.append(f"  {'ok      ' if each.ok else 'VIOLATED'} {each.check} ({each.looked_at})")
        lines += [f"           {violation}" for violation in each.violations[:SHOWN_MAX]]
        if len(each.violations) > SHOWN_MAX:
            lines.append(f"           and {len(each.violations) - SHOWN_MAX} more; --json has them all")
    if result.scenario.paper:
        lines.append(f"  theirs: {result.scenario.paper}")
    if result.ours:
        lines.append(f"  ours: {result.ours}")
    if not result.ok and result.scenario.known_failure:
        lines.append(f"  a known failure: {result.scenario.known_failure}")
    if out is not None:
        lines.append(f"  logs and truth are in {os.path.abspath(out)}")
    if again is not None:
        lines.append(f"  again: {again}")
    return "\n".join(lines)


COUNTED: Final = {
    Status.PASSES: "pass",
    Status.KNOWN_FAILURE: "are known failures",
    Status.WAITS: "wait",
}


def scenario_table(rows: Iterable[Row], console: Console | None = None) -> None:
    """A row for each scenario, and the number of each status."""
    console = console or _console()
    rows = list(rows)
    table = _table("no.", "scenario", "brokers", "faults, and expectation", "status")
    for row in rows:
        scenario = row.scenario
        number = "" if scenario.number is None else str(scenario.number)
        expected = f"\n=> {row.expected}" if row.expected else ""
        status = f"{row.status}: {row.because}" if row.because else str(row.status)
        table.add_row(number, scenario.name, row.sizes, f"{scenario.summary}{expected}", status)
    console.print(table, markup=False)
    counts = Counter(row.status for row in rows)
    told = ", ".join(f"{counts[status]} {word}" for status, word in COUNTED.items() if counts[status])
    console.print(f"{len(rows)} scenarios: {told}.", markup=False)


def fault_table(kinds: Iterable[Kind], console: Console | None = None) -> None:
    """A row for each kind of fault."""
    table = _table("kind", "of", "effect", "lasts", "numbers")
    for kind in kinds:
        numbers = "; ".join(f"{each.name} {_span(each)}" for each in kind.parameters)
        table.add_row(kind.name, kind.of, kind.sentence, "yes" if kind.lasting else "", numbers)
    (console or _console()).print(table, markup=False)


def _span(parameter: Parameter) -> str:
    if parameter.choices:
        return " or ".join(parameter.choices)
    return f"{parameter.least:g} to {parameter.most:g}"


def swarm_summary(report: Report, console: Console | None = None) -> None:
    """Which faults met which states, which checks failed, and each failure with the command that plays it
    again.
    """
    console = console or _console()
    if report.coverage:
        _coverage(report, console)
    if report.by_check:
        checks = _table("check", "seeds", title="what failed")
        for check, count in report.by_check.items():
            checks.add_row(check, str(count))
        console.print(checks)
    for each in report.failures:
        said = each.broke or f"{', '.join(each.failed)}: {each.violation}"
        console.print(f"seed {each.seed}: {said}", markup=False, highlight=False, soft_wrap=True)
        again = report.replay_command(each)
        console.print(f"  again: {again}", markup=False, highlight=False, soft_wrap=True)
    virtual_s = sum(each.virtual_s for each in report.outcomes)
    rate = f" ({virtual_s / report.wall_s:.0f} : 1)" if report.wall_s else ""
    count = len(report.outcomes)
    console.print(
        f"{count if count == report.wanted else f'{count} of {report.wanted}'} seeds, "
        f"{len(report.failures)} failed; {virtual_s:.0f} virtual seconds in {report.wall_s:.1f} real "
        f"ones{rate}",
        highlight=False,
        soft_wrap=True,
    )
    seeds = "drawn for this swarm" if report.fresh else "chosen, so the bound holds only if they are new"
    console.print(f"{report.rate}", highlight=False, soft_wrap=True)
    console.print(f"seeds from {report.first} on, {seeds}", highlight=False, soft_wrap=True)


def _coverage(report: Report, console: Console) -> None:
    table = _table("fault", *STATES.values(), title="how often each fault met which state")
    table.padding, table.show_edge = (0, 1, 0, 0), False  # otherwise a terminal of 80 columns is too narrow
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for kind, states in sorted(report.coverage.items()):
        table.add_row(kind, *(str(states[state] or "") for state in STATES))
    console.print(table)
    if report.unmet:
        console.print(f"never: {', '.join(report.unmet)}\n", highlight=False)


def _console() -> Console:
    """A console of a terminal's width, or for a file one wide enough for sentences."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index < 2)
    return table


class Progress:
    """Reports a run on stderr: every fault in a line, and the current virtual time on a terminal that can
    overwrite a line.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal
        self._shown_at = 0.0

    def __call__(self, now_s: float, text: str) -> None:
        self._show(f"{now_s:8.2f} s", text)

    def counted(self, plays: int, text: str) -> None:
        """For many plays: how many there were, and their outcomes."""
        self._show(f"{plays:5} plays", text)

    def end(self) -> None:
        if self._terminal and not self._quiet:
            self._write(CLEAR)

    def _show(self, when: str, text: str) -> None:
        if self._quiet:
            return
        if text:
            self._write(f"{CLEAR if self._terminal else ''}{when}  {text}\n")
        elif self._terminal and time.perf_counter() - self._shown_at > 0.1:
            self._shown_at = time.perf_counter()
            self._write(f"{CLEAR}{when}")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class SwarmProgress:
    """A bar on a terminal's standard error; otherwise a line for each failure."""

    def __init__(self, seeds: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("0 failed", total=seeds)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def passed(self, outcome: Outcome, failures: int) -> None:
        """A seed is done."""
        if not outcome.ok:
            said = outcome.broke or ", ".join(outcome.failed)
            self._console.print(f"seed {outcome.seed}: {said}", markup=False, highlight=False, soft_wrap=True)
        self._bar.update(self._task, advance=1, description=f"{failures} failed", refresh=True)
