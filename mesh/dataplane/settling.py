"""Records of settled, retried and buried messages on their way to the journal, in order. Pure.

Each of these entries says what is so from then on. An older one that is written after a newer one would undo
it, so one submission is under way at a time, and what gathers meanwhile is the next one. A full disk
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
"""How long after a full disk the next attempt is made."""
ENTRIES_MAX: Final = 65_536
"""Entries that may wait. With more nothing is delivered: what would be settled could not be written."""
AT_ONCE: Final = 4096
"""Entries after which a submission takes no more, since a large commit needs much room on a full disk."""


class Settling:
    """See the module. ``buried`` is given each dead letter that was made."""

    def __init__(self, journal: HomeJournal, buried: Callable[[Bury, Answer], None]) -> None:
        self._journal = journal
        self._buried = buried
        self._waiting: deque[Sequence[Entry]] = deque()
        self._count = 0
        """Entries that wait or are under way."""
        self._under_way: list[Sequence[Entry]] = []
        self._not_before = -inf
        self.lost = 0
        """Messages that were to become dead letters and were damaged on disk."""
        self.refused = 0
        """Submissions that a full disk refused."""

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should be delivered."""
        return self._count >= ENTRIES_MAX

    @property
    def busy(self) -> bool:
        """Whether what is added now has to wait for another commit."""
        return bool(self._under_way) or self._not_before > -inf

    @property
    def gathered(self) -> bool:
        return bool(self._waiting)

    @property
    def next_due(self) -> float:
        """When `submit` has something to do though nothing happens."""
        return self._not_before if self._not_before > -inf else inf

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries that belong into one commit, in their order."""
        self._waiting.append(entries)
        self._count += len(entries)

    def submit(self, now: float) -> None:
        """Hand over what gathered, unless a submission is under way or the disk was full just now."""
        if not self._waiting or self._under_way or now < self._not_before:
            return
        self._not_before = -inf
        self._submit_some()

    def flush(self) -> None:
        """Hand over everything: the journal is closed next, and what a full disk refuses now is lost."""
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
            self._journal.fail(f"what was settled could not be written: {result}", now)
        else:
            for entry, answer in zip(entries, result, strict=True):
                if type(entry) is Bury:
                    if answer.row:
                        self._buried(entry, answer)
                    else:
                        self.lost += 1
