"""Changes of members that each link is still to be told. Pure.

A change goes to all links but the one it came from. It waits for a moment, so that many changes are one
message: news goes out at once, and then at most every `NEWS_PAUSE_S`. Only the last of several changes of one
member is told. A link that was sent the whole table is told nothing of what came before it.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from math import inf
from typing import Final

from mesh.wire.member_record import MemberRecord

NEWS_PAUSE_S: Final = 0.03


class News:
    """See the module. Links are ids of members."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, MemberRecord]] = {}
        self._sent_at = -inf
        self.due = inf
        """When to call `take`."""

    @property
    def links(self) -> KeysView[int]:
        """All there are, in the order in which they came."""
        return self._waiting.keys()

    def link_up(self, member: int) -> None:
        """A link, perhaps in place of another: nothing was said on it yet."""
        self._waiting[member] = {}

    def link_down(self, member: int) -> None:
        """The link is gone, and with it what it was still to be told."""
        self._waiting.pop(member, None)

    def tell(self, records: Iterable[MemberRecord], except_member: int, now: float) -> None:
        """These records to all but one."""
        for member, waiting in self._waiting.items():
            if member != except_member:
                for record in records:
                    waiting[record.id] = record
        if self.due == inf:
            self.due = max(now, self._sent_at + NEWS_PAUSE_S)

    def told_all(self, member: int) -> bool:
        """The whole table was sent to one, so nothing waits for it. False if it has no link."""
        if member not in self._waiting:
            return False
        self._waiting[member] = {}
        return True

    def take(self, now: float) -> list[tuple[int, tuple[MemberRecord, ...]]]:
        """All that waits, by link, if it is time."""
        if now < self.due:
            return []
        self.due, self._sent_at = inf, now
        taken = [(member, tuple(waiting.values())) for member, waiting in self._waiting.items() if waiting]
        for member, _ in taken:
            self._waiting[member] = {}
        return taken

    def drop(self) -> None:
        """Forget all that waits."""
        self.due = inf
        for member in self._waiting:
            self._waiting[member] = {}
