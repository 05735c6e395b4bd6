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


def without(span: Span, less: Iterable[Span]) -> list[Span]:
    """The parts of a span that no span in ``less`` covers, in order."""
    found, at = [], span.first
    for each in merged(less):
        if at < each.first < span.last:
            found.append(Span(at, each.first))
        at = max(at, each.last)
    return [*found, Span(at, span.last)] if at < span.last else found
