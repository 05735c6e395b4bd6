"""``mesh simulate``: plays scenarios from seeds, looks for seeds that fail, and shrinks failures.

A run's result is equal for equal scenario, seed and code; with ``--json`` it is one object on standard
output. Progress is on standard error.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter, Token

from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from simulations.cli import listing
from simulations.cli.showing import (
    Progress,
    SwarmProgress,
    fault_table,
    scenario_table,
    summary,
    swarm_summary,
)
from simulations.runs import diffing, playing, replaying, shrinking, swarming
from simulations.runs.playing import Result
from simulations.scenario import Scenario, TooManyBrokers
from simulations.scenarios import scenario_file

app = App(
    name="simulate",
    help="Run a mesh in virtual time and break it on purpose.",
    usage="Usage: mesh simulate COMMAND [OPTIONS] [SCENARIO]",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
EXIT_VIOLATED: Final = ExitCode.FAILED
# A user's mistakes, told as in every other command of ours. First match wins, as there.
CODES: Final[tuple[tuple[type[ValueError], ExitCode], ...]] = (
    (scenario_file.UnknownScenario, ExitCode.USAGE),
    (scenario_file.UnreadableScenario, ExitCode.NO_INPUT),
    (diffing.UnreadableTrace, ExitCode.NO_INPUT),
    (scenario_file.ScenarioFileError, ExitCode.BAD_DATA),
    (diffing.TraceError, ExitCode.BAD_DATA),
    (ValueError, ExitCode.USAGE),
)


def _whole(type_: type, tokens: Sequence[Token]) -> int:
    """Refuse fractions: the usual conversion turns "1.5" into 2, a different seed from the one requested."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f'"{tokens[0].value[:20]}" is no whole number') from None


Whole = Annotated[int, Parameter(converter=_whole)]


@app.default
def simulate(
    scenario: str | None = None,
    *,
    seed: Whole | None = None,
    nodes: Whole | None = None,
    full: bool = False,
    out: str | None = None,
    keep: str | None = None,
    trace: str | None = None,
    log_heartbeats: Literal["each", "summary"] = "each",
    fidelity: Literal["full", "cores"] = "full",
    json: bool = False,
) -> int:
    """Run real brokers and clients in virtual time, break them on purpose, and judge the outcome.

    The same scenario, seed and number of nodes always give the same history, which one hash identifies. The
    exit code is 0 if every check passed and 1 if not.

    Parameters
    ----------
    scenario
        What is done to the mesh: a name (mesh simulate list shows all), the path of a scenario file, or
        swarm-SEED for what the swarm plays.
    seed
        The source of everything random in the run; 1 if it is not given.
    nodes
        How many brokers; by default as the scenario says.
    full
        Play it at its full size, which may take long.
    out
        A folder for the brokers' event logs, and for what was really done in truth-*.jsonl.
    keep
        If it fails, a file for the failure, which replay and shrink read.
    trace
        A file for the history, a line for each turn, arrival and fault; diff reads it.
    log_heartbeats
        Rows of heartbeats in the event logs: each; or summary, one for each peer and 16 periods, of which a
        crash loses the last.
    fidelity
        With cores, only the decision-making cores of the brokers run, hundreds if needed, without clients.
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
    _check_files(keep, trace)
    in_file = nodes is None and scenario_file.is_path(scenario)
    with _refusals(out, too_many=ExitCode.BAD_DATA if in_file else ExitCode.USAGE):
        found, drawn_seed = _found(scenario)
        found = found.at_size(size)
        found = found if nodes is None else replace(found, brokers=nodes)
        chosen = seed if seed is not None else drawn_seed
        if fidelity == "cores":
            _refuse_with_cores(out=out, keep=keep, trace=trace)
            return _play_cores(found, chosen, as_json=json)
        try:
            run = playing.Play(
                found,
                seed=chosen,
                size=size,
                out=out,
                say=progress,
                keep_history=trace is not None,
                log_heartbeats=log_heartbeats,
            )
            result = run.run()
        finally:
            progress.end()
    untraced = unkept = None
    if trace is not None:
        untraced = _unwritten(trace, diffing.trace_text(run, result))
    if keep is not None and not result.ok:
        unkept = _unwritten(keep, replaying.write(replaying.failure_of(result)))
    if json:
        print(to_json(result.as_json(), indent=2))
    else:
        kept = None if unkept else keep
        again = None if result.ok else _replay_command(scenario, result, nodes, kept)
        print(summary(result, time.perf_counter() - began, out, again))
    if failed := unkept or untraced:
        raise failed
    return ExitCode.OK if result.ok else EXIT_VIOLATED


@app.command(name="list")
def list_(*, json: bool = False) -> None:
    """Show all scenarios, what each expects and its outcome.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    with _refusals(None):
        rows = listing.rows()
    if json:
        print(to_json({"scenarios": [row.as_json() for row in rows]}, indent=2))
    else:
        scenario_table(rows)


