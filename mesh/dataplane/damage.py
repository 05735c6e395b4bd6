"""Stored messages that are damaged on the disk: counted, and reported to the operator. Pure.

A row holds the messages of one block, or a large body. Nothing of a damaged row is delivered, and nothing
else waits for it. It stays in the journal: in its subscription, or among the dead letters if a consumer
dropped one of its messages. A row is counted when damage is first met in it, and it may be met often.
"""

from __future__ import annotations

from typing import Any, Final

from mesh.dataplane.durables import Durable
from mesh.dataplane.queue_watch import NAMES_MAX, REASON_MAX, Notice

KNOWN_MAX: Final = 16_384
"""Damaged rows that are remembered. Beyond them the oldest is forgotten and may be counted again."""


class DamagedRows:
    """The damaged rows of one journal."""

    def __init__(self) -> None:
        self.rows = 0
        """How many were met since this broker started."""
        self._known: dict[tuple[int, int], None] = {}
        self._news: dict[Durable, list[int]] = {}
        """Rows that were not reported yet; the first is their number, and at most `NAMES_MAX` follow."""
        self._reasons: dict[Durable, str] = {}

    def found(self, durable: Durable, row: int, reason: str) -> None:
        """A row of a subscription is damaged, for this reason."""
        if (durable.id, row) in self._known:
            return
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[durable.id, row] = None
        self.rows += 1
        durable.damaged += 1
        news = self._news.setdefault(durable, [0])
        news[0] += 1
        if len(news) <= NAMES_MAX:
            news.append(row)
        self._reasons[durable] = reason[:REASON_MAX]

    def scan(self) -> list[Notice]:
        """The notices to send now: what was met since the last call."""
        if not self._news:
            return []
        news, self._news = self._news, {}
        reasons, self._reasons = self._reasons, {}
        return [
            Notice(durable.name, "damaged", _about(count, rows, reasons[durable]))
            for durable, (count, *rows) in news.items()
        ]


def _about(count: int, rows: list[int], reason: str) -> dict[str, Any]:
    return {"damaged": count, "rows": rows, "reason": reason}
