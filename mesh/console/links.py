"""The links as a table: those that are missing or bad first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mesh.console.figures import milliseconds, number
from mesh.console.signs import Signs
from mesh.console.tables import Column
from mesh.picture import Edge, Picture, missing_links

KINDS: Final = ("missing", "half", "losing", "up")
"""The worst first. Half: one of the two brokers reports the link. Losing: it has lost messages."""
COLOURS: Final = {"missing": "red", "half": "yellow", "losing": "yellow", "up": "green"}


class LinkRow(NamedTuple):
    """A link, or a pair of brokers that should have one; ``id`` has the ids of both."""

    id: tuple[str, str]
    a: str
    b: str
    kind: str
    edge: Edge | None


def kind_of(edge: Edge) -> str:
    """One of `KINDS`."""
    return "half" if not edge.whole else "losing" if edge.dropped or edge.lost else "up"


def link_rows(picture: Picture) -> list[LinkRow]:
    """All links, the worst first and then by name."""
    names = {node.id: node.name for node in picture.nodes}
    rows = [
        LinkRow((edge.a, edge.b), *_in_order(edge.a, edge.b, names), kind_of(edge), edge)
        for edge in picture.edges
    ]
    rows += [LinkRow((a, b), *_in_order(a, b, names), "missing", None) for a, b in missing_links(picture)]
    return sorted(rows, key=lambda row: (KINDS.index(row.kind), row.a, row.b))


def _in_order(a: str, b: str, names: dict[str, str]) -> tuple[str, str]:
    first, second = sorted((names.get(a, a[:8]), names.get(b, b[:8])))
    return first, second


def links_said(rows: list[LinkRow]) -> str:
    """How many links there are of each kind: ``118 up, 2 missing``."""
    counts = {kind: sum(1 for row in rows if row.kind == kind) for kind in KINDS}
    said = [f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind] or kind == "up"]
    return ", ".join(said)


def _of(key: str) -> Callable[[LinkRow], Any]:
    return lambda row: None if row.edge is None else getattr(row.edge, key)


LINK_COLUMNS: Final[tuple[Column[LinkRow], ...]] = (
    Column(
        "link",
        lambda row, signs: (f"{row.a} - {row.b}", ""),
        52,
        0,
        right=False,
        stretches=True,
        key=lambda row: (row.a, row.b),
    ),
    Column(
        "state",
        lambda row, signs: (row.kind, COLOURS[row.kind]),
        7,
        1,
        right=False,
        key=lambda row: KINDS.index(row.kind),
    ),
    Column("rtt ms", lambda row, signs: (milliseconds(_of("rtt_ms")(row)), ""), 6, 2, key=_of("rtt_ms")),
    Column("msgs/s", lambda row, signs: (number(_of("msgs_s")(row)), ""), 6, 3, key=_of("msgs_s")),
    Column("lost", lambda row, signs: (number(_of("lost")(row)), ""), 5, 4, key=_of("lost")),
    Column("drop", lambda row, signs: (number(_of("dropped")(row)), ""), 5, 5, key=_of("dropped")),
    Column("ends", lambda row, signs: _ends(row, signs), 4, 6),
)


def _ends(row: LinkRow, signs: Signs) -> tuple[str, str]:
    return ("-" if row.edge is None else f"{row.edge.ends}/{row.edge.heard}"), ""
