"""`mesh analyze`: the command around the job."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mesh.analysis.cluster.settings import LOCAL_MASTER, SparkOptions, parse_conf
from mesh.errors import ConfigError

# The codes of sysexits.h.
USAGE = 64
NO_ROWS = 65
"""There was input, and none of it could be used."""
UNAVAILABLE = 69
CANNOT_CREATE = 73
NOT_PERMITTED = 77


def analyze(
    logdir: Path | None = None,
    *,
    out: Path = Path("mesh-report"),
    window: float = 5.0,
    master: str = LOCAL_MASTER,
    memory: str | None = None,
    conf: tuple[str, ...] = (),
    package: Path | None = None,
    doctor: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Say from the brokers' event logs how the mesh fared: churn, partitions, delivery.

    Parameters
    ----------
    logdir
        Folder of event logs, as brokers write them with --log-dir; folders in it are read too.
    out
        Folder for report.html, summary.json, tables/ (Parquet) and quarantine/ (lines that are no rows).
    window
        Seconds in one window of the partition analysis; at least two survey periods.
    master
        Where Spark runs: local[N] for N cores of this machine, or a cluster's address.
    memory
        Memory of Spark's driver, which in local mode is all the job has: 2g there, Spark's default elsewhere.
    conf
        A setting of Spark, spark.SOMETHING=VALUE; may be repeated, and wins over ours.
    package
        Write the zip for spark-submit --py-files to this file, and do nothing else.
    doctor
        Say which Java, Spark, arrow, memory and disk are there, and what to do about them, and do nothing
        else.
    json
        Print the findings as JSON, as in summary.json.
    """
    if doctor:
        return _doctor()
    if package is not None:
        return _package(package)
    if logdir is None:
        return _refuse("it needs a folder of event logs", USAGE)
    try:
        spark = SparkOptions(master=master, memory=memory, conf=parse_conf(conf))
    except ValueError as error:
        return _refuse(f"--conf {error}", USAGE)
    from mesh.analysis.cluster.reach import NoCluster
    from mesh.analysis.job import NoRows, analyse

    if out.exists() and not out.is_dir():
        return _refuse(f"--out {out} is a file; name a folder for the report", CANNOT_CREATE)
    progress = _Progress(quiet=json)
    try:
        with progress:
            findings = analyse(logdir, out, window_s=window, spark=spark, say=progress.say)
    except NoCluster as error:
        return _refuse(str(error), UNAVAILABLE)
    except NoRows as error:
        return _refuse(str(error), NO_ROWS)
    except ConfigError as error:
        return _refuse(f"--window {window:g}: {error}", USAGE)
    except (PermissionError, NotADirectoryError) as error:
        if not str(error.filename or "").startswith(str(out.expanduser().resolve())):
            raise
        return _refuse(f"--out {out} cannot be written: {error.strerror}; name another folder", CANNOT_CREATE)
    if json:
        print(json_text.dumps(findings.as_json(), ensure_ascii=False))
        return 0
    from rich.console import Console

    from mesh.analysis.summary import summary

    console = Console(highlight=False)
    console.print(summary(findings))
    console.print(f"report: {Path(out) / 'report.html'}", soft_wrap=True)
    return 0


def _doctor() -> int:
    """Prints what is there; unavailable if the analysis cannot run."""
    from mesh.analysis.cluster.doctor import examine

    findings = examine()
    for finding in findings:
        print(finding)
    return 0 if all(finding.well for finding in findings) else UNAVAILABLE


def _package(path: Path) -> int:
    from mesh.analysis.cluster.package import write_package

    try:
        write_package(path)
    except PermissionError as error:
        return _refuse(f"--package {path} cannot be written: {error.strerror}", NOT_PERMITTED)
    except OSError as error:
        return _refuse(f"--package {path} cannot be written: {error.strerror}", CANNOT_CREATE)
    print(path)
    return 0


def _refuse(sentence: str, code: int) -> int:
    print(f"mesh analyze: {sentence}", file=sys.stderr)
    return code


class _Progress:
    """A line on the terminal that says what goes on; nothing where there is none."""

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