@app.command
def faults(*, json: bool = False) -> None:
    """Show what can be done to a mesh, to which targets, and by how much.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    kinds = listing.kinds()
    if json:
        print(to_json({"faults": [listing.fault_as_json(kind) for kind in kinds]}, indent=2))
    else:
        fault_table(kinds)


@app.command
def swarm(
    *,
    seeds: Whole = 100,
    first: Whole | None = None,
    jobs: Whole = 1,
    minutes: float | None = None,
    stored: bool = False,
    out: str | None = None,
    json: bool = False,
) -> int:
    """Play many seeds, each a different scenario; show which failed, at what rate, and which faults met.

    The exit code is 1 if any seed failed.

    Parameters
    ----------
    seeds
        How many.
    first
        The first of them; without it the swarm draws a new one, since only new seeds give a meaningful rate.
    jobs
        How many processes play them.
    minutes
        Begin no further seed after this long.
    stored
        Have durable subscriptions in each, with workers and messages at level stored.
    out
        A folder in which every failure becomes a file, which replay and shrink read.
    json
        Print one JSON object.
    """
    _at_least(1, seeds=seeds, jobs=jobs)
    fresh = first is None
    first = swarming.fresh_seed() if first is None else first
    _at_least(0, first=first)
    wall_max_s = _seconds(minutes)
    played = partial(swarming.play_seed, stored=stored)
    with _refusals(out):
        if out is not None:
            os.makedirs(out, exist_ok=True)
    report = swarming.Report(seeds, first, fresh)
    unkept: CommandFailed | None = None
    interrupted = False
    began = time.perf_counter()
    with _interruptible() as interruption, SwarmProgress(seeds) as progress:
        try:
            with closing(
                swarming.swarm(first, seeds, jobs=jobs, wall_max_s=wall_max_s, played=played)
            ) as outcomes:
                for outcome in outcomes:
                    report.add(outcome)
                    progress.passed(outcome, len(report.failures))
                    if out is not None and unkept is None:
                        unkept = _keep(report, outcome, out)
        except KeyboardInterrupt:
            interrupted = True
    report.wall_s = time.perf_counter() - began
    if json:
        print(to_json(report.as_json(), indent=2))
    else:
        swarm_summary(report)
    if unkept is not None:
        raise unkept
    if interrupted:
        return interruption.code
    return EXIT_VIOLATED if report.failures else ExitCode.OK


def _keep(report: swarming.Report, outcome: swarming.Outcome, folder: str) -> CommandFailed | None:
    """Write a failure to its file. An error in writing ends no swarm, which may have run for hours."""
    if outcome.result is None:
        return None
    path = os.path.join(folder, f"{outcome.result.scenario.name}.toml")
    unkept = _unwritten(path, replaying.write(replaying.failure_of(outcome.result)))
    if unkept is None:
        report.kept[outcome.seed] = path
    return unkept


@app.command
def replay(file: str, *, json: bool = False) -> int:
    """Play a failure again, exactly as it was.

    The exit code is 1 while it fails, 0 when it no longer fails, and 70 if the same code gives another
    history.

    Parameters
    ----------
    file
        A file from simulate --keep, swarm --out or shrink.
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
    print(to_json(found.result.as_json(), indent=2) if json else str(found))
    if found.broken:
        return ExitCode.BUG
    return ExitCode.OK if found.again is None else EXIT_VIOLATED


