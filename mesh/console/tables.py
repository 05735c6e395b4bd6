"""Tables that fit: as many columns and rows as there is room for. Pure.

Every column has a `need`: where room is short, the columns of the highest numbers are left out. No figure
is cut: a column is as wide as its longest figure. Names lose their middle, since many differ at their ends;
where room is short, they leave some for the second column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from mesh.console.figures import shortened
from mesh.console.signs import Signs

Row = TypeVar("Row")
NAME_MIN = 6
NAME_MAX = 24


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """``cell`` gives the text and its style. A column that `stretches` is as wide as its longest text, from
    `NAME_MIN` to ``width`` cells. ``key`` gives what rows are sorted by; None: this column does not sort."""

    title: str
    cell: Callable[[Row, Signs], tuple[str, str]]
    width: int
    need: int
    right: bool = True
    stretches: bool = False
    key: Callable[[Row], Any] | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows are shown: from ``first`` on, with one of them ``chosen`` (by its place; None: none)."""

    first: int = 0
    chosen: int | None = None


def in_order(rows: Sequence[Row], column: Column[Row], *, reverse: bool) -> list[Row]:
    """Sorted by a column; rows in which it is unknown come last either way."""
    key = column.key
    if key is None:
        return list(rows)
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=reverse), *unknown]


def table(
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    width: int,
    height: int,
    signs: Signs,
    *,
    window: Window | None = None,
    sorted_by: str = "",
) -> Table:
    """``rows`` in their order, in ``width`` cells and ``height`` lines with the head. Without a window the
    first ones are shown, and how many more there are."""
    names = _names_max(columns, width)
    columns = fitting(columns, rows, width, signs)
    shown = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=False, header_style="bright_black")
    for column in columns:
        shown.add_column(
            Text(column.title, "bold underline" if column.title == sorted_by else "bright_black"),
            justify="right" if column.right else "left",
            width=_width(column, rows, signs, names),
            no_wrap=True,
            overflow="crop",
        )
    room = rows_shown(len(rows), height)
    first = 0 if window is None else window.first
    for place, row in enumerate(rows[first : first + room], first):
        chosen = window is not None and place == window.chosen
        cells = [_cell(column, row, rows, signs, names) for column in columns]
        shown.add_row(*cells, style="reverse" if chosen else "")
    if len(rows) > room:
        last = min(len(rows), first + room)
        said = f"+{len(rows) - room} more" if window is None else f"{first + 1}-{last} of {len(rows)}"
        shown.caption = Text(said, "bright_black", no_wrap=True)
        shown.caption_justify = "left"
    return shown


def window(chosen: int | None, count: int, height: int) -> Window:
    """The page that has the chosen row: pages do not move while one goes through their rows."""
    room = rows_shown(count, height)
    return Window(0 if chosen is None else chosen // room * room, chosen)


def rows_shown(count: int, height: int) -> int:
    """How many of so many rows a table of that height shows."""
    room = max(1, height - 1)
    return room if count <= room else max(1, room - 1)


def fitting(
    columns: Sequence[Column[Row]], rows: Sequence[Row], width: int, signs: Signs
) -> list[Column[Row]]:
    """The most needed columns that fit side by side, in their order; always one."""
    chosen: set[str] = set()
    names = _names_max(columns, width)
    left = width + 1  # the last column needs no gap behind it
    for column in sorted(columns, key=lambda column: column.need):
        left -= _width(column, rows, signs, names) + 1
        if left < 0 and chosen:
            break
        chosen.add(column.title)
    return [column for column in columns if column.title in chosen]


def _names_max(columns: Sequence[Column[Row]], width: int) -> int:
    """Most cells of a name that leave room for the second of the most needed columns."""
    needed = sorted(columns, key=lambda column: column.need)
    if len(needed) < 2:
        return max(NAME_MIN, width)
    second = needed[1]
    least = NAME_MIN if second.stretches else second.width
    return max(NAME_MIN, width - 1 - max(least, cell_len(second.title)))


def _width(column: Column[Row], rows: Sequence[Row], signs: Signs, names: int) -> int:
    if not column.stretches:
        return max(column.width, cell_len(column.title))
    longest = max((cell_len(column.cell(row, signs)[0]) for row in rows), default=0)
    return max(NAME_MIN, cell_len(column.title), min(longest, column.width, names))


def _cell(column: Column[Row], row: Row, rows: Sequence[Row], signs: Signs, names: int) -> Text:
    text, style = column.cell(row, signs)
    if column.stretches:
        text = shortened(text, _width(column, rows, signs, names), signs.ellipsis)
    return Text(text, style, no_wrap=True, overflow="crop")
