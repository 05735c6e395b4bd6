"""Records of settled, retried and buried messages on their way to the journal, in order. Pure.

Each entry replaces earlier ones about the same message. An older one written after a newer one would undo it.
So one submission is in progress at a time, and entries that arrive meanwhile form the next one.

A full disk refuses a submission as a whole. The next one is smaller. Subscriptions with dead letters to write
are held back for a time: letters need room, and what others settle makes some. Entries of one subscription
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
        self._held: dict[int, list[_Group]] = {}
        """What waits of the subscriptions that are held back, in order."""
        self._count = 0
        """Entries that wait or are being written."""
        self._under_way: list[_Group] = []
        self._not_before = -inf
        self._at_once = AT_ONCE
        self._letters_not_before = -inf
        """Subscriptions with dead letters are held back until then."""
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
        return bool(self._waiting or self._held)

    @property
    def next_due(self) -> float:
        """When `submit` has work to do even if nothing happens."""
        if self._not_before > -inf:
            return self._not_before
        if self._letters_not_before > -inf and self._held and not self._under_way:
            return self._letters_not_before
        return inf

    def add(self, subscription: int, entries: Sequence[Entry]) -> None:
        """Add entries of a subscription that belong to one commit, in order."""
        self._count += len(entries)
        if self._letters_not_before > -inf and (subscription in self._held or _has_letters(entries)):
            self._held.setdefault(subscription, []).append((subscription, entries))
        else:
            self._waiting.append((subscription, entries))

    def submit(self, now: float) -> None:
        """Submit the collected entries, unless a submission is in progress or the disk was just full."""
        if self._under_way or now < self._not_before:
            return
        self._not_before = -inf
        at_once = self._at_once
        if now >= self._letters_not_before:
            self._release()
            at_once = min(at_once, self._letters_at_once)
        if self._waiting:
            self._submit_some(at_once)

    def flush(self) -> None:
        """Submit everything. The journal is closed next; entries that a full disk refuses now are lost."""
        self._release()
        while self._waiting:
            self._submit_some(self._at_once)

    def _submit_some(self, at_once: int) -> None:
        """Submit what waits, in order."""
        together: list[Entry] = []
        while self._waiting and len(together) < at_once:
            group = self._waiting.popleft()
            self._under_way.append(group)
            together += group[1]
        self._journal.submit(together, partial(self._committed, together))

    def _hold(self) -> None:
        """Hold back the subscriptions that have dead letters to write."""
        with_letters = {id for id, entries in self._waiting if _has_letters(entries)}
        waiting, self._waiting = self._waiting, deque()
        for group in waiting:
            if group[0] in with_letters:
                self._held.setdefault(group[0], []).append(group)
            else:
                self._waiting.append(group)

    def _release(self) -> None:
        """Hold nothing back any more. A subscription that is held has nothing that is newer elsewhere."""
        self._letters_not_before = -inf
        held, self._held = self._held, {}
        for groups in held.values():
            self._waiting.extend(groups)

    def forget(self) -> None:
        """The journal failed: nothing can be written any more."""
        self._waiting.clear()
        self._held.clear()
        self._count = sum(len(entries) for _, entries in self._under_way)
        self._not_before = self._letters_not_before = -inf

    def _committed(self, entries: Sequence[Entry], result: Result, now: float) -> None:
        groups, self._under_way = self._under_way, []
        if isinstance(result, StoreFull):
            self.refused += 1
            self._waiting.extendleft(reversed(groups))
            fewer = max(1, len(entries) // 2)
            if _has_letters(entries):
                self._letters_not_before, self._letters_at_once = now + RETRY_S, fewer
                self._hold()
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


def _has_letters(entries: Sequence[Entry]) -> bool:
    return any(type(entry) is Bury for entry in entries)
