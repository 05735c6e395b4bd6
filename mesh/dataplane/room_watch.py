"""A notice to programs when a journal has taken most of its room. Pure.

The room is the size of its messages plus what may be stored until the disk refuses more. So other files can
fill it too. The notice begins at `BEGINS` and ends below `OVER`, so that a single message does not make it
flicker. The journal is asked every `LOOK_S` if something was stored meanwhile, or while the notice lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from math import inf
from operator import attrgetter
from typing import Any, Final

from mesh.dataplane.durables import Durables
from mesh.dataplane.home_journal import HomeJournal
from mesh.dataplane.queue_watch import NAMES_MAX, Notice

LOOK_S: Final = 10.0
BEGINS: Final = 0.8
"""The fraction of the room that is taken."""
OVER: Final = 0.7


class RoomWatch:
    """Watches one journal. ``stored`` returns the number of messages that the journal has taken."""

    def __init__(self, durables: Durables, journal: HomeJournal, stored: Callable[[], int]) -> None:
        self._durables = durables
        self._journal = journal
        self._stored = stored
        self._seen = -1
        """The value of ``stored`` when the journal was last asked."""
        self._look_at = -inf
        self._since: float | None = None
        """When the notice began. None if there is none."""
        self._notices: list[Notice] = []
        self.share: float | None = None
        """Part of the room that was taken at the last look; None: not known."""

    @property
    def filling(self) -> bool:
        """Whether the notice has begun and is not over."""
        return self._since is not None

    def scan(self, now: float) -> list[Notice]:
        """The notices to send now."""
        stored = self._stored()
        wanted = stored != self._seen or self._since is not None
        if wanted and now >= self._look_at and self._journal.is_open:
            self._seen, self._look_at = stored, inf
            self._journal.ask(_room, self._found)
        notices, self._notices = self._notices, []
        return notices

    def _found(self, found: Any, now: float) -> None:
        self._look_at = now + LOOK_S
        if not isinstance(found, tuple):
            return  # the disk gives no figure, or the journal has failed, which has its own notice
        used, usable = found
        share = used / max(1, used + usable)
        self.share = round(share, 3)
        about = {"share": round(share, 3), "used": used, "usable": usable}
        if self._since is None and share >= BEGINS:
            self._since = now
            most = nlargest(NAMES_MAX, self._durables.by_id.values(), key=attrgetter("waiting"))
            names = [durable.name for durable in most if durable.waiting > 0]
            self._notices.append(Notice("", "filling", {"state": "begins", **about, "queues": names}))
        elif self._since is not None and share < OVER:
            for_s, self._since = round(now - self._since, 1), None
            self._notices.append(Notice("", "filling", {"state": "over", **about, "for_s": for_s}))


def _room(journal: Any) -> tuple[int, int] | None:
    try:
        used, usable = journal.room()
    except OSError:
        return None
    return used, usable
