"""Code that runs inside Spark's workers needs only Python: they may have no msgspec, and load no pyspark for
us."""

from __future__ import annotations

import subprocess
import sys

import pytest

MISSING = ("msgspec", "pyspark", "pandas", "pyarrow", "rich", "cyclopts", "apsw", "networkx")


WORKERS = (
    "mesh.analysis.clocks.deciding",
    "mesh.analysis.lives.tables",
    "mesh.analysis.opinions.tables",
    "mesh.analysis.carried.round_trips",
)


@pytest.mark.parametrize("module", WORKERS)
def test_functions_for_workers_load_without_any_package(module: str) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({MISSING!r})); import {module}"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
