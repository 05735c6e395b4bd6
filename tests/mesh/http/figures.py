"""Figures of a broker as the site reads them, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mesh.http.source import Figures
from tests.mesh.console.statuses import link, member, status

NOW_US = 1_790_000_000_000_000


@dataclass(frozen=True)
class Queue:
    """A durable subscription."""

    name: str
    waiting: int = 7
    size: int | None = 700

    def entry(self, now_us: int) -> dict[str, Any]:
        counters = dict.fromkeys(
            ("consumers", "in_flight", "delivered", "redelivered", "settled", "retried", "buried"), 1
        )
        return {"name": self.name, "waiting": self.waiting, "bytes": self.size, "oldest_s": None, **counters}


def figures(
    members: list[dict[str, Any]] | None = None, queues: tuple[Queue, ...] = (), **changes: Any
) -> Figures:
    whole = {
        "certificates": [],
        "journal": None,
        "log": None,
        "interest": ["#"],
        "unresolved": 0,
        **status("alpha", members),
    }
    return Figures({**whole, **changes}, queues, NOW_US)


def many(count: int) -> list[dict[str, Any]]:
    """This broker, and that many linked members."""
    others = [member(f"b{number:03}", link=link(rtt_ms=float(number))) for number in range(count)]
    return [member("alpha", is_self=True), *others]
