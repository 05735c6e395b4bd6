"""Intervals of time in microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """From a first sign to a last one."""

    first: int
    last: int


def merged(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """Spans in order; those that overlap or are at most ``gap`` apart are merged."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.first - found[-1].last <= gap:
            found[-1] = Span(found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found
