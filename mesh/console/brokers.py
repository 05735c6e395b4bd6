"""The brokers as a table: their states and figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from rich.table import Table

from mesh.console.figures import duration, milliseconds, number
from mesh.console.history import History
from mesh.console.signs import UNICODE, Signs, colour
from mesh.console.tables import Column, Window, table
from mesh.picture import Picture, Vertex

LATE_WARN_MS: Final = 50.0
"""An event loop that runs later than this is worth a colour: a tenth of the heartbeat's deadline."""
WARN: Final = "bold yellow"


class BrokerRow(NamedTuple):
    """A broker, and the messages that it drops a second (None: not known)."""

    node: Vertex
    drops_s: float | None


def broker_rows(picture: Picture, past: History | None = None) -> list[BrokerRow]:
    """All brokers, by name."""
    rates = {} if past is None else past.drops_s
    return [BrokerRow(node, rates.get(node.id)) for node in picture.nodes]


def _figure(
    of: Callable[[Vertex], float | None], say: Callable[[float | None], str] = number
) -> Callable[[BrokerRow, Signs], tuple[str, str]]:
    return lambda row, signs: (say(of(row.node)), "")


def _key(of: Callable[[Vertex], Any]) -> Callable[[BrokerRow], Any]:
    return lambda row: of(row.node)


def state_word(node: Vertex, signs: Signs) -> str:
    """The state, and how many brokers agree where not all do: ``dead 3/4``."""
    word = node.mode if node.answered and node.mode in ("joining", "isolated", "leaving") else node.state
    if word == "dead" and node.answered:
        word = "cut off"  # others believe it dead, and it has just said that it is not
    if 0 < node.agree < node.observers:
        return f"{signs.of(node.state)} {word} {node.agree}/{node.observers}"
    return f"{signs.of(node.state)} {word}"


def _trip(row: BrokerRow, signs: Signs) -> tuple[str, str]:
    return "self" if row.node.connected else milliseconds(row.node.rtt_ms), ""


def _late(row: BrokerRow, signs: Signs) -> tuple[str, str]:
    late_ms = row.node.late_ms
    return milliseconds(late_ms), WARN if late_ms is not None and late_ms > LATE_WARN_MS else ""


def _bytes_s(node: Vertex) -> float | None:
    known = [value for value in (node.bytes_in_s, node.bytes_out_s) if value is not None]
    return sum(known) if known else None


def _megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.0f}"


SEVERITY: Final = ("dead", "suspect", "unknown", "alive", "left")

BROKER_COLUMNS: Final[tuple[Column[BrokerRow], ...]] = (
    Column(
        "broker",
        lambda row, signs: (row.node.name, "bold" if row.node.connected else ""),
        24,
        0,
        right=False,
        stretches=True,
        key=_key(lambda node: (node.name, node.id)),
    ),
    Column(
        "state",
        lambda row, signs: (state_word(row.node, signs), colour(row.node.state)),
        15,
        1,
        right=False,
        stretches=True,
        key=_key(lambda node: SEVERITY.index(node.state) if node.state in SEVERITY else 2),
    ),
    Column("rtt ms", _trip, 6, 2, key=_key(lambda node: node.rtt_ms)),
    Column("in/s", _figure(lambda node: node.msgs_in_s), 5, 3, key=_key(lambda node: node.msgs_in_s)),
    Column("out/s", _figure(lambda node: node.msgs_out_s), 5, 4, key=_key(lambda node: node.msgs_out_s)),
    Column(
        "drop",
        lambda row, signs: (number(row.node.dropped), WARN if row.drops_s else ""),
        5,
        5,
        key=_key(lambda node: node.dropped),
    ),
    Column("late", _late, 4, 6, key=_key(lambda node: node.late_ms)),
    Column("since", _figure(lambda node: node.since_s, duration), 5, 7, key=_key(lambda node: node.since_s)),
    Column("lost", _figure(lambda node: node.lost), 5, 8, key=_key(lambda node: node.lost)),
    Column("bytes/s", _figure(_bytes_s), 7, 9, key=_key(_bytes_s)),
    Column("queue", _figure(lambda node: node.queued), 5, 10, key=_key(lambda node: node.queued)),
    Column("sess", _figure(lambda node: node.sessions), 5, 11, key=_key(lambda node: node.sessions)),
    Column(
        "subs", _figure(lambda node: node.subscriptions), 5, 12, key=_key(lambda node: node.subscriptions)
    ),
    Column(
        "MB", _figure(lambda node: node.rss_bytes, _megabytes), 5, 13, key=_key(lambda node: node.rss_bytes)
    ),
    Column(
        "inc", lambda row, signs: (number(row.node.incarnation), ""), 5, 14, key=_key(lambda n: n.incarnation)
    ),
    Column("address", lambda row, signs: (row.node.url, ""), 40, 15, right=False, stretches=True),
)


def brokers_table(
    rows: Sequence[BrokerRow],
    width: int,
    height: int,
    signs: Signs = UNICODE,
    *,
    window: Window | None = None,
    sorted_by: str = "",
) -> Table:
    """The brokers. If not all fit, those in trouble come first, unless a row or an order is chosen."""
    if (window is None or window.chosen is None) and not sorted_by and len(rows) > height - 1:
        rows = sorted(rows, key=lambda row: (row.node.state == "alive", not row.node.connected))
    return table(BROKER_COLUMNS, rows, width, height, signs, window=window, sorted_by=sorted_by)
