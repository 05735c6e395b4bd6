"""`mesh analyze`: the command around the job."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mesh.errors import ConfigError

# The codes of sysexits.h.
USAGE = 64
NO_ROWS = 65
"""There was input, and none of it could be used."""
CANNOT_CREATE = 73


def analyze(
    logdir: Path,
    *,
    out: Path = Path("mesh-report"),
    window: float = 5.0,
    master: str = "local[2]",
    memory: str = "2g",
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
        Memory for Spark, which in local mode is all the job has.
    json
        Print the findings as JSON, as in summary.json.
    """
    from mesh.analysis.job import NoRows, analyse

    if out.exists() and not out.is_dir():
        return _refuse(f"--out {out} is a file; name a folder for the report", CANNOT_CREATE)
    progress = _Progress(quiet=json)
    try:
        with progress:
            findings = analyse(
                logdir, out, window_s=window, master=master, driver_memory=memory, say=progress.say
            )
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
