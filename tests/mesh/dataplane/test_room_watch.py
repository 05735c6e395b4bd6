"""Programs are told once when a journal has taken most of its room, and once when that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.dataplane.queue_watch import Notice, topic_of
from mesh.dataplane.room_watch import LOOK_S
from tests.mesh.dataplane.homes import World


class Watched:
    """A home with a subscription, and a journal whose room the test sets in percent."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(folder)
        self.world.client("worker").attach("mail", "jobs.#")
        self.taken = 10
        self.asked = 0
        monkeypatch.setattr(self.world.journal.journal, "room", self._room)

    def _room(self) -> tuple[int, int]:
        self.asked += 1
        if self.taken < 0:
            raise OSError("it does not say")
        return self.taken, 100 - self.taken

    def told(self, *, keeping: bool = True) -> list[tuple[str, float]]:
        """The notices after the next look."""
        if keeping:
            self.world.keep(b"a")
        self.world.wait(LOOK_S)
        found = self.world.home.notices(self.world.now)
        self.world.pump()
        found += self.world.home.notices(self.world.now)
        assert {(notice.name, notice.kind) for notice in found} <= {("", "filling")}
        return [(notice.about["state"], notice.about["share"]) for notice in found]

    @property
    def shown(self) -> tuple[float | None, bool]:
        """The figures in the status."""
        status = self.world.home.journal_status()
        return status.share, status.filling


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_the_notice_begins_at_80_percent_and_ends_below_70(watched: Watched) -> None:
    assert watched.told() == []
    watched.taken = 79
    assert watched.told() == []
    assert watched.shown == (0.79, False)
    watched.taken = 80
    assert watched.told() == [("begins", 0.8)]
    assert watched.shown == (0.8, True), "the status has it, too, for as long as it lasts"
    for taken in (95, 80, 79, 70):
        watched.taken = taken
        assert watched.told() == [], "a message more or less does not make it flicker"
    watched.taken = 69
    assert watched.told(keeping=False) == [("over", 0.69)], "somebody made room"
    assert watched.shown == (0.69, False)
    watched.taken = 85
    assert watched.told() == [("begins", 0.85)]


def test_the_journal_is_asked_only_after_stores_or_during_a_notice(watched: Watched) -> None:
    watched.told()
    asked = watched.asked
    for _ in range(3):
        watched.told(keeping=False)
    assert watched.asked == asked
    watched.taken = 90
    watched.told()
    for _ in range(3):
        watched.told(keeping=False)
    assert watched.asked == asked + 4


def test_a_disk_that_reports_no_room_changes_nothing(watched: Watched) -> None:
    watched.taken = 90
    assert watched.told() == [("begins", 0.9)]
    watched.taken = -1
    assert watched.told() == [] and not watched.world.home.failure
    watched.taken = 10
    assert watched.told() == [("over", 0.1)]


def test_the_notice_has_the_topic_of_the_journal() -> None:
    assert topic_of(Notice("", "filling", {})) == "$sys.journal.filling"
