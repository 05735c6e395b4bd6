"""Events in a row of looks: each is told once. Pure.

An event is remembered for as long as brokers report it. They report their last events only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mesh.console.signs import Signs
from mesh.console.view import plain_news
from mesh.news import gathered
from mesh.picture import Picture, listed


class Feed:
    """The events that were told already. An event that more brokers confirm later is not told again."""

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self._told: dict[tuple[str, str], None] = {}
        self._rows: dict[tuple[Any, Any, Any], None] = {}

    def lines(self, picture: Picture) -> list[str]:
        """New events, one line each."""
        fresh = [item for item in picture.news if (item.ts, item.text) not in self._told]
        self._told = {(item.ts, item.text): None for item in picture.news}
        return [plain_news(item, self._signs) for item in gathered(fresh)]

    def rows(self, statuses: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """New events as their brokers wrote them, by time."""
        found: dict[tuple[Any, Any, Any], dict[str, Any]] = {}
        for status in statuses:
            for row in listed(status, "events"):
                if isinstance(row, dict):
                    found[str(row.get("node")), str(row.get("boot")), str(row.get("seq"))] = row
        fresh = [row for key, row in found.items() if key not in self._rows]
        # A broker that did not answer this time tells the same events when it answers again.
        here = {key[0] for key in found}
        self._rows = {key: None for key in self._rows if key[0] not in here} | dict.fromkeys(found)
        return sorted(fresh, key=lambda row: str(row.get("ts")))
