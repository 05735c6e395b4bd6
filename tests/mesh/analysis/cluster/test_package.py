"""The zip for executors: pure Python, the same bytes each time, used by a Python without packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mesh.analysis.cluster.package import write_package

IMPORT = """
import sys
import mesh.analysis
import networkx
assert mesh.analysis.__file__.startswith(sys.argv[1]), mesh.analysis.__file__
assert networkx.__file__.startswith(sys.argv[1]), networkx.__file__
print(networkx.number_connected_components(networkx.Graph([(1, 2), (3, 4)])))
"""

EXTEND = """
import mesh.analysis, mesh.cli.exits
from mesh import MeshError
print(mesh.analysis.__file__.count(".zip"), mesh.cli.exits.__file__.count(".zip"))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("package") / "mangrove.zip")


def test_the_zip_contains_only_python(package: Path) -> None:
    names = zipfile.ZipFile(package).namelist()
    assert {"mesh/__init__.py", "mesh/analysis/__init__.py", "networkx/__init__.py"} <= set(names)
    assert [name for name in names if not name.endswith(".py")] == []
    assert not [name for name in names if name.startswith(("mesh/cli", "mesh/broker", "networkx/tests"))]


def test_the_same_version_makes_the_same_bytes(package: Path) -> None:
    assert write_package(package.with_name("again.zip")).read_bytes() == package.read_bytes()


def test_a_zip_that_could_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "taken.zip").mkdir()
    with pytest.raises(OSError):
        write_package(tmp_path / "taken.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.zip"]


@pytest.mark.process
@pytest.mark.long
def test_a_bare_python_imports_it(package: Path) -> None:
    """Like an executor: no site-packages, the zip on the path."""
    environ = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-S", "-s", "-c", IMPORT, str(package)]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, cwd="/")
    assert ran.stdout == "2\n", ran.stderr


@pytest.mark.process
@pytest.mark.long
def test_the_zip_does_not_hide_installed_packages_on_the_driver(package: Path) -> None:
    """spark-submit puts the zip before site-packages, and the command line is not in the zip."""
    environ = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", EXTEND]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, cwd="/")
    assert ran.stdout == "1 0\n", ran.stderr
