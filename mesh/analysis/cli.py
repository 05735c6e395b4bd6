"""`mesh analyze` and `mesh analyze diff`: the commands around the pipeline."""

from __future__ import annotations

import errno
import json as json_text
import os
import sys
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter

from mesh.analysis.cluster.settings import LOCAL_MASTER, SparkOptions, parse_conf
from mesh.errors import ConfigError, Locked

# The codes of sysexits.h.
DIFFERENT = 1
"""`diff` found differences."""
USAGE = 64
BAD_DATA = 65
"""The input exists but cannot be used."""
NO_INPUT = 66
UNAVAILABLE = 69
CANNOT_CREATE = 73
IO_ERROR = 74
NOT_PERMITTED = 77

TIMEOUT_MAX_S = 2_592_000

app = App(
    name="analyze",
    help="Say from the brokers' event logs how the mesh fared: lives, parts, opinions, delivery.",
    usage="Usage: mesh analyze COMMAND [OPTIONS] [LOGDIR]",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)


@app.default
def analyze(
    logdir: str | None = None,
    *,
    out: str = "mesh-report",
    window: float | None = None,
    scenario: Path | None = None,
    run: str | None = None,
    around: str | None = None,
    within: float | None = None,
    master: str = LOCAL_MASTER,
    memory: str | None = None,
    conf: tuple[str, ...] = (),
    follow: bool = False,
    timeout: float | None = None,
    package: Path | None = None,
    doctor: bool = False,
    json: bool = False,
) -> int:
    """Say from the brokers' event logs how the mesh fared: lives, parts, opinions, delivery.

    Parameters
    ----------
    logdir
        Folder of event logs, which brokers write with --log-dir, or its URL. Subfolders are read too.
    out
        Folder or URL for results. Each result is a subfolder with report.html, summary.json, tables/
        (Parquet) and quarantine/ (lines that are not rows). current.json names the newest.
    window
        Length in seconds of one window of churn, views and traffic; 5 by default.
    scenario
        Write the events to this file, as a scenario for mesh simulate.
    run
        The run to write as a scenario, if the logs hold several.
    around
        Put only events around this time in UTC, such as 14:03:20, into the scenario.
    within
        Number of seconds before and after that time; 60 by default.
    master
        Where Spark runs: local[N] for N cores of this machine, or a cluster's address.
    memory
        Memory of Spark's driver, 512m or more. In local mode it is all of the job's, by default 2g.
        Otherwise Spark has the default.
    conf
        A setting of Spark, spark.SOMETHING=VALUE. It overrides ours, and may be repeated.
    follow
        Keep reading the logs of brokers on this machine, and show the mesh's health. The output keeps what
        was read, and the next --follow continues from there. With --json, print one line for each look.
    timeout
        Seconds after the first look at which --follow ends: above zero, at most 2592000 (30 days).
    package
        Write the zip for spark-submit --py-files to this file, and do nothing else.
    doctor
        Report on Java, Spark, arrow, memory and disk, with advice, and do nothing else.
    json
        Print the findings as JSON, as in summary.json.
    """
    of_analysis: dict[str, object] = {"--window": window, "--scenario": scenario, "--run": run}
    of_analysis |= {"--around": around, "--within": within}
    others = {"LOGDIR": logdir, **of_analysis, "--follow": follow or None, "--timeout": timeout}
    others |= {"--memory": memory, "--conf": conf or None, "--json": json or None}
    if doctor:
        useless = _first_given({"--package": package, **others})
        return _doctor() if useless is None else _does_nothing_else("--doctor", useless)
    if package is not None:
        useless = _first_given(others)
        return _package(package) if useless is None else _does_nothing_else("--package", useless)
    if logdir is None:
        return _refuse("it needs a folder of event logs", USAGE)
    if not logdir:
        return _refuse("LOGDIR is empty; name a folder of event logs", USAGE)
    if not out:
        return _refuse("--out is empty; name a folder or a URL", USAGE)
    if follow:
        useless = _first_given(of_analysis)
        if useless is not None:
            return _refuse(f"{useless} has no effect with --follow; leave out one of them", USAGE)
        if timeout is not None and not 0 < timeout <= TIMEOUT_MAX_S:
            return _refuse(
                f"--timeout {timeout:g} is not a number of seconds above zero and at most "
                f"{TIMEOUT_MAX_S} (30 days)",
                USAGE,
            )
    elif timeout is not None:
        return _refuse(
            "--timeout has no effect without --follow; add --follow, or leave out --timeout", USAGE
        )
    for flag, text in (("--around", around), ("--run", run)):
        if text is not None and scenario is None:
            return _refuse(f"{flag} says what goes into a scenario; name its file with --scenario", USAGE)
    if within is not None and around is None:
        return _refuse("--within has no effect without --around; name a time with --around", USAGE)
    try:
        spark = SparkOptions(master=master, memory=memory, conf=parse_conf(conf))
    except ValueError as error:
        return _refuse(str(error), USAGE)
    if follow:
        return _follow(logdir, out, spark, json, timeout)
    if scenario is not None and (problem := _unwritable(scenario)) is not None:
        return _refuse(*problem)
    return _analyze(logdir, out, window, spark, scenario, run, around, within, json)


