"""Reads the evidence of a run once, from beginning to end, for all readers.

A `Reader` is told each log row of the kinds that it asks for, each change of a broker from one look to the
next, and each look at all brokers. It keeps what it needs; the rest is never kept, since a run of a hundred
brokers has twenty thousand rows a second.

Rows come in the order of time, and before a look of the same time. At a look the changes come first, broker
by broker, and then the look as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from simulations.evidence.evidence import Evidence
from simulations.evidence.logs import Row
from simulations.evidence.view import Change, Sample

EVERY: Final = ("*",)
"""All kinds of rows."""


class Reader:
    """A reader that ignores everything. A subclass overrides the methods it needs."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """The kinds of rows that it is told."""

    def on_row(self, row: Row) -> None:
        pass

    def on_change(self, change: Change) -> None:
        """A broker differs from the look before, or was not there then."""

    def on_look(self, sample: Sample) -> None:
        pass


def read(evidence: Evidence, readers: Iterable[Reader]) -> None:
    """Tell all of them everything."""
    readers = list(readers)
    rows: dict[str, list[Callable[[Row], None]]] = {}
    for reader in readers:
        for kind in reader.kinds:
            rows.setdefault(kind, []).append(reader.on_row)
    changes = [each.on_change for each in readers if type(each).on_change is not Reader.on_change]
    looks = [each.on_look for each in readers if type(each).on_look is not Reader.on_look]
    samples = iter(evidence.samples if changes or looks else ())
    sample = next(samples, None)
    before: Sample | None = None

    def look(sample: Sample) -> None:
        for change in sample.changes(before) if changes else ():
            for tell in changes:
                tell(change)
        for tell_look in looks:
            tell_look(sample)

    every = rows.pop(EVERY[0], [])
    for row in evidence.rows if rows or every else ():
        while sample is not None and sample.at_s < row["at_s"]:
            look(sample)
            before, sample = sample, next(samples, None)
        for tell_row in every:
            tell_row(row)
        for tell_row in rows.get(row["kind"], ()):
            tell_row(row)
    while sample is not None:
        look(sample)
        before, sample = sample, next(samples, None)
