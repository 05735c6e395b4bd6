"""The same faults strike a simulated mesh and real processes on real TCP; both must tell the same story.

The story is each broker's view of each other one from the fault on, in the form of
`tests.differential.stories`; its docstring says what is compared, and what cannot be.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pytest

from simulations import Mesh, World
from simulations.evidence.logs import log_rows
from simulations.evidence.truth import log_files
from tests.differential.conftest import Played
from tests.differential.namespaces import hosts
from tests.differential.processes import RealMesh, on_time
from tests.differential.stories import Changes, Expected, Pair, story

pytestmark = [
    pytest.mark.interop,
    pytest.mark.process,
    pytest.mark.xdist_group("alone"),
]

PERIOD_S: Final = 1.0
DEADLINE_S: Final = 0.9
LATE_S: Final = DEADLINE_S / 3
"""A round is void if a broker is half a deadline late."""
WARM_S: Final = 2.0
SEEDS: Final = range(1, 9)

Act = Callable[[RealMesh], None]


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    struck: tuple[str, ...]
    begin: Act
    end: Act | None
    lasts_s: float
    after_s: float
    """Seconds that are compared after the end of the fault."""
    value: float | None = None
    brokers: int = 3
    by_chance: bool = False
    """It strikes again and again, so answered accusations come at random times."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"broker-{number + 1}" for number in range(self.brokers))

    @cached_property
    def expected(self) -> Expected:
        """The stories of the seeds."""
        silent = self.struck if self.end is None else ()
        expected = Expected(self.struck, self.names, silent, self.by_chance)
        for seed in SEEDS:
            expected.add(self.simulate(seed))
        return expected

    def simulate(self, seed: int) -> dict[Pair, Changes]:
        with World(seed) as world:
            Mesh(world, brokers=self.brokers, period_s=PERIOD_S, deadline_s=DEADLINE_S)
            world.run_for(WARM_S)
            since_s = world.now_s
            for_s = None if self.end is None else self.lasts_s
            world.inject(self.kind, self.struck, value=self.value, for_s=for_s)
            world.run_for(self.lasts_s + self.after_s)
            assert not world.failures
            return story(log_rows(log_files(world)), since_s, world.now_s)

    def play(self, folder: Path) -> dict[Pair, Changes]:
        return on_time(self._play, folder)

    def _play(self, folder: Path) -> dict[Pair, Changes]:
        with hosts(list(self.names)) as found, RealMesh(found, folder, self.names) as mesh:
            for name in self.names:
                first = () if name == self.names[0] else ("--join", mesh.url(self.names[0]))
                mesh.start(name, *first, period_s=PERIOD_S, deadline_s=DEADLINE_S)
            mesh.wait_whole()
            time.sleep(WARM_S)
            since_s = mesh.now_s
            self.begin(mesh)
            time.sleep(self.lasts_s)
            if self.end is not None:
                self.end(mesh)
            time.sleep(self.after_s)
            until_s = mesh.now_s
            time.sleep(1)  # for rows to reach the disk
            mesh.check_on_time(since_s, LATE_S, self.struck if self.kind == "pause" else ())
            return story(mesh.rows(), since_s, until_s)


def told(to: signal.Signals) -> Act:
    return lambda mesh: mesh.processes["broker-3"].send_signal(to)


CASES: Final = [
    Case("crash", "crash", ("broker-3",), told(signal.SIGKILL), None, 5.5, 0),
    Case("pause", "pause", ("broker-3",), told(signal.SIGSTOP), told(signal.SIGCONT), 6, 4),
    Case(
        "isolate",
        "isolate",
        ("broker-3",),
        lambda mesh: mesh.hosts.cut("broker-3"),
        lambda mesh: mesh.hosts.join("broker-3"),
        6,
        6,
    ),
    Case(
        "partition",
        "partition",
        ("broker-4", "broker-5"),
        lambda mesh: mesh.hosts.part("broker-4", "broker-5"),
        lambda mesh: mesh.hosts.join("broker-4", "broker-5"),
        6,
        9,
        brokers=5,
    ),
    Case(
        "loss",
        "lossy_link",
        ("broker-3",),
        lambda mesh: mesh.hosts.lose("broker-3", 0.1),
        lambda mesh: mesh.hosts.lose_nothing(),
        8,
        4,
        value=0.1,
        by_chance=True,
    ),
]
BY_NAME: Final = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_real_processes_tell_the_story_of_the_simulation(case: Case, played: Played) -> None:
    assert case.expected.differences(played.of(case)) == []


def test_the_stories_of_different_faults_differ() -> None:
    """Otherwise, equal stories would prove nothing."""
    expected = {name: case.expected.states(("other", "struck")) for name, case in BY_NAME.items()}
    assert expected["crash"] == {("suspect", "dead")}
    assert expected["pause"] == expected["isolate"] == {("suspect", "dead", "alive")}
    assert expected["loss"] == {()}
    isolated = BY_NAME["isolate"].expected.states(("struck", "other"))
    assert isolated != BY_NAME["partition"].expected.states(("struck", "other"))
