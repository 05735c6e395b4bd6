"""``mesh simulate``: plays scenarios from seeds, looks for seeds that fail, and makes failures small.

A run's result is equal for equal scenario, seed and code; with ``--json`` it is one object on standard
output. Progress is on standard error.
"""

from __future__ import annotations

import json as json_format
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from cyclopts import App, Parameter

from mesh.cli.exits import CommandFailed, ExitCode
from simulations import diffing, listing, playing, replaying, scenario_file, shrinking, swarming
from simulations.playing import Result
from simulations.scenario import Scenario
from simulations.showing import Progress, SwarmProgress, fault_table, scenario_table, summary, swarm_summary

app = App(
    name="simulate",
    help="Run a mesh in virtual time and break it on purpose.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
EXIT_VIOLATED: Final = ExitCode.FAILED


@app.default
def simulate(
    scenario: str | None = None,
    *,
    seed: int | None = None,
    nodes: int | None = None,
    full: bool = False,
    out: str | None = None,
    keep: str | None = None,
    trace: str | None = None,
    fidelity: Literal["full", "cores"] = "full",
    core: Literal["membership", "gossip"] = "membership",
    json: bool = False,
) -> int:
    """Run real brokers and clients in virtual time, break them on purpose, and judge how they fared.

    The same scenario, seed and number of nodes always give the same history, which is named by one hash. The
    exit code is 0 if every check passed and 1 if not.

    Parameters
    ----------
    scenario
        What is done to the mesh: a name, of which ``mesh simulate list`` has all, or the path of a scenario
        file, or swarm-SEED for what the swarm plays.
    seed
        Everything random in the run follows from it; 1 if it is not given.
    nodes
        How many brokers; by default as the scenario says.
    full
        Play it at its full size, which may take long.
    out
        A folder for the brokers' event logs, and for what was really done in truth-*.jsonl.
    keep
        If it fails, a file for it, which replay and shrink read.
    trace
        A file for the history, a line for each turn, arrival and fault; diff reads it.
    fidelity
        With cores no brokers run but the cores that decide for them, thousands if need be, without clients.
    core
        Which one: today's membership, or a gossip of bounded degree.
    json
        Print the result as one JSON object, which is equal for equal runs.
    """
    if scenario is None:
        raise CommandFailed(
            ExitCode.USAGE,
            f"name a scenario: {', '.join(scenario_file.shipped())}; or one of list, faults, swarm, replay, "
            f"shrink, diff",
        )
    progress = Progress(quiet=json and not sys.stderr.isatty())
    began = time.perf_counter()
    size = "full" if full else "ci"
    with _refusals(out):
        found, drawn_seed = _found(scenario)
        found = found.at_size(size)
        found = found if nodes is None else replace(found, brokers=nodes)
        chosen = seed if seed is not None else drawn_seed
        if fidelity == "cores":
            _refuse_with_cores(out=out, keep=keep, trace=trace)
            return _play_cores(found, chosen, core, as_json=json)
        try:
            run = playing.Play(
                found, seed=chosen, size=size, out=out, say=progress, keep_history=trace is not None
            )
            result = run.run()
        finally:
            progress.end()
    if trace is not None:
        _write(trace, diffing.trace_text(run, result))
    if keep is not None and not result.ok:
        _write(keep, replaying.write(replaying.failure_of(result)))
    if json:
        print(json_format.dumps(result.as_json(), indent=2))
    else:
        again = None if result.ok else _replay_command(scenario, result, nodes, keep)
        print(summary(result, time.perf_counter() - began, out, again))
    return ExitCode.OK if result.ok else EXIT_VIOLATED


@app.command(name="list")
def list_(*, json: bool = False) -> None:
    """Show the scenarios that there are, what each expects and how it fares.

    Parameters
    ----------
    json
        Print one JSON list.
    """
    with _refusals(None):
        rows = listing.rows()
    if json:
        print(json_format.dumps([row.as_json() for row in rows], indent=2))
    else:
        scenario_table(rows)


@app.command
def faults(*, json: bool = False) -> None:
    """Show what can be done to a mesh, to whom, and by how much.

    Parameters
    ----------
    json
        Print one JSON list.
    """
    kinds = listing.kinds()
    if json:
        print(json_format.dumps([listing.fault_as_json(kind) for kind in kinds], indent=2))
    else:
        fault_table(kinds)


@app.command
def swarm(
    *,
    seeds: int = 100,
    first: int = 1,
    jobs: int = 1,
    minutes: float | None = None,
    out: str | None = None,
    json: bool = False,
) -> int:
    """Play many seeds, each a scenario of its own, and show which failed and what met what.

    The exit code is 1 if any seed failed.

    Parameters
    ----------
    seeds
        How many.
    first
        The first of them.
    jobs
        How many processes play them.
    minutes
        Begin no further seed after this long.
    out
        A folder in which every failure becomes a file, which replay and shrink read.
    json
        Print one JSON object.
    """
    _at_least(1, seeds=seeds, jobs=jobs)
    _at_least(0, first=first)
    if out is not None:
        with _refusals(out):
            os.makedirs(out, exist_ok=True)
    began = time.perf_counter()
    report = swarming.Report()
    with SwarmProgress(seeds) as progress:
        wall_max_s = None if minutes is None else minutes * 60
        for outcome in swarming.swarm(first, seeds, jobs=jobs, wall_max_s=wall_max_s):
            report.add(outcome)
            report.wall_s = time.perf_counter() - began
            if out is not None and outcome.result is not None:
                failure = replaying.failure_of(outcome.result)
                _write(os.path.join(out, f"swarm-{outcome.seed}.toml"), replaying.write(failure))
            progress.passed(outcome, len(report.failures))
    if json:
        print(json_format.dumps(report.as_json(), indent=2))
    else:
        swarm_summary(report, out)
    return EXIT_VIOLATED if report.failures else ExitCode.OK


@app.command
def replay(file: str, *, json: bool = False) -> int:
    """Play a failure again, exactly as it was.

    The exit code is 1 while it fails, 0 when it does not any more, and 70 if the same code made another
    history of it.

    Parameters
    ----------
    file
        What simulate --keep, swarm --out or shrink wrote.
    json
        Print the result as one JSON object.
    """
    progress = Progress(quiet=json and not sys.stderr.isatty())
    with _refusals(None):
        failure = replaying.read(Path(file))
        if failure.strangers:
            print(
                f"mesh simulate replay: {file} was written by {failure.strangers}; the run may be another, "
                f"and only whether {failure.check} fails is compared",
                file=sys.stderr,
            )
        try:
            found = replaying.replay(failure, say=progress)
        finally:
            progress.end()
    print(json_format.dumps(found.result.as_json(), indent=2) if json else str(found))
    if found.broken:
        return ExitCode.BUG
    return ExitCode.OK if found.again is None else EXIT_VIOLATED


@app.command
def shrink(file: str, *, out: str | None = None, plays: int = shrinking.PLAYS_MAX) -> None:
    """Make a failure small: fewer faults, brokers, clients and seconds, while the same check still fails.

    Parameters
    ----------
    file
        What simulate --keep or swarm --out wrote.
    out
        The file for the smaller one; by default beside FILE, ending with .small.toml.
    plays
        How many smaller ones are tried at most.
    """
    _at_least(1, plays=plays)
    progress = Progress(quiet=False)
    with _refusals(None):
        failure = replaying.read(Path(file))
        try:
            shrunk = shrinking.shrink(failure, plays_max=plays, say=progress.counted)
        finally:
            progress.end()
    target = out or f"{file.removesuffix('.toml')}.small.toml"
    _write(target, replaying.write(shrunk.after, f"Shrunk in {shrunk}.\n{shrunk.after.violation}"))
    print(f"{target}: {shrunk}\n  {shrunk.after.check}: {shrunk.after.violation}")


@app.command
def diff(
    one: str,
    other: str | None = None,
    *,
    twice: bool = False,
    seed: int | None = None,
    full: bool = False,
) -> int:
    """Find the first event in which two runs differ.

    The exit code is 0 if they do not, and 1 if they do.

    Parameters
    ----------
    one
        What simulate --trace wrote; or a scenario, by name or file, perhaps with a seed, as in calm@7.
    other
        The same, of the other run.
    twice
        Play ONE in two processes with different hash seeds, one of them with its history kept.
    seed
        Of the scenarios that have none.
    full
        Play them at their full sizes.
    """
    if twice == (other is not None):
        raise CommandFailed(ExitCode.USAGE, "name two runs, or one and --twice")
    with _refusals(None):
        found = diffing.diff(
            _side(one, seed, full=full, hash_seed=1, keeps=False),
            _side(other or one, seed, full=full, hash_seed=2 if twice else 1, keeps=twice),
        )
    print(found)
    return EXIT_VIOLATED if found.line is not None else ExitCode.OK


# --- what they share


def _play_cores(
    scenario: Scenario, seed: int, core: Literal["membership", "gossip"], *, as_json: bool
) -> int:
    from simulations import cores  # only here: the other commands need none of it

    began = time.perf_counter()
    outcome = cores.play(scenario, seed=seed, core=core)
    if as_json:
        print(json_format.dumps(outcome.as_json(), indent=2))
    else:
        print(cores.told(outcome, time.perf_counter() - began))
    return ExitCode.OK if outcome.ok else EXIT_VIOLATED


def _refuse_with_cores(**files: str | None) -> None:
    for name, path in files.items():
        if path is not None:
            sentence = f"--{name} is of runs at full fidelity; cores write no logs and no history"
            raise CommandFailed(ExitCode.USAGE, sentence)


def _found(name: str) -> tuple[Scenario, int]:
    """A scenario, and the seed it is played with unless another is given."""
    return swarming.drawn(name) or (scenario_file.load(name), 1)


def _side(
    text: str, seed: int | None, *, full: bool, hash_seed: int, keeps: bool
) -> diffing.TraceFile | diffing.Run:
    if os.path.isfile(text) and not text.endswith(".toml"):
        return diffing.TraceFile(Path(text))
    name, _, given = text.rpartition("@") if "@" in text else (text, "", "")
    if given and not given.isdigit():
        raise CommandFailed(ExitCode.USAGE, f"{text}: the seed after the @ must be a number")
    scenario, usual = _found(name)
    chosen = int(given) if given else seed if seed is not None else usual
    return diffing.Run(scenario, chosen, "full" if full else "ci", hash_seed, keeps)


def _replay_command(scenario: str, result: Result, nodes: int | None, keep: str | None) -> str:
    if keep is not None:
        return f"mesh simulate replay {keep}"
    parts = [f"mesh simulate {scenario} --seed {result.seed}"]
    parts += ["--full"] if result.size == "full" else []
    parts += [f"--nodes {nodes}"] if nodes is not None else []
    return " ".join(parts)


@contextmanager
def _refusals(out: str | None) -> Iterator[None]:
    """What a user did wrong becomes a sentence; brokers' warnings are no concern of who plays with them."""
    swarming.hush()
    try:
        yield
    except diffing.TraceError as error:
        raise CommandFailed(ExitCode.BAD_DATA, str(error)) from error
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from error
    except OSError as error:
        if out is None:
            raise
        sentence = f"cannot write logs to {out}: {error.strerror or error}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        sentence = f"cannot write {path}: {error.strerror or error}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error


def _at_least(least: int, **numbers: Any) -> None:
    for name, number in numbers.items():
        if number < least:
            raise CommandFailed(ExitCode.USAGE, f"--{name} is {number}; it must be at least {least}")
