"""Real brokers on their own hosts are killed, stopped and cut off: the analysis finds exactly these
faults."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from mesh.analysis.pipeline import analyse
from tests.differential.namespaces import Unavailable, hosts
from tests.differential.processes import RealMesh, on_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.interop,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

PERIOD_S = 1.0
DEADLINE_S = 0.9
NAMES = ("broker-1", "broker-2", "broker-3", "broker-4")
LATE_S = PERIOD_S
"""A round is void if a broker that nobody stopped ran its timers so late: it looks paused itself."""
SLACK_S = 1.5 * PERIOD_S
"""A heartbeat comes each period, and a busy machine is late."""
SECOND = 1_000_000


class Done(NamedTuple):
    """A fault, by the clock of this machine, which all brokers share."""

    what: str
    broker: str
    at_s: float
    until_s: float


def faults(mesh: RealMesh) -> list[Done]:
    """Faults one after the other, each followed by a time without any."""

    def over(what: str, broker: str, since_s: float) -> Done:
        done = Done(what, broker, since_s, time.time())
        time.sleep(7 * PERIOD_S)
        return done

    found = []
    since_s = time.time()
    mesh.processes["broker-2"].send_signal(signal.SIGKILL)
    time.sleep(6 * PERIOD_S)
    join = ("--join", mesh.url("broker-1"))
    mesh.start("broker-2", *join, period_s=PERIOD_S, deadline_s=DEADLINE_S)
    mesh.wait_whole()
    found.append(over("crash", "broker-2", since_s))
    since_s = time.time()
    mesh.processes["broker-3"].send_signal(signal.SIGSTOP)
    time.sleep(6 * PERIOD_S)
    mesh.processes["broker-3"].send_signal(signal.SIGCONT)
    found.append(over("pause", "broker-3", since_s))
    since_s = time.time()
    mesh.hosts.part("broker-4")
    time.sleep(7 * PERIOD_S)
    mesh.hosts.join("broker-4")
    found.append(over("part", "broker-4", since_s))
    return found


def play(folder: Path) -> tuple[Path, list[Done]]:
    """The logs, and the faults."""
    with hosts(list(NAMES)) as found, RealMesh(found, folder, NAMES) as mesh:
        for name in NAMES:
            first = () if name == NAMES[0] else ("--join", mesh.url(NAMES[0]))
            mesh.start(name, *first, period_s=PERIOD_S, deadline_s=DEADLINE_S)
        mesh.wait_whole()
        since_s = mesh.now_s
        time.sleep(3 * PERIOD_S)
        done = faults(mesh)
        mesh.check_on_time(since_s, LATE_S, stopped=["broker-3"])
    return folder / "log", done


def test_the_verdict_on_real_processes_equals_the_injected_faults(
    spark: SparkSession, tmp_path: Path
) -> None:
    try:
        logs, done = on_time(play, tmp_path)
    except Unavailable as error:
        pytest.skip(f"no network namespaces here: {error}")
    (run,) = analyse(logs, tmp_path / "out").findings.runs
    found = [event for event in run.events if event.what not in ("start", "leave")]
    assert [(event.what, event.brokers) for event in found] == [(each.what, [each.broker]) for each in done]
    assert run.failures == {"crash": 1}
    for event, each in zip(found, done, strict=True):
        assert abs(event.at / SECOND - each.at_s) <= SLACK_S, (event, each)
        if each.what != "crash":  # a killed broker is back when it has started
            assert event.lasted_s is not None
            assert abs(event.lasted_s - (each.until_s - each.at_s)) <= 2 * PERIOD_S + SLACK_S, (event, each)