def _first_given(flags: dict[str, object]) -> str | None:
    """The first flag that was given; the value of one that was not is None."""
    return next((flag for flag, value in flags.items() if value is not None), None)


def _does_nothing_else(flag: str, useless: str) -> int:
    return _refuse(f"{flag} does nothing else; leave out {useless}", USAGE)


def _analyze(
    logdir: str,
    out: str,
    window: float | None,
    spark: SparkOptions,
    scenario: Path | None,
    run: str | None,
    around: str | None,
    within: float | None,
    json: bool,
) -> int:
    from mesh.analysis.cluster.file_systems import NoFileSystem
    from mesh.analysis.cluster.reach import NoCluster
    from mesh.analysis.incident.writing import WITHIN_S, NoScenario
    from mesh.analysis.pipeline import WINDOW_S, ScenarioWish, analyse
    from mesh.analysis.reading.finding import NoRows
    from mesh.analysis.results.folder import OutputError
    from mesh.analysis.truth.tables import OtherTruth

    window_s = WINDOW_S if window is None else window
    progress = _Progress(quiet=json)
    try:
        wish = None
        if scenario is not None:
            wish = ScenarioWish(around, WITHIN_S if within is None else within, run)
        with progress:
            done = analyse(logdir, out, window_s=window_s, spark=spark, scenario=wish, say=progress.say)
    except (NoCluster, NoFileSystem) as error:
        return _refuse(str(error), UNAVAILABLE)
    except (NoRows, NoScenario, OtherTruth) as error:
        return _refuse(str(error), BAD_DATA)
    except OutputError as error:
        return _refuse(str(error), error.code)
    except Locked as error:
        return _refuse(str(error), CANNOT_CREATE)
    except ConfigError as error:
        return _refuse(str(error), USAGE)
    if scenario is not None and done.scenario is not None:
        try:
            scenario.write_text(done.scenario, encoding="utf-8")
        except OSError as error:
            return _refuse(*_cannot_write("--scenario", scenario, error))
    if json:
        print(json_text.dumps(done.findings.as_json(), ensure_ascii=False))
        return 0
    from rich.console import Console

    from mesh.analysis.reporting.terminal import summary

    console = Console(highlight=False)
    console.print(summary(done.findings))
    if done.known:
        console.print("these logs were analysed before; nothing was read again", soft_wrap=True)
    console.print(f"report: {done.where}/report.html", soft_wrap=True, markup=False)
    if scenario is not None:
        console.print(
            f"scenario: {scenario}; play it with mesh simulate {_as_path(scenario)}",
            soft_wrap=True,
            markup=False,
        )
    return 0


def _as_path(file: Path) -> str:
    """A form that `mesh simulate` does not take for the name of a scenario."""
    return str(file) if "/" in str(file) else f"./{file}"


