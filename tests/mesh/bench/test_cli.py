"""`mesh bench` runs for real, briefly: every case works and every target has a value. Figures are not
judged here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mesh.bench import broker, simulate, sockets


def bench(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "mesh", "bench", *arguments, "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
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
    ratios = document["ratios"]
    assert isinstance(ratios, list) and len(ratios) == len(targets)


@pytest.mark.process
def test_a_work_that_nobody_knows_is_one_sentence_with_those_there_are() -> None:
    command = [sys.executable, "-m", "mesh", "bench", "sockets", "--only", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0
    (sentence,) = done.stderr.strip().splitlines()
    assert sentence.startswith("mesh bench: no work is named like 'nonsense'; there are: push/pull 128 B, ")
    assert all(target.work in sentence for target in sockets.TARGETS)
