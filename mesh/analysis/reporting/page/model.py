"""The content of the template: sections of figures and grids. Texts are escaped when written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Said:
    """A paragraph; ``tone`` is a class of the style sheet."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top."""

    name: str
    value: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A colour of a figure and its meaning."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with its definition."""

    title: str
    what: str
    drawing: Markup
    keys: Sequence[Key] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a grid."""

    name: str
    number: bool = True
    always: bool = False
    """It is shown even if all of it is zero or empty."""
    wraps: bool = False
    """Its texts may be long."""
    meaning: str = ""
    """A sentence that explains it, if its name does not."""

    @property
    def kind(self) -> str:
        """Its class of the style sheet."""
        return "num" if self.number else "wraps" if self.wraps else ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. Columns in which every cell is zero or empty are left out."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    what: str = ""
    more: str = ""

    @property
    def explained(self) -> str:
        """Its own explanation, followed by those of its columns."""
        return " ".join(filter(None, [self.what, *(column.meaning for column in self.columns)]))

    def cells(self, row: Sequence[Any]) -> Iterator[tuple[Column, Any]]:
        """A row's cells with their columns."""
        return zip(self.columns, row, strict=True)

    def without_zeros(self) -> Grid:
        """The same without columns that tell nothing."""
        kept = [
            number
            for number, column in enumerate(self.columns)
            if column.always or any(row[number] not in NOTHING for row in self.rows)
        ]
        return Grid(
            [self.columns[number] for number in kept],
            [[row[number] for number in kept] for row in self.rows],
            *(self.title, self.what, self.more),
        )


NOTHING: tuple[Any, ...] = ("", "0", "-", 0, None, "0.0 s", "0 B")
"""A column with only such cells tells nothing."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, sentences, figures, grids. ``layout`` is ``wide`` (one below another) or ``pair``."""

    title: str
    said: Sequence[Said] = ()
    figures: Sequence[Figure] = ()
    grids: Sequence[Grid] = ()
    layout: str = "wide"


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run's part of the page."""

    title: str
    verdict: str
    when: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    title: str
    verdict: str
    runs: Sequence[RunPage]
    sections: Sequence[Section] = field(default=())