@app.command
def diff(before: Path, after: Path, *, json: bool = False) -> int:
    """Say what changed from one analysis to another. Ends with 0 if nothing did, otherwise with 1.

    Parameters
    ----------
    before
        A folder of results (its current one is used), one result, or a summary.json.
    after
        Another.
    json
        Print the differences as JSON.
    """
    from mesh.analysis.reporting.diff import differences

    try:
        found = differences(_summary(before), _summary(after))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}", NO_INPUT)
    except (ValueError, KeyError, TypeError) as error:
        return _refuse(f"no summary of an analysis: {error}", BAD_DATA)
    if json:
        print(json_text.dumps({"schema": 1, "differences": [each._asdict() for each in found]}))
    elif found:
        from rich.console import Console

        from mesh.analysis.reporting.terminal_diff import comparison

        Console(highlight=False).print(comparison(found))
    else:
        print("no difference")
    return DIFFERENT if found else 0


def _summary(place: Path) -> dict[str, Any]:
    """The summary in a file, a result, or a folder of results.

    Raises:
        OSError: there is none.
        ValueError: it is none of ours.
    """
    path = place.expanduser()
    if path.is_dir() and (path / "current.json").exists():
        path = path / str(json_text.loads((path / "current.json").read_text())["current"])
    if path.is_dir():
        path = path / "summary.json"
    summary = json_text.loads(path.read_text(encoding="utf-8"))
    if not isinstance(summary, dict) or not str(summary.get("schema", "")).startswith("mangrove.analysis/"):
        raise ValueError(f"{path} is of another kind")
    return summary


def _follow(folder: str, out: str, spark: SparkOptions, json: bool, timeout: float | None) -> int:
    from mesh.analysis.cluster.file_systems import NoFileSystem
    from mesh.analysis.following.command import follow_logs
    from mesh.analysis.results.folder import OutputError

    try:
        follow_logs(folder, out, spark, json=json, timeout_s=timeout)
    except NoFileSystem as error:
        return _refuse(str(error), UNAVAILABLE)
    except OutputError as error:
        return _refuse(str(error), error.code)
    except Locked as error:
        return _refuse(str(error), CANNOT_CREATE)
    except ConfigError as error:
        return _refuse(str(error), USAGE)
    return 0


def _doctor() -> int:
    """Prints the environment's state. Returns unavailable if the analysis cannot run."""
    from mesh.analysis.cluster.doctor import examine

    findings = examine()
    for finding in findings:
        print(finding)
    return 0 if all(finding.well for finding in findings) else UNAVAILABLE


def _package(path: Path) -> int:
    from mesh.analysis.cluster.package import write_package

    try:
        write_package(path)
    except IsADirectoryError:
        return _refuse(f"--package {path} is a folder; name a file", CANNOT_CREATE)
    except FileExistsError:
        return _refuse(
            f"--package {path} exists and is no package of mesh analyze; name another file, or remove it",
            CANNOT_CREATE,
        )
    except OSError as error:
        return _refuse(*_cannot_write("--package", path, error))
    print(path)
    return 0


def _unwritable(scenario: Path) -> tuple[str, int] | None:
    """The refusal if the file cannot be created. Only an attempt tells, so it exists for a moment."""
    try:
        os.close(os.open(scenario, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        scenario.unlink()
    except FileExistsError:
        if scenario.is_dir():
            return f"--scenario {scenario} is a folder; name a file", CANNOT_CREATE
        return f"--scenario {scenario} exists; name another file, or remove it", CANNOT_CREATE
    except OSError as error:
        return _cannot_write("--scenario", scenario, error)
    return None


def _cannot_write(flag: str, file: Path, error: OSError) -> tuple[str, int]:
    """The sentence and the exit code for a file that cannot be written."""
    sentence = f"{flag} {file} cannot be written: {error.strerror}"
    if error.errno == errno.ENOENT:
        return f"{sentence}; make its folder first", CANNOT_CREATE
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{sentence}; name another file", NOT_PERMITTED
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return sentence, IO_ERROR
    return f"{sentence}; name another file", CANNOT_CREATE


def _refuse(sentence: str, code: int) -> int:
    print(f"mesh analyze: {sentence}", file=sys.stderr)
    return code


class _Progress:
    """A line on the terminal that shows the progress. Does nothing without a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status = None if quiet else self._console.status("") if self._console.is_terminal else None

    def say(self, stage: str) -> None:
        if self._status is not None:
            self._status.update(f"{stage} …")

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()
