"""Facts, each with its name: beside it, or below it where there is little room. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NARROW: Final = 50
"""Cells below which a fact stands under its name."""
STYLE: Final = "bright_black"


def facts(named: Iterable[tuple[str, str]], width: int) -> RenderableType:
    """``named`` in ``width`` cells: each name with its fact, which is folded as needed."""
    if width < NARROW:
        return Group(*(each for name, said in named for each in _below(name, said)))
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style=STYLE, no_wrap=True)
    shown.add_column(overflow="fold")
    for name, said in named:
        shown.add_row(name, said)
    return shown


def _below(name: str, said: str) -> tuple[RenderableType, RenderableType]:
    return Text(name, STYLE), Padding(Text(said), (0, 0, 0, 2), expand=False)
