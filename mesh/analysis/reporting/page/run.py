"""One run: its findings, its rows of the digest, and how its brokers and times are written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mesh.analysis.reporting.digest import Digest
from mesh.analysis.reporting.findings import (
    PART_WORDS,
    RunFound,
    sides_text,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.axis import DAY_S, TimeAxis
from mesh.analysis.reporting.page.words import NAMES_MOST
from mesh.analysis.results.tables import Instant


class Run:
    """See the module. ``bands`` are its partitions, as plots over time show them."""

    def __init__(self, found: RunFound, digest: Digest) -> None:
        self.found = found
        self.digest = digest
        self.axis = TimeAxis(found.started, found.ended)
        self.names = {broker.node: broker.name for broker in found.brokers}
        self.bands = [
            plots.Band(
                part.start,
                found.ended if part.end is None else part.end,
                f"{PART_WORDS[part.kind]} {part.no}: {sides_text(part, NAMES_MOST)}",
            )
            for part in found.parts
        ]

    def rows(self, name: str) -> list[Any]:
        return [row for row in getattr(self.digest, name) if row.run == self.found.run]

    def name(self, node: str) -> str:
        return "all" if node == "*" else self.names.get(node, node)

    def when(self, at: Instant, *, tenth: bool = False) -> str:
        """With the date if there is more than one."""
        moment = datetime.fromtimestamp(at // 1_000_000, UTC)
        form = "%H:%M:%S" if tenth and self.axis.span_s < DAY_S else "%Y-%m-%d %H:%M:%S"
        return moment.strftime(form) + (f".{at % 1_000_000 // 100_000}" if tenth else "")
