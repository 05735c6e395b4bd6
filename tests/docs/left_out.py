"""The code blocks of README and docs that no test runs as they stand, each with the reason.

Everything else runs. A block is named by its page and by how it begins.
"""

from __future__ import annotations

from tests.docs.blocks import Block

LEFT_OUT: dict[tuple[str, str], str] = {
    # installing: from an index, into an environment, as root, on a cluster
    ("README.md", "python3 -m venv"): "asks a package index",
    ("docs/start/install.md", "make install"): "asks a package index; the tests run in what it makes",
    ("docs/start/install.md", "python3 -m venv"): "asks a package index",
    ("docs/start/install.md", "make build"): "asks a package index",
    ("docs/deploy/systemd.md", "mesh config init"): "writes to /etc; test_systemd_unit has the unit verified",
    ("docs/deploy/systemd.md", "mesh config check"): "installs a service",
    ("docs/deploy/containers.md", "docker build"): "test_containers builds the image where docker is",
    ("docs/deploy/containers.md", "echo"): "needs docker; test_containers reads the file",
    ("docs/deploy/kubernetes.md", "kubectl"): "needs a cluster; test_containers checks the objects",
    ("docs/guides/analysing-on-a-cluster.md", "mesh analyze hdfs"): "cluster/test_cluster starts a cluster",
    ("docs/guides/analysing-on-a-cluster.md", "echo"): "cluster/test_cluster calls spark-submit",
    ("docs/examples/README.md", "cc "): "examples/test_nng_client compiles and runs it",
    ("docs/examples/README.md", "./nng_client"): "examples/test_nng_client compiles and runs it",
    # names of other hosts and files
    ("docs/guides/running-a-mesh.md", 'mesh broker --name "$(hostname)"'): "names another host",
    (
        "docs/guides/running-a-mesh.md",
        "mesh broker --listen-peers",
    ): "names another host; test_two_sites does it",
    (
        "docs/guides/running-a-mesh.md",
        "mv journal",
    ): "needs a damaged journal; tests/mesh/journal damages some",
    (
        "docs/guides/simulating.md",
        "mesh simulate replay",
    ): "needs a seed that fails; simulations/cli/test_app has one",
    # what takes minutes
    ("docs/reference/testing.md", "make"): "takes minutes",
    ("docs/reference/testing.md", "MANGROVE_"): "takes minutes; CI runs the tests at a smaller size",
    ("docs/reference/transports.md", "python -m pytest"): "takes a minute; CI runs these tests",
    ("docs/results/benchmarks.md", "mesh bench"): "takes minutes; tests/mesh/bench runs each at a small size",
    ("docs/results/sensitivity.md", "python -m tests"): "takes minutes",
    (
        "docs/guides/analysing.md",
        "mesh analyze logs --out report --scenario",
    ): "analysis/incident plays scenarios",
    ("docs/guides/analysing.md", "printf"): "takes a minute; simulations/cli/test_app shrinks a failure",
    (
        "docs/guides/analysing.md",
        "mesh simulate split-and-heal",
    ): "takes Spark a while; test_pipeline calls it so",
    # parts of programs, which must compile
    ("docs/guides/analysing.md", "from mesh.analysis.pipeline"): "starts Spark; test_pipeline calls it so",
    ("docs/guides/task-queues.md", "async for batch"): "a part of a program",
    ("docs/guides/testing-with-worlds.md", "@pytest.mark.seeds"): "a part of the test above it",
    ("docs/reference/testing.md", "pytestmark"): "a part of a test",
    ("docs/reference/tls.md", "from protocols"): "names files that are not there",
}


def is_left_out(block: Block) -> bool:
    return any(
        block.name == page and block.code.startswith(beginning) and block.language in ("sh", "python")
        for page, beginning in LEFT_OUT
    )
