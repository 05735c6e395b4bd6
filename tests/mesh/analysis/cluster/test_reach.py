"""The address at which a cluster sees this program, and the error if a cluster does not answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mesh.analysis.cluster.java import Java
from mesh.analysis.cluster.reach import GIVEN_UP, NoCluster, address_towards
from mesh.analysis.cluster.settings import SparkOptions


def test_the_drivers_address_is_the_one_from_which_the_master_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        place = f"127.0.0.1:{master.getsockname()[1]}"
        assert address_towards(f"spark://{place}") == "127.0.0.1"


def test_one_reachable_master_of_two_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master, socket.create_server(("127.0.0.1", 0)) as gone:
        place, nowhere = (f"127.0.0.1:{there.getsockname()[1]}" for there in (master, gone))
        gone.close()
        assert address_towards(f"spark://{nowhere},{place}") == "127.0.0.1"


def test_a_master_that_does_not_answer_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        place = f"127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(NoCluster) as raised:
        address_towards(f"spark://{place}")
    assert str(raised.value) == (
        f"the master of spark://{place} does not answer ({place}: Connection refused); is it running?"
    )


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://a:7077,b"])
def test_an_address_without_host_or_port_is_refused(master: str) -> None:
    with pytest.raises(NoCluster, match="is not a cluster's address"):
        address_towards(master if master != "spark://a:7077,b" else "spark://b,a:7077")


class GivesUp:
    """A Java whose Spark found no master."""

    said = ""

    def start(self, settings: object, environ: object) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        raise Py4JError(f"java.lang.IllegalStateException: Cannot call methods on a {GIVEN_UP}.")


def test_a_listener_that_is_no_master_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute it ended with 1, and "Cannot call methods on a stopped SparkContext"."""
    pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")
    from mesh.analysis.cluster import session

    monkeypatch.setattr(session, "prepare_environment", lambda environ, local: Java(tmp_path, "17", "PATH"))
    master = "spark://127.0.0.1:22"
    with pytest.raises(NoCluster) as raised:
        session._start(SparkOptions(master=master), None, GivesUp(), tmp_path)  # type: ignore[arg-type]
    told = f"{master} accepts connections, but no Spark master of version 4."
    assert str(raised.value).startswith(told)


def test_other_clusters_know_how_to_reach_the_driver() -> None:
    assert address_towards("yarn") is None
