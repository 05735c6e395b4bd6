"""The same is done to a simulated mesh and to real processes on real TCP; both must tell the same story.

The story is what each broker says of each other one after the fault, state by state. The states must be equal
in order. Their times may differ by what is not the same in two real runs either: a round may be due at once
or a period later, an answer may take a deadline, and what was sent into a cut arrives at a retransmission,
which is as late after the heal as the cut was long, at most.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulations import Mesh, World
from simulations.truth import log_files, log_rows
from simulations.world import EPOCH_S
from tests.differential.namespaces import Hosts, Unavailable, hosts

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("alone"),
]

BROKERS = ["broker-1", "broker-2", "broker-3"]
VICTIM = "broker-3"
PERIOD_S = 1.0
DEADLINE_S = 0.9
START_S = 20.0
WARM_S = 3.0
AFTER_S = 9.0
"""How long is looked at what comes after the end of a fault."""
MACHINE_S = 1.0
"""What a busy machine may be late by."""

Story = dict[tuple[str, str], list[tuple[str, float]]]


@dataclass(frozen=True)
class Case:
    kind: str
    begin: Callable[[Hosts, subprocess.Popen[bytes]], None]
    end: Callable[[Hosts, subprocess.Popen[bytes]], None] | None
    lasts_s: float

    def bound_s(self, state: str) -> float:
        ladder_s = self.lasts_s if self.kind == "isolate" and state == "alive" else 0.0
        return PERIOD_S + DEADLINE_S + ladder_s + MACHINE_S


CASES = [
    Case("crash", lambda hosts, victim: victim.kill(), None, 6.0),
    Case(
        "pause",
        lambda hosts, victim: victim.send_signal(signal.SIGSTOP),
        lambda hosts, victim: victim.send_signal(signal.SIGCONT),
        6.0,
    ),
    Case(
        "isolate",
        lambda hosts, victim: hosts.cut(VICTIM),
        lambda hosts, victim: hosts.join(VICTIM),
        6.0,
    ),
]


def story(files: dict[str, bytes], since_s: float) -> Story:
    """Of the brokers that nothing is done to, in seconds since the fault."""
    rows = log_rows(files)
    names = {row["node"]: row["name"] for row in rows if row["kind"] == "meta"}
    told: Story = {}
    for row in rows:
        at_s = row["at_s"] - since_s
        if (
            row["kind"] == "mem"
            and at_s >= 0
            and row["node"] != row["subject"]
            and names[row["node"]] != VICTIM
        ):
            told.setdefault((names[row["node"]], row["subject_name"]), []).append((row["to_state"], at_s))
    return told


def simulated(case: Case) -> Story:
    with World(1) as world:
        Mesh(world, brokers=3, period_s=PERIOD_S, deadline_s=DEADLINE_S)
        world.run_for(WARM_S)
        since_s = world.now_s
        if case.end is None:
            world.inject(case.kind, [VICTIM])
        else:
            world.inject(case.kind, [VICTIM], for_s=case.lasts_s)
        world.run_for(case.lasts_s + AFTER_S)
        assert not world.failures
        return story(log_files(world), since_s)


@contextmanager
def broker(found: Hosts, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    first = [] if name == BROKERS[0] else ["--join", f"tcp://{found.address(BROKERS[0])}:7770"]
    command = [
        *("ip", "netns", "exec", found.namespace(name), sys.executable, "-m", "mesh", "broker"),
        *("--name", name, "--listen", f"tcp://{found.address(name)}:7770", *first, "--mesh", "differential"),
        *("--state-dir", str(folder / name), "--log-dir", str(folder / "log")),
        *("--period", str(PERIOD_S), "--deadline", str(DEADLINE_S)),
    ]
    environment = os.environ | {"MANGROVE_MESH_KEY": "a key of the test"}
    output = open(folder / f"{name}.txt", "wb")
    process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.close()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "log").glob("*")}


def wait_whole(folder: Path) -> None:
    """Until each broker has said of both others that they are alive."""
    deadline = time.monotonic() + START_S
    while True:
        seen = {
            (row["node"], row["subject"])
            for row in log_rows(files(folder))
            if row["kind"] == "mem" and row["to_state"] == "alive" and row["node"] != row["subject"]
        }
        if len(seen) == len(BROKERS) * (len(BROKERS) - 1):
            return
        said = "".join(path.read_text() for path in folder.glob("*.txt"))
        assert time.monotonic() < deadline, f"only {len(seen)} of 6 views after {START_S:g} s: {said}"
        time.sleep(0.1)


def real(case: Case, folder: Path) -> Story:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(hosts(BROKERS))
        except Unavailable as error:
            pytest.skip(f"no network namespaces here: {error}")
        processes = {name: stack.enter_context(broker(found, name, folder)) for name in BROKERS}
        wait_whole(folder)
        time.sleep(WARM_S)
        since_s = time.time() - EPOCH_S
        case.begin(found, processes[VICTIM])
        time.sleep(case.lasts_s)
        if case.end is not None:
            case.end(found, processes[VICTIM])
        time.sleep(AFTER_S)
        told = story(files(folder), since_s)
    return told


def states(told: Story) -> dict[tuple[str, str], list[str]]:
    return {pair: [state for state, _ in changes] for pair, changes in sorted(told.items())}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_real_processes_tell_the_story_of_the_simulation(case: Case, tmp_path: Path) -> None:
    expected = simulated(case)
    told = real(case, tmp_path)
    assert "dead" in states(expected)["broker-1", VICTIM]
    assert states(told) == states(expected)
    late: list[Any] = [
        (pair, state, at_s, there_s)
        for pair, changes in expected.items()
        for (state, at_s), (_, there_s) in zip(changes, told[pair], strict=True)
        if abs(at_s - there_s) > case.bound_s(state)
    ]
    assert not late, f"(pair, state, simulated, real) further apart than two real runs may be: {late}"


def test_the_stories_of_different_faults_differ() -> None:
    """Or their being equal would say nothing."""
    crash, pause, isolate = (states(simulated(case)) for case in CASES)
    assert crash != pause
    assert crash != isolate