@app.command
def shrink(
    file: str,
    *,
    out: str | None = None,
    plays: Whole = shrinking.PLAYS_MAX,
    minutes: float | None = None,
    json: bool = False,
) -> int:
    """Make a failure small: fewer faults, brokers, clients and seconds, while the same check still fails.

    Ctrl-C and SIGTERM end it with the smallest so far.

    Parameters
    ----------
    file
        A file from simulate --keep or swarm --out.
    out
        The file for the smaller one; by default beside FILE, ending with .small.toml.
    plays
        How many smaller ones are tried at most.
    minutes
        Try no further one after this long.
    json
        Print one JSON object.
    """
    _at_least(1, plays=plays)
    wall_max_s = _seconds(minutes)
    target = out or f"{file.removesuffix('.toml')}.small.toml"
    progress = Progress(quiet=json and not sys.stderr.isatty())
    with _refusals(None):
        failure = replaying.read(Path(file))
        _check_files(target)
        try:
            with _interruptible() as interruption:
                shrunk = shrinking.shrink(
                    failure, plays_max=plays, wall_max_s=wall_max_s, say=progress.counted
                )
        finally:
            progress.end()
    unwritten = _unwritten(
        target, replaying.write(shrunk.after, f"Shrunk in {shrunk}.\n{shrunk.after.violation}")
    )
    if json:
        print(to_json({"file": None if unwritten else target, **shrunk.as_json()}, indent=2))
    else:
        print(f"{target}: {shrunk}\n  {shrunk.after.check}: {shrunk.after.violation}")
    if unwritten is not None:
        raise unwritten
    return interruption.code if shrunk.ending is shrinking.Ending.INTERRUPTED else ExitCode.OK


@app.command(usage="Usage: mesh simulate diff [OPTIONS] ONE [OTHER]")
def diff(
    one: str,
    other: str | None = None,
    *,
    twice: bool = False,
    seed: Whole | None = None,
    full: bool = False,
    json: bool = False,
) -> int:
    """Find the first event in which two runs differ, and show the events that led to it.

    The exit code is 0 if they are equal, and 1 if they differ.

    Parameters
    ----------
    one
        A file from simulate --trace; or a scenario, by name or file, perhaps with a seed, as in calm@7.
    other
        The same, for the other run.
    twice
        Play ONE in two processes with different hash seeds, one of them with its history kept.
    seed
        For scenarios without a seed.
    full
        Play them at their full sizes.
    json
        Print one JSON object.
    """
    if twice == (other is not None):
        raise CommandFailed(ExitCode.USAGE, "name two runs, or one and --twice")
    with _refusals(None):
        left = _side(one, seed, full=full, hash_seed=1, keeps=False)
        right = _side(other or one, seed, full=full, hash_seed=2 if twice else 1, keeps=twice)
        if twice and isinstance(left, diffing.TraceFile):
            raise CommandFailed(ExitCode.USAGE, f"--twice plays a scenario, and {one} is a file of a history")
        found = diffing.diff(left, right)
    print(to_json(found.as_json(), indent=2) if json else str(found))
    return EXIT_VIOLATED if found.line is not None else ExitCode.OK


# --- shared functions


@dataclass(slots=True)
class Interruption:
    """Records whether Ctrl-C or SIGTERM asked for an end, if one did."""

    code: ExitCode = ExitCode.INTERRUPTED


@contextmanager
def _interruptible() -> Iterator[Interruption]:
    """Treat SIGTERM like Ctrl-C inside this block, so that the command shows what it has."""
    interruption = Interruption()

    def terminated(number: int, frame: FrameType | None) -> None:
        interruption.code = ExitCode.TERMINATED
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield interruption
    except KeyboardInterrupt:
        if interruption.code is ExitCode.TERMINATED:
            raise CommandFailed(interruption.code, "terminated before there was anything to show") from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _play_cores(scenario: Scenario, seed: int, *, as_json: bool) -> int:
    from simulations import cores  # only here: the other commands do not need it

    began = time.perf_counter()
    outcome = cores.play(scenario, seed=seed)
    if as_json:
        print(to_json(outcome.as_json(), indent=2))
    else:
        print(cores.told(outcome, time.perf_counter() - began))
    return ExitCode.OK if outcome.ok else EXIT_VIOLATED


def _refuse_with_cores(**files: str | None) -> None:
    for name, path in files.items():
        if path is not None:
            sentence = f"--{name} is of runs at full fidelity; cores write no logs and no history"
            raise CommandFailed(ExitCode.USAGE, sentence)


