"""Records of settled, retried and buried messages on their way to the journal, in order. Pure.

Each entry replaces earlier ones about the same message. An older one written after a newer one would undo it.
So one submission is in progress at a time, and entries that arrive meanwhile form the next one. A full disk
refuses a submission as a whole. It is repeated until consumers or an operator have made room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Final

from mesh.dataplane.home_journal import HomeJournal
from mesh.errors import JournalFailed, StoreFull
from mesh.journal.port import Result
from mesh.journal.records import Answer, Bury, Entry

RETRY_S: Final = 1.0
"""Pause before the next attempt after a full disk."""
ENTRIES_MAX: Final = 65_536
"""Entries that may wait. Beyond them nothing is delivered, since its settlement could not be written."""
AT_ONCE: Final = 4096
"""Entries after which a submission is closed, since a large commit needs much room on a full disk."""


class Settling:
    """Submits entries in order. ``buried`` is called with each dead letter that was made."""

    def __init__(self, journal: HomeJournal, buried: Callable[[Bury, Answer], None]) -> None:
        self._journal = journal
        self._buried = buried
        self._waiting: deque[Sequence[Entry]] = deque()
        self._count = 0
        """Entries that wait or are being written."""
        self._under_way: list[Sequence[Entry]] = []
        self._not_before = -inf
        self.lost = 0
        """Damaged messages that should have become dead letters."""
        self.refused = 0
        """Submissions that a full disk refused."""

    @property
    def full(self) -> bool:
        """True if so many entries wait that nothing more should be delivered."""
        return self._count >= ENTRIES_MAX

    @property
    def busy(self) -> bool:
        """True if new entries have to wait for another commit."""
        return bool(self._under_way) or self._not_before > -inf

    @property
    def gathered(self) -> bool:
        return bool(self._waiting)

    @property
    def next_due(self) -> float:
        """When `submit` has work to do even if nothing happens."""
        return self._not_before if self._not_before > -inf else inf

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries that belong to one commit, in order."""
        self._waiting.append(entries)
        self._count += len(entries)

    def submit(self, now: float) -> None:
        """Submit the collected entries, unless a submission is in progress or the disk was just full."""
        if not self._waiting or self._under_way or now < self._not_before:
            return
        self._not_before = -inf
        self._submit_some()

    def flush(self) -> None:
        """Submit everything. The journal is closed next; entries that a full disk refuses now are lost."""
        while self._waiting:
            self._submit_some()

    def _submit_some(self) -> None:
        together: list[Entry] = []
        while self._waiting and len(together) < AT_ONCE:
            group = self._waiting.popleft()
            self._under_way.append(group)
            together += group
        self._journal.submit(together, partial(self._committed, together))

    def forget(self) -> None:
        """The journal failed: nothing can be written any more."""
        self._waiting.clear()
        self._count = sum(map(len, self._under_way))
        self._not_before = -inf

    def _committed(self, entries: Sequence[Entry], result: Result, now: float) -> None:
        groups, self._under_way = self._under_way, []
        if isinstance(result, StoreFull):
            self.refused += 1
            self._waiting.extendleft(reversed(groups))
            self._not_before = now + RETRY_S
            return
        self._count -= len(entries)
        if isinstance(result, JournalFailed):
            self.forget()
        elif isinstance(result, Exception):
            self._journal.fail(f"settled messages could not be written: {result}", now)
        else:
            for entry, answer in zip(entries, result, strict=True):
                if type(entry) is Bury:
                    if answer.row:
                        self._buried(entry, answer)
                    else:
                        self.lost += 1
