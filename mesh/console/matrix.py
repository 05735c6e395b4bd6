"""All links of a mesh as a matrix: round trip, loss or rate. Pure.

One character stands for a link, on a scale up to the largest value. A pair without a link that should have
one is a red cross. Rows and columns are the brokers by name; a column has its row's number above it.
"""

from __future__ import annotations

from typing import Final

from rich.text import Text

from mesh.console.figures import milliseconds, number, shortened
from mesh.console.links import LinkRow, link_rows
from mesh.console.signs import Signs, colour
from mesh.console.sparklines import BARS, LETTERS
from mesh.picture import Picture

NAME_MAX: Final = 14
CROSSES: Final = {True: "✕", False: "X"}


def matrix(
    picture: Picture,
    metric: str,
    width: int,
    height: int,
    signs: Signs,
    first: int = 0,
) -> list[Text]:
    """As many rows from ``first`` on, and as many columns, as fit."""
    rows = {row.id: row for row in link_rows(picture)}
    values = {id: _value(row, metric) for id, row in rows.items()}
    top = max((value for value in values.values() if value is not None), default=0.0)
    nodes = picture.nodes
    digits = len(str(len(nodes)))
    name_width = max(3, min(NAME_MAX, width // 3))
    columns = nodes[: max(1, width - name_width - digits - 2)]
    shown = nodes[first : first + max(1, height - digits - 1)]
    lines = _heads(len(columns), name_width + digits + 2, digits)
    for place, node in enumerate(shown, first + 1):
        line = Text(no_wrap=True, overflow="crop")
        line.append(f"{place:>{digits}} ", "bright_black")
        name = shortened(node.name, name_width, signs.ellipsis)
        line.append(f"{name:<{name_width}} ", colour(node.state))
        for other in columns:
            a, b = sorted((node.id, other.id))
            line.append(*_mark(rows.get((a, b)), values.get((a, b)), top, a == b, signs))
        lines.append(line)
    lines.append(_legend(metric, top, signs, len(nodes) - len(shown), len(nodes) - len(columns)))
    return lines[:height]


def _value(row: LinkRow, metric: str) -> float | None:
    if row.edge is None:
        return None
    if metric == "round trip":
        return row.edge.rtt_ms
    if metric == "rate":
        return row.edge.msgs_s
    return float(row.edge.lost + row.edge.dropped)


def _heads(count: int, indent: int, digits: int) -> list[Text]:
    """The numbers of the columns, one digit a line."""
    numbers = [f"{place:>{digits}}" for place in range(1, count + 1)]
    return [
        Text(" " * indent + "".join(each[digit] for each in numbers), "bright_black", no_wrap=True)
        for digit in range(digits)
    ]


def _mark(row: LinkRow | None, value: float | None, top: float, own: bool, signs: Signs) -> tuple[str, str]:
    if own:
        return signs.none, "bright_black"
    if row is None:
        return " ", ""
    if row.kind == "missing":
        return CROSSES[signs.unicode], "bold red"
    style = "green" if row.kind == "up" else "bold yellow"
    if value is None:
        return "?", "bright_black"
    marks = BARS if signs.unicode else LETTERS
    at = 0 if top <= 0 else min(len(marks) - 1, int(value / top * (len(marks) - 1) + 0.5))
    return marks[at], style


def _legend(
    metric: str,
    top: float,
    signs: Signs,
    rows: int,
    columns: int,
) -> Text:
    units = {
        "round trip": f"{milliseconds(top)} ms",
        "loss": f"{number(top)} lost",
        "rate": f"{number(top)}/s",
    }
    marks = BARS if signs.unicode else LETTERS
    said = f"{metric}: {marks[0]} 0 to {marks[-1]} {units[metric]}, {CROSSES[signs.unicode]} no link"
    more = [f"{count} {what}" for count, what in ((rows, "rows"), (columns, "columns")) if count > 0]
    if more:
        said += f"; {', '.join(more)} more"
    return Text(said, "bright_black", no_wrap=True, overflow="ellipsis")
