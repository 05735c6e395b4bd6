"""Records of settled, retried and buried messages on their way to the journal, in order. Pure.

Each entry replaces earlier ones about the same message. An older one written after a newer one would undo it.
So one submission is in progress at a time, and entries that arrive meanwhile form the next one.

A full disk refuses a submission as a whole. The next one is smaller, and leaves out the subscriptions that
have dead letters to write: these need room, and what others settle makes some. Entries of one subscription
keep their order, and no entry of one concerns another. The rest is repeated until there is room.
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


_Group = tuple[int, Sequence[Entry]]
"""Entries of a subscription that belong to one commit."""


class Settling:
    """Submits entries in order. ``buried`` is called with the answer to each dead letter."""

    def __init__(self, journal: HomeJournal, buried: Callable[[Bury, Answer], None]) -> None:
        self._journal = journal
        self._buried = buried
        self._waiting: deque[_Group] = deque()
        self._count = 0
        """Entries that wait or are being written."""
        self._under_way: list[_Group] = []
        self._not_before = -inf
        self._at_once = AT_ONCE
        self._letters_not_before = -inf
        """Subscriptions with dead letters wait until then: the disk had no room for some, and what others
        settle makes room."""
        self._letters_at_once = AT_ONCE
        self.refused = 0
        """Submissions that a full disk refused."""

    @property
    def full(self) -> bool:
        """True if so many entries wait that nothing more should be delivered."""
        return self._count >= ENTRIES_MAX

    @property
    def busy(self) -> bool:
        """True if new entries have to wait for another commit."""
        return bool(self._under_way) or max(self._not_before, self._letters_not_before) > -inf

    @property
    def gathered(self) -> bool:
        return bool(self._waiting)

    @property
    def next_due(self) -> float:
        """When `submit` has work to do even if nothing happens."""
        if self._not_before > -inf:
            return self._not_before
        if self._letters_not_before > -inf and self._waiting and not self._under_way:
            return self._letters_not_before
        return inf

    def add(self, subscription: int, entries: Sequence[Entry]) -> None:
        """Add entries of a subscription that belong to one commit, in order."""
        self._waiting.append((subscription, entries))
        self._count += len(entries)

    def submit(self, now: float) -> None:
        """Submit the collected entries, unless a submission is in progress or the disk was just full."""
        if not self._waiting or self._under_way or now < self._not_before:
            return
        self._not_before = -inf
        if now >= self._letters_not_before:
            self._letters_not_before = -inf
            self._submit_some(min(self._at_once, self._letters_at_once))
            return
        held = self._with_letters()
        if any(id not in held for id, _ in self._waiting):
            self._submit_some(self._at_once, held)

    def flush(self) -> None:
        """Submit everything. The journal is closed next; entries that a full disk refuses now are lost."""
        while self._waiting:
            self._submit_some(self._at_once)

    def _submit_some(self, at_once: int, held: frozenset[int] = frozenset()) -> None:
        """Submit what waits, in order, but nothing of the subscriptions that are held back."""
        together: list[Entry] = []
        later: deque[_Group] = deque()
        while self._waiting and len(together) < at_once:
            group = self._waiting.popleft()
            if group[0] in held:
                later.append(group)
            else:
                self._under_way.append(group)
                together += group[1]
        self._waiting.extendleft(reversed(later))
        self._journal.submit(together, partial(self._committed, together))

    def _with_letters(self) -> frozenset[int]:
        """The subscriptions that have dead letters to write."""
        return frozenset(id for id, entries in self._waiting if any(type(entry) is Bury for entry in entries))

    def forget(self) -> None:
        """The journal failed: nothing can be written any more."""
        self._waiting.clear()
        self._count = sum(len(entries) for _, entries in self._under_way)
        self._not_before = self._letters_not_before = -inf

    def _committed(self, entries: Sequence[Entry], result: Result, now: float) -> None:
        groups, self._under_way = self._under_way, []
        if isinstance(result, StoreFull):
            self.refused += 1
            self._waiting.extendleft(reversed(groups))
            fewer = max(1, len(entries) // 2)
            if any(type(entry) is Bury for entry in entries):
                self._letters_not_before, self._letters_at_once = now + RETRY_S, fewer
            else:
                self._not_before, self._at_once = now + RETRY_S, fewer
            return
        self._count -= len(entries)
        if isinstance(result, JournalFailed):
            self.forget()
        elif isinstance(result, Exception):
            self._journal.fail(f"settled messages could not be written: {result}", now)
        else:
            self._at_once = min(AT_ONCE, 2 * self._at_once)
            if self._letters_not_before == -inf:
                self._letters_at_once = min(AT_ONCE, 2 * self._letters_at_once)
            for entry, answer in zip(entries, result, strict=True):
                if type(entry) is Bury:
                    self._buried(entry, answer)
