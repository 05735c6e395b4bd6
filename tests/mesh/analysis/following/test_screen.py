"""When the view of a followed mesh is shown, by a clock of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.analysis.following.growing import Steps
from mesh.analysis.following.health import Health, Picture
from mesh.analysis.following.lately import batch_of
from mesh.analysis.following.screen import BUSY_S, Screen
from tests.mesh.analysis.following.test_lately import START_US, A, B, beat, line

EVERY_S = 2.0


class Followed:
    """A folder of logs and its screen. The seconds of rows and of the clock are the same."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.shown: list[Picture] = []
        self._now_s = 0.0
        self._steps = Steps(self.logs, folder / "steps")
        self._steps.begin({})
        self._taken = 0
        self.screen = Screen(Health(), self.shown.append, lambda: START_US / 1e6 + self._now_s, EVERY_S)
        self.screen.begin(self._steps)

    def write(self, *lines: str) -> None:
        with (self.logs / "a.jsonl.part").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def read(self) -> None:
        """A batch, as Spark has them."""
        self._taken = self._steps.after(self._taken)
        step = self._steps.read(self._taken)
        self.screen.take(batch_of(step.lines(self.logs)), step.waiting_bytes)

    def tick(self, second: float) -> dict[str, str]:
        """The states of brokers in the last view, after a tick at this second."""
        self._now_s = second
        self.screen.tick()
        return {broker.name: broker.state for broker in self.shown[-1].brokers}


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_a_mesh_that_writes_no_more_becomes_silent(followed: Followed) -> None:
    """The view was drawn only after new rows: a mesh whose brokers all died was up for ever."""
    followed.write(beat(0, A, B), beat(0, B, A))
    followed.read()
    assert followed.tick(5.0) == {A: "up", B: "up"}
    assert followed.tick(9.0) == {A: "silent", B: "silent"}
    assert followed.shown[-1].parts == ()
    assert followed.shown[-1].behind_s == pytest.approx(8.75)


def test_a_broker_without_peers_is_up_between_the_rows_of_its_counters(followed: Followed) -> None:
    """It writes every five seconds, and its rows are in the file up to a second later."""
    followed.write(line(0, A, "stats", published=0, delivered=0, dropped=0))
    followed.read()
    assert followed.tick(6.5) == {A: "up"}


def test_rows_that_wait_to_be_read_are_no_silence(followed: Followed) -> None:
    """A follower on a busy machine is behind by more than a broker may be silent."""
    followed.write(beat(0, A, B), beat(0, B, A))
    followed.read()
    followed.write(beat(7, A, B), beat(7, B, A))
    assert followed.tick(8.0) == {A: "up", B: "up"}
    assert len(followed.shown) == 1, "the batch that reads them is waited for"
    assert followed.tick(BUSY_S) == {A: "up", B: "up"}
    assert len(followed.shown) == 2, "but not for long"


def test_a_batch_is_shown_at_once_and_the_same_view_only_when_it_is_old(followed: Followed) -> None:
    followed.tick(0.0)
    assert len(followed.shown) == 1
    followed.write(beat(0, A, B))
    followed.read()
    assert len(followed.shown) == 2
    followed.tick(EVERY_S - 0.5)
    assert len(followed.shown) == 2
    followed.tick(EVERY_S)
    assert len(followed.shown) == 3


def test_nothing_is_shown_before_the_first_batch_of_logs_that_have_rows(followed: Followed) -> None:
    followed.write(beat(0, A, B))
    followed.screen.tick()
    assert followed.shown == []