def _found(name: str) -> tuple[Scenario, int]:
    """A scenario, and the seed for it unless another is given."""
    return swarming.drawn(name) or (scenario_file.load(name), 1)


def _side(
    text: str, seed: int | None, *, full: bool, hash_seed: int, keeps: bool
) -> diffing.TraceFile | diffing.Run:
    if os.path.exists(text) and not os.path.isdir(text) and not text.endswith(".toml"):
        return diffing.TraceFile(Path(text))
    name, at, given = text.rpartition("@") if "@" in text else (text, "", "")
    if at and not (given.isascii() and given.isdigit()):
        raise CommandFailed(ExitCode.USAGE, f"{text}: the seed after the @ must be a whole number")
    if ("." in name or os.sep in name) and not os.path.exists(name):  # no scenario has such a name
        raise CommandFailed(ExitCode.NO_INPUT, f"{name}: there is no such file")
    try:
        scenario, usual = _found(name)
    except scenario_file.UnknownScenario as error:
        if os.path.isdir(text):
            raise CommandFailed(ExitCode.NO_INPUT, f"{text} is a folder; name a file") from None
        raise CommandFailed(ExitCode.USAGE, f"{text} is no file of a history, and {error}") from None
    chosen = int(given) if given else seed if seed is not None else usual
    return diffing.Run(scenario, chosen, "full" if full else "ci", hash_seed, keeps)


def _replay_command(scenario: str, result: Result, nodes: Whole | None, keep: str | None) -> str:
    if keep is not None:
        return f"mesh simulate replay {shlex.quote(keep)}"
    parts = [f"mesh simulate {shlex.quote(scenario)} --seed {result.seed}"]
    parts += ["--full"] if result.size == "full" else []
    parts += [f"--nodes {nodes}"] if nodes is not None else []
    return " ".join(parts)


@contextmanager
def _refusals(out: str | None, *, too_many: ExitCode = ExitCode.USAGE) -> Iterator[None]:
    """Turn a user's mistake into a message and an exit code. Hide the brokers' warnings from the user.

    ``too_many`` is the code for a mesh that is too large: it depends on where the number came from.
    """
    swarming.hush()
    try:
        yield
    except TooManyBrokers as error:
        raise CommandFailed(too_many, str(error)) from error
    except ValueError as error:
        code = next(code for kind, code in CODES if isinstance(error, kind))
        raise CommandFailed(code, str(error)) from error
    except OSError as error:
        if out is None:
            raise
        sentence = f"cannot write to {out}: {error.strerror or error}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error


def _check_files(*paths: str | None) -> None:
    """Report an unwritable file before a run instead of after it."""
    for path in paths:
        if path is not None and (os.path.isfile(path) or os.path.isdir(path)):
            _write(path, None)
        elif path is not None and not os.path.exists(path):  # otherwise it is a pipe, or a device
            _write(path, None)
            os.unlink(path)


def _write(path: str, text: str | None) -> None:
    """Write the text. Without a text, only check that the file can be written."""
    try:
        with open(path, "a" if text is None else "w", encoding="utf-8") as file:
            try:
                file.write(text or "")
                file.flush()
            except OSError:
                _discard(path)
                raise
    except OSError as error:
        sentence = f"cannot write {path}: {error.strerror or error}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error


def _unwritten(path: str, text: str) -> CommandFailed | None:
    """Report why the file could not be written, but first show the outcome, which may have taken hours."""
    try:
        _write(path, text)
    except CommandFailed as error:
        return error
    return None


def _discard(path: str) -> None:
    """Remove a half-written file, which could be mistaken for a whole one."""
    if os.path.isfile(path):
        os.unlink(path)


def _seconds(minutes: float | None) -> float | None:
    if minutes is not None and not 0 < minutes < math.inf:
        raise CommandFailed(ExitCode.USAGE, f"--minutes is {minutes:g}; it must be a number above 0")
    return None if minutes is None else minutes * 60


def _at_least(least: int, **numbers: Any) -> None:
    for name, number in numbers.items():
        if number < least:
            raise CommandFailed(ExitCode.USAGE, f"--{name} is {number}; it must be at least {least}")
