"""The base's own acceptance tests, run by the base's code, with one broker of the base among present ones.

`base-tests/acceptance` has them unchanged. Their own pytest runs them with the base's modules. Programs that
they start as ``mesh broker`` are of the present version, except for one name; `mixed` has the parts that do
this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.base import HERE, environment
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

LIMIT_S = 900.0


def suite(folder: Path) -> Path:
    """The base's tests with the replacements that they import."""
    tests = folder / "tests"
    for package in ("", "mesh", "acceptance"):
        (tests / package).mkdir(parents=True, exist_ok=True)
        (tests / package / "__init__.py").touch()
    for test in sorted((HERE / "base-tests" / "acceptance").iterdir()):
        shutil.copy(test, tests / "acceptance")
    shutil.copy(HERE / "mixed" / "cluster.py", tests / "mesh")
    for file in ("conftest.py", "sitecustomize.py"):
        shutil.copy(HERE / "mixed" / file, folder)
    return folder


def run(base: Path, folder: Path, base_names: str, *arguments: str) -> str:
    place = suite(folder / "suite")
    python = HERE / "mixed" / "python"
    variables = {
        "MIXED_BASE_NAMES": base_names,
        "MIXED_PRESENT": str(HERE.parent.parent),
        "MIXED_PYTHON": str(python),
        "MIXED_REAL_PYTHON": sys.executable,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ["-p", "no:cacheprovider", "-q", "-c", os.devnull, "--rootdir", str(place), "-W", "ignore"]
    command = [str(python), "-m", "pytest", *options, *arguments]
    done = subprocess.run(
        ends_with_tests(command),
        cwd=place,
        env=environment(base, place, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", ["first", "second"])
def test_the_bases_acceptance_tests_pass_with_either_broker_of_the_base(
    base: Path, tmp_path: Path, name: str
) -> None:
    assert "4 passed" in run(base, tmp_path, name, "tests/acceptance/test_shown_by.py")


@pytest.mark.spark
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.xdist_group("alone")
def test_the_bases_demonstration_finds_all_faults_with_one_broker_of_the_base(
    base: Path, tmp_path: Path
) -> None:
    assert "2 passed" in run(base, tmp_path, "gamma", "tests/acceptance/test_demo.py")
