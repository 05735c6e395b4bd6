"""``mesh simulate``: runs a scenario from a seed, with progress, verdicts and an exit code."""

from __future__ import annotations

import json as json_format
import os
import sys
import time
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from simulations import playing, scenario_file
from simulations.playing import Result

EXIT_OK = 0
EXIT_VIOLATED = 1
EXIT_USAGE = 64
EXIT_UNWRITABLE = 73
SHOWN_MAX = 10
"""Violations of one check that a summary shows."""
CLEAR = "\r\x1b[K"


def simulate(
    scenario: str | None = None,
    *,
    seed: int = 1,
    nodes: int | None = None,
    full: Annotated[bool, Parameter(negative=())] = False,
    out: str | None = None,
    json: bool = False,
    list_: Annotated[bool, Parameter(name="--list", negative=())] = False,
) -> int:
    """Run real brokers and clients in virtual time, break them on purpose, and judge how they fared.

    The same scenario, seed and number of nodes always give the same history, which is named by one hash. The
    exit code is 0 if every check passed and 1 if not.

    Parameters
    ----------
    scenario
        What is done to the mesh: a name, of which --list has all, or the path of a scenario file.
    seed
        Everything random in the run follows from it.
    nodes
        How many brokers; by default as the scenario says.
    full
        Play it at its full size, which may take long.
    out
        A folder for the brokers' event logs, and for what was really done in truth-*.jsonl.
    json
        Print the result as one JSON object, which is equal for equal runs.
    list_
        Name the scenarios and end.
    """
    if list_:
        _list(as_json=json)
        return EXIT_OK
    if scenario is None:
        return _refuse(f"name a scenario: {', '.join(scenario_file.shipped())}", EXIT_USAGE)
    progress = Progress(quiet=json and not sys.stderr.isatty())
    began = time.perf_counter()
    try:
        found = scenario_file.load(scenario).at_size("full" if full else "ci")
        found = found if nodes is None else replace(found, brokers=nodes)
        result = playing.play(found, seed=seed, size="full" if full else "ci", out=out, say=progress)
    except ValueError as error:
        return _refuse(str(error), EXIT_USAGE)
    except OSError as error:
        return _refuse(f"cannot write logs to {out}: {error.strerror or error}", EXIT_UNWRITABLE)
    finally:
        progress.end()
    if json:
        print(json_format.dumps(result.as_json(), indent=2))
    else:
        print(summary(result, time.perf_counter() - began, out))
    return EXIT_OK if result.ok else EXIT_VIOLATED


def summary(result: Result, wall_s: float, out: str | None) -> str:
    """The result in lines; the first names scenario, seed and verdict."""
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
    if out is not None:
        lines.append(f"  logs and truth are in {os.path.abspath(out)}")
    return "\n".join(lines)


class Progress:
    """What happens, on stderr: every fault a line, and on a terminal the virtual time running."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._shown_at = 0.0

    def __call__(self, now_s: float, text: str) -> None:
        if self._quiet:
            return
        if text:
            self._write(f"{CLEAR if self._terminal else ''}{now_s:8.2f} s  {text}\n")
        elif self._terminal and time.perf_counter() - self._shown_at > 0.1:
            self._shown_at = time.perf_counter()
            self._write(f"{CLEAR}{now_s:8.2f} s")

    def end(self) -> None:
        if self._terminal and not self._quiet:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _list(*, as_json: bool) -> None:
    found = {name: scenario_file.load(name).summary for name in scenario_file.shipped()}
    if as_json:
        rows = [{"scenario": name, "summary": text} for name, text in found.items()]
        print(json_format.dumps(rows, indent=2))
        return
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:{width}}  {text}")


def _refuse(sentence: str, code: int) -> int:
    print(f"mesh simulate: {sentence}", file=sys.stderr)
    return code
