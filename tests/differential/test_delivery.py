"""Messages through two brokers whose line is lossy, narrow or long arrive as late as simulated ones.

A publisher at one broker and a subscriber at the other run the same code in both worlds. Everything must
arrive, in order. The measures must lie within the range of the simulation's seeds, widened by a share and by
the possible lateness of a busy machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from simulations import Mesh, World
from tests.differential import programs
from tests.differential.conftest import Played
from tests.differential.namespaces import hosts
from tests.differential.processes import PORT, RealMesh, on_time

pytestmark = [
    pytest.mark.interop,
    pytest.mark.process,
    pytest.mark.xdist_group("alone"),
]

BROKERS: Final = ("broker-1", "broker-2")
PROXIES: Final = ("proxy-1", "proxy-2")
"""The delay before each broker, where the line is long, whichever dials."""
PERIOD_S: Final = 1.0
DEADLINE_S: Final = 0.9
LATE_S: Final = 0.2
SEEDS: Final = range(1, 11)
DRAIN_S: Final = 30.0
STALLED_S: Final = 0.15
"""A message that took longer waited for a retransmission."""
LOSS: Final = 0.1
LINE_BYTES_S: Final = 50_000
QUEUE_BYTES: Final = 1 << 20
LATENCY_S: Final = 0.1

Times = Sequence[tuple[float, float]]
"""When each message was sent and when it came, in the order of sending."""


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    """The fault's kind; empty means none."""
    value: float
    count: int
    pause_s: float
    size: int
    measure: Callable[[Times], float]
    share: float
    """The factor by which a real measure may lie outside the simulation's range."""
    late_s: float

    @cached_property
    def span(self) -> tuple[float, float]:
        """The range in which a real measure must lie."""
        measured = [self.measure(self.simulate(seed)) for seed in SEEDS]
        return min(measured) * (1 - self.share) - self.late_s, max(measured) * (1 + self.share) + self.late_s

    def simulate(self, seed: int) -> Times:
        sent: list[Any] = []
        came: list[Any] = []
        with World(seed) as world:
            mesh = Mesh(world, brokers=2, period_s=PERIOD_S, deadline_s=DEADLINE_S)

            def now() -> float:
                return world.now_s

            mesh.client(
                "subscriber", lambda client: programs.subscribe(client, came.append, now), at="broker-2"
            )
            world.run_for(1)
            if self.kind:
                world.inject(self.kind, ["broker-1"], ["broker-2"], value=self.value)
            publish = (self.count, self.pause_s, self.size)
            mesh.client(
                "publisher",
                lambda client: programs.publish(client, *publish, sent.append, now),
                at="broker-1",
            )
            timeout_s = self.count * self.pause_s + DRAIN_S
            world.run_until(lambda: len(came) > self.count, timeout_s=timeout_s, what="all messages")
            assert not world.failures
        return times(sent, came)

    def play(self, folder: Path) -> Times:
        return on_time(self._play, folder)

    def _play(self, folder: Path) -> Times:
        with hosts([*BROKERS, *PROXIES]) as found, RealMesh(found, folder, BROKERS) as mesh:
            ways = {"period_s": PERIOD_S, "deadline_s": DEADLINE_S}
            reached_at = BROKERS
            if self.kind == "slow_link":
                reached_at = PROXIES
                for broker, proxy in zip(BROKERS, PROXIES, strict=True):
                    ends = (found.address(proxy), found.address(broker), str(PORT), str(self.value))
                    mesh.run(proxy, proxy, ("-m", "tests.differential.delaying", *ends))
            join: tuple[str, ...] = ()
            for broker, there in zip(BROKERS, reached_at, strict=True):
                mesh.start(broker, "--advertise", mesh.url(there), *join, **ways)
                join = ("--join", mesh.url(there))
            mesh.wait_whole()
            mesh.program("subscriber", "broker-2", "subscribe", mesh.url("broker-2"))
            mesh.wait(lambda: "subscribed" in mesh.notes("subscriber"), "a subscriber")
            if self.kind == "lossy_link":
                found.lose("broker-2", self.value)
            elif self.kind == "narrow_link":
                found.narrow("broker-2", self.value, QUEUE_BYTES)
            since_s = mesh.now_s
            mesh.program(
                "publisher", "broker-1", "publish", mesh.url("broker-1"), self.count, self.pause_s, self.size
            )
            try:
                mesh.wait(lambda: len(mesh.notes("subscriber")) > self.count, "all messages")
            finally:
                time.sleep(1)  # for rows to reach the disk
                mesh.check_on_time(since_s, LATE_S)
            return times(mesh.notes("publisher"), mesh.notes("subscriber"))


def times(sent: Sequence[Any], came: Sequence[Any]) -> Times:
    """The times of each message, once all have arrived exactly once and in order."""
    arrived = [note for note in came if note != "subscribed"]
    assert [number for number, _ in arrived] == [number for number, _ in sent]
    return [(here_s, there_s) for (_, here_s), (_, there_s) in zip(sent, arrived, strict=True)]


def stalled_share(times: Times) -> float:
    """The share of messages that waited for a retransmission."""
    return sum(came_s - sent_s > STALLED_S for sent_s, came_s in times) / len(times)


def all_took_s(times: Times) -> float:
    """From the first one's sending to the last one's arrival."""
    return times[-1][1] - times[0][0]


def usual_delay_s(times: Times) -> float:
    return statistics.median(came_s - sent_s for sent_s, came_s in times)


CASES: Final = [
    Case("lossy", "lossy_link", LOSS, 60, 0.25, 100, stalled_share, 0.5, 0),
    Case("narrow", "narrow_link", LINE_BYTES_S, 10, 0.001, 10_000, all_took_s, 0.15, 0.3),
    Case("long", "slow_link", LATENCY_S, 20, 0.1, 100, usual_delay_s, 0, 0.07),
]
CLEAN: Final = {case.name: replace(case, name="clean", kind="", value=0) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_real_messages_are_as_late_as_simulated_ones(case: Case, played: Played) -> None:
    low, high = case.span
    real = case.measure(played.of(case))
    assert low <= real <= high, case.measure.__name__


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_unchanged_line_gives_other_figures(case: Case) -> None:
    """Otherwise, lying within the range would prove nothing."""
    assert case.measure(CLEAN[case.name].simulate(1)) < case.span[0]
