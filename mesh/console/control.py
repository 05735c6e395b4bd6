"""The keys of ``mesh top``, and the state that they change: view, choice, order and filter. Pure.

The state is a view, a chosen row of each view, an order, a filter, and whether help or the details of the
chosen row are shown. A key changes it (`Control.press`); the screen reads it. While a filter is typed, keys
are its text.

================== =============================================================================
``?``              help
``m l x c t e``    mesh, links, matrix, clients, topics, events
arrows, ``j k``    choose a row; also PgUp, PgDn, Home, End
Enter              details of the chosen broker, link or client, with the last minutes
``s S r``          sort by the next or previous column; the other way round
``/``              filter rows by a text; Escape ends it
Escape             back
``q``              quit
================== =============================================================================
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

FILTER_MAX: Final = 40


class View(StrEnum):
    """The views of the screen."""

    MESH = "mesh"
    LINKS = "links"
    MATRIX = "matrix"
    CLIENTS = "clients"
    TOPICS = "topics"
    EVENTS = "events"


VIEW_KEYS: Final = {
    "m": View.MESH,
    "l": View.LINKS,
    "x": View.MATRIX,
    "c": View.CLIENTS,
    "t": View.TOPICS,
    "e": View.EVENTS,
}
DETAILED: Final = (View.MESH, View.LINKS, View.CLIENTS)
METRICS: Final = ("round trip", "loss", "rate")
"""The figures of links that the matrix can show."""

HELP: Final = (
    ("m", "the mesh: topology, brokers, events, trouble"),
    ("l", "links, the missing and bad ones first"),
    ("x", "links as a matrix: round trip, loss or rate; s changes it"),
    ("c", "clients of all brokers"),
    ("t", "topics: the patterns that clients want"),
    ("e", "events"),
    ("arrows, j, k", "choose a row; also PgUp, PgDn, Home and End"),
    ("Enter", "the chosen broker, link or client, and its last minutes"),
    ("s, S, r", "sort by the next or previous column, or reversed"),
    ("/", "show only rows with a text in them"),
    ("Escape", "back"),
    ("q", "quit"),
)
SHORT_HELP: Final = (
    ("m", "mesh"),
    ("l", "links"),
    ("x", "matrix"),
    ("c", "clients"),
    ("t", "topics"),
    ("e", "events"),
    ("j, k", "rows"),
    ("Enter", "details"),
    ("s S r", "sort"),
    ("/", "filter"),
    ("Esc", "back"),
    ("q", "quit"),
)
"""The same for narrow terminals."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows of the present view in their order, by id; the columns that can be sorted by; how many rows
    a page has."""

    ids: Sequence[Hashable] = ()
    columns: Sequence[str] = ()
    page: int = 10


@dataclass(slots=True)
class Control:
    """See the module."""

    view: View = View.MESH
    metric: str = METRICS[0]
    details: bool = False
    help: bool = False
    typing: bool = False
    quits: bool = False
    filter: str = ""
    chosen: dict[View, Hashable] = field(default_factory=dict)
    """The chosen row of each view; it may be gone."""
    order: dict[View, tuple[str, bool]] = field(default_factory=dict)
    """The column that a view is sorted by, and whether the other way round."""

    def press(self, key: str, listing: Listing) -> None:
        """A key was pressed while ``listing`` was shown."""
        if self.typing:
            self._type(key)
        elif self.help:
            self.help = False
            self.quits = key == "q"
        elif key == "q":
            self.quits = True
        elif key == "?":
            self.help = True
        elif key == "escape":
            self._back()
        elif key in VIEW_KEYS:
            self.view, self.details = VIEW_KEYS[key], False
        elif key == "/":
            self.typing, self.details = True, False
        elif key == "enter":
            self.details = self.view in DETAILED and self.chosen.get(self.view) in listing.ids
        elif key in ("s", "S", "r"):
            self._sort(key, listing.columns)
        else:
            self._choose(key, listing)

    def place(self, ids: Sequence[Hashable]) -> int | None:
        """The place of the chosen row; None: none is chosen, or it is gone."""
        chosen = self.chosen.get(self.view)
        return ids.index(chosen) if chosen is not None and chosen in ids else None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and len(self.filter) < FILTER_MAX:
            self.filter += key

    def _back(self) -> None:
        if self.details:
            self.details = False
        elif self.filter:
            self.filter = ""
        elif self.chosen.pop(self.view, None) is None:
            self.view = View.MESH

    def _sort(self, key: str, columns: Sequence[str]) -> None:
        if self.view is View.MATRIX:
            self.metric = METRICS[(METRICS.index(self.metric) + 1) % len(METRICS)]
            return
        if not columns:
            return
        column, reverse = self.order.get(self.view, (columns[0], False))
        if key == "r":
            self.order[self.view] = (column, not reverse)
            return
        at = columns.index(column) if column in columns else 0
        column = columns[(at + (1 if key == "s" else -1)) % len(columns)]
        # Names are read from A on, of figures the largest is wanted.
        self.order[self.view] = (column, column != columns[0])

    def _choose(self, key: str, listing: Listing) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -listing.page, "pagedown": listing.page}
        count = len(listing.ids)
        if not count or key not in (*steps, "home", "end"):
            return
        at = self.place(listing.ids)
        if key in ("home", "end"):
            at = 0 if key == "home" else count - 1
        elif at is None:
            at = 0 if steps[key] > 0 else count - 1
        else:
            at = min(max(0, at + steps[key]), count - 1)
        self.chosen[self.view] = listing.ids[at]
