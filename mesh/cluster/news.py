"""Changes of members that still have to be sent to each link. Pure.

A change goes to all links except its source. News goes out at once, and then at most every `NEWS_PAUSE_S`, so
that many changes make one message. Only the last of several changes of one member is sent. A link that was
sent the whole table gets no earlier news.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from math import inf
from typing import Final

from mesh.wire.member_record import MemberRecord

NEWS_PAUSE_S: Final = 0.03


class News:
    """Collects news for links, which are ids of members."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, MemberRecord]] = {}
        self._sent_at = -inf
        self.due = inf
        """The time of the next call of `take`."""

    @property
    def links(self) -> KeysView[int]:
        """All links, in order of arrival."""
        return self._waiting.keys()

    def link_up(self, member: int) -> None:
        """A link came up, perhaps in place of another. Nothing was sent on it yet."""
        self._waiting[member] = {}

    def link_down(self, member: int) -> None:
        """The link has ended; its pending news is dropped."""
        self._waiting.pop(member, None)

    def tell(self, records: Iterable[MemberRecord], except_member: int, now: float) -> None:
        """Send these records to all links except one."""
        for member, waiting in self._waiting.items():
            if member != except_member:
                for record in records:
                    waiting[record.id] = record
        if self.due == inf:
            self.due = max(now, self._sent_at + NEWS_PAUSE_S)

    def told_all(self, member: int) -> bool:
        """The whole table was sent to a link, so nothing waits for it. False if there is no such link."""
        if member not in self._waiting:
            return False
        self._waiting[member] = {}
        return True

    def take(self, now: float) -> list[tuple[int, tuple[MemberRecord, ...]]]:
        """All pending news by link, if it is time."""
        if now < self.due:
            return []
        self.due, self._sent_at = inf, now
        taken = [(member, tuple(waiting.values())) for member, waiting in self._waiting.items() if waiting]
        for member, _ in taken:
            self._waiting[member] = {}
        return taken

    def drop(self) -> None:
        """Drop all pending news."""
        self.due = inf
        for member in self._waiting:
            self._waiting[member] = {}
