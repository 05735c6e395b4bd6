"""`mesh bench` runs for real, briefly: every case works and every target has a value. Figures are not judged
here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from mesh.bench import broker, durable, simulate, sockets
from mesh.bench.durable.jetstream import JETSTREAM, absent


def bench(*arguments: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "mesh", "bench", *arguments, "--rounds", "1", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=840, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.process
@pytest.mark.timeout(850)
@pytest.mark.parametrize(
    ("name", "scale", "targets"),
    [
        ("sockets", "0.01", sockets.TARGETS),
        ("broker", "0.02", broker.TARGETS),
        ("simulate", "0.01", simulate.TARGETS),
    ],
)
def test_every_case_runs_and_every_target_is_measured(
    name: str, scale: str, targets: tuple[object, ...]
) -> None:
    document = bench(name, "--scale", scale)
    assert document["skipped"] == {}
    assert len(document["ratios"]) == len(targets)


@pytest.mark.process
@pytest.mark.timeout(850)
def test_every_work_of_durable_subscriptions_runs_and_every_target_is_measured() -> None:
    """Without JetStream the others run, and the command says why it is missing."""
    reason = absent()
    assert reason is None or not os.environ.get("MANGROVE_REQUIRE_INTEROP"), reason
    document = bench("durable", "--scale", "0.01")
    assert document["skipped"] == ({} if reason is None else {JETSTREAM: reason})
    beside_it = sum(target.peer == JETSTREAM for target in durable.TARGETS)
    assert len(document["ratios"]) == len(durable.TARGETS) - (beside_it if reason else 0)


@pytest.mark.process
@pytest.mark.timeout(240)
def test_the_command_reports_a_missing_nats_server_and_continues() -> None:
    document = bench("durable", "--scale", "0.01", "--only", "one at a time", PATH="")
    assert document["skipped"] == {
        JETSTREAM: "nats-server is not installed (on Debian: apt-get install nats-server)"
    }
    assert [row["system"] for row in document["medians"]] == ["mangrove"]


@pytest.mark.process
def test_an_unknown_work_is_refused_with_a_list_of_all_works() -> None:
    command = [sys.executable, "-m", "mesh", "bench", "sockets", "--only", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0
    (sentence,) = done.stderr.strip().splitlines()
    assert sentence.startswith("mesh bench: no work is named like 'nonsense'; there are: push/pull 128 B, ")
    assert all(target.work in sentence for target in sockets.TARGETS)
