"""Two versions of Mangrove side by side: each of our works on both, in turn, and the ratio pair by pair.

A machine's speed drifts within minutes, so two medians of different minutes say little. Here each pair runs
one work on both versions, one right after the other. The order alternates from pair to pair. The result is
the median of the pairs' ratios, with the interval in which the true median lies at 95 %.

The other version is a wheel or a checkout. It runs in processes of its own, whose path begins with it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mesh.bench.harness import BenchError, Case, Figures, machine, progress_of

PAIRS: Final = 15
CONFIDENCE: Final = 0.95
CASE_TIMEOUT_S: Final = 600.0
OURS: Final = "mangrove"
"""Prefix of the names of our systems; those of others are not measured."""

# Runs in a child of the version under test, so it uses only names that every version has.
_ONE_CASE: Final = """
import json, sys
from importlib import import_module
if __name__ == "__main__":
    name, scale, work, system = sys.argv[1:]
    import mesh
    for case in import_module("mesh.bench." + name).cases(float(scale), {}):
        if (case.work, case.system) == (work, system):
            print(json.dumps({"from": mesh.__file__, "figures": case.run()}))
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one work on both versions. ``ratios``: this version divided by the other, for each
    pair."""

    work: str
    system: str
    figure: str
    this: float
    other: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval in which the true median ratio lies at 95 %, or None if there are too few pairs."""
        return median_interval(self.ratios)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The narrowest pair of ordered ``values`` that holds the true median with ``confidence``.

    It uses the binomial distribution of the number of values below the median, so it assumes nothing about
    their own distribution (order statistics; Conover, Practical Nonparametric Statistics, section 3.2). None
    if even the smallest and the largest value hold it with less confidence; at 95 % that is so for fewer than
    six values.
    """
    ordered, count = sorted(values), len(values)
    best = None
    for depth in range(count // 2):
        outside = 2 * sum(comb(count, below) for below in range(depth + 1)) / 2**count
        if 1 - outside < confidence:
            break
        best = ordered[depth], ordered[count - 1 - depth]
    return best


@contextmanager
def version_at(path: str) -> Iterator[Path]:
    """The folder that holds the other version's packages: a checkout, or a temporarily unpacked wheel.

    Raises:
        BenchError: ``path`` is neither.
    """
    place = Path(path).expanduser().resolve()
    if place.is_dir() and (place / "mesh" / "bench").is_dir():
        yield place
    elif place.suffix == ".whl" and place.is_file():
        with tempfile.TemporaryDirectory(prefix="mesh-bench-") as folder:
            try:
                with zipfile.ZipFile(place) as wheel:
                    wheel.extractall(folder)
            except (OSError, zipfile.BadZipFile) as error:
                raise BenchError(f"cannot unpack {path}: {error}") from error
            yield Path(folder)
    else:
        raise BenchError(f"{path!r} is neither a wheel nor a checkout of this project")


def run_case(folder: Path, name: str, scale: float, case: Case) -> Figures:
    """One case in a fresh process of the version in ``folder``. Raises `BenchError` if it fails."""
    arguments = [name, str(scale), case.work, case.system]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ONE_CASE, *arguments],  # -P: the working folder is not on the path
            env=environment,
            capture_output=True,
            text=True,
            timeout=CASE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(
            f"{case.work}, {case.system} did not end within {CASE_TIMEOUT_S:g} s in {folder}"
        ) from None
    if done.returncode != 0 or not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1:] or ["that version has no such case"]
        raise BenchError(f"{case.work}, {case.system} failed in {folder}: {last[0]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not Path(report["from"]).is_relative_to(folder):
        raise BenchError(f"the process for {folder} loaded {report['from']}")
    figures: Figures = report["figures"]
    return figures


def compare(
    cases: Sequence[Case], pairs: int, this: Callable[[Case], Figures], other: Callable[[Case], Figures]
) -> Iterator[tuple[Case, list[tuple[Figures, Figures]]]]:
    """Run each case on both versions, ``pairs`` times, in alternating order. Yields after every pair."""
    for case in cases:
        samples: list[tuple[Figures, Figures]] = []
        for number in range(pairs):
            if number % 2:
                theirs = other(case)
                samples.append((this(case), theirs))
            else:
                ours = this(case)
                samples.append((ours, other(case)))
            yield case, samples


def comparisons(case: Case, samples: Sequence[tuple[Figures, Figures]]) -> list[Comparison]:
    """All figures of a case that both versions have and that are above zero."""
    ours, theirs = zip(*samples, strict=True)
    return [
        Comparison(
            case.work,
            case.system,
            figure,
            statistics.median(one[figure] for one in ours),
            statistics.median(one[figure] for one in theirs),
            tuple(one[figure] / two[figure] for one, two in samples),
        )
        for figure in ours[0]
        if all(one.get(figure, 0) > 0 for one in (*ours, *theirs))
    ]


def bench_against(
    name: str, cases: Sequence[Case], path: str, pairs: int, scale: float, as_json: bool
) -> list[Comparison]:
    """Measure ``cases`` here and in the version at ``path``; print a table, or one JSON document."""
    if pairs < 1:
        raise BenchError(f"--pairs is {pairs}; at least one pair is needed")
    ours = [case for case in cases if case.system.startswith(OURS)]
    here = Path(__file__).resolve().parents[2]
    finished: dict[tuple[str, str], list[Comparison]] = {}
    with version_at(path) as there, progress_of(len(ours) * pairs, Console(stderr=True)) as advance:
        runs = compare(
            ours,
            pairs,
            lambda case: run_case(here, name, scale, case),
            lambda case: run_case(there, name, scale, case),
        )
        for case, samples in runs:
            advance(f"pair {len(samples)} of {pairs}: {case.work}, {case.system}")
            finished[case.work, case.system] = comparisons(case, samples)
    rows = [row for each in finished.values() for row in each]
    if as_json:
        print(_document(name, path, pairs, rows))
    else:
        Console().print(_table(name, path, pairs, rows))
    return rows


def _document(name: str, path: str, pairs: int, rows: Sequence[Comparison]) -> str:
    return json.dumps(
        {
            "schema": 1,
            "bench": name,
            "against": path,
            "pairs": pairs,
            "machine": machine(),
            "ratios": [
                {
                    "work": row.work,
                    "system": row.system,
                    "figure": row.figure,
                    "this": row.this,
                    "other": row.other,
                    "ratio": row.ratio,
                    "interval": row.interval,
                }
                for row in rows
            ],
        },
        indent=2,
    )


def _table(name: str, path: str, pairs: int, rows: Sequence[Comparison]) -> Table:
    title = f"mesh bench {name}: this version by {path}, {pairs} pairs"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("work", "system", "figure"):
        table.add_column(column)
    for column in ("this", "other", "ratio", "95 %"):
        table.add_column(column, justify="right")
    for row in rows:
        between = "" if row.interval is None else "{:.3f} to {:.3f}".format(*row.interval)
        table.add_row(
            row.work,
            row.system,
            row.figure,
            f"{row.this:,.4g}",
            f"{row.other:,.4g}",
            f"{row.ratio:.3f}",
            between,
        )
    return table
