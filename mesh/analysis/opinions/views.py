"""How far members agree about who is present: one number for each view, compared at the end of every window.
Pure.

A view is the set of members that its holder believes present (alive or suspect), including itself. Its number
is the exclusive or of one number for each member. So a change is one step, and equal views have equal
numbers. `held` finds the numbers of one observer, `views` compares those of all observers of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

PRESENT: Final = ("alive", "suspect")
WINDOWS_MOST: Final = 100_000
"""A longer run has windows only where something changed."""
NUMBERS_MOST: Final = 100_000
"""Members whose numbers are cached."""

Spans = Sequence[tuple[int, int]]


class Step(NamedTuple):
    """An observer, in one boot, added a member to its view or removed it."""

    at: int
    boot: str
    subject: str
    present: bool


class Held(NamedTuple):
    """The number of an observer's view from the end of the window that begins at ``start``."""

    start: int
    number: int


class Agreement(NamedTuple):
    """A row of the table ``views`` without its run, in the order of its columns."""

    start: int
    window_s: float
    observers: int
    distinct: int
    agree: float


@lru_cache(NUMBERS_MOST)
def number_of(node: str) -> int:
    """The number of a member in views: a signed integer of 64 bits, which Spark can hold."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8).digest(), signed=True)


def held(observer: str, steps: Iterable[Step], *, started: int, window_us: int) -> list[Held]:
    """The view of one observer after each window with a step of it. Before the first, it holds only itself.
    ``started`` is the run's."""
    first = _first(started, window_us)
    own = number = number_of(observer)
    boot: str | None = None
    members: set[str] = set()
    found: dict[int, int] = {}
    for each in sorted(steps):
        if each.boot != boot:
            boot, number = each.boot, own
            members.clear()
        if each.present != (each.subject in members) and each.subject != observer:
            (members.add if each.present else members.discard)(each.subject)
            number ^= number_of(each.subject)
        found[_window_of(each.at, first, window_us)] = number
    return [Held(start, number) for start, number in found.items()]


def views(
    held: Mapping[str, Iterable[Held]],
    ran: Mapping[str, Spans],
    *,
    started: int,
    ended: int,
    window_us: int,
) -> list[Agreement]:
    """The agreement of the brokers that ran at the end of each window. ``held`` has the views of each
    observer. ``started`` and ``ended`` are the run's."""
    first = _first(started, window_us)
    turns = sorted((each.start, node, each.number) for node, of_node in held.items() for each in of_node)
    edges = sorted(
        (at, step, node)
        for node, spans in ran.items()
        for span in spans
        for at, step in ((span[0], 1), (span[1], -1))
    )
    windows: Iterable[int] = range(first, ended, window_us)
    if len(range(first, ended, window_us)) > WINDOWS_MOST:
        starts = {_window_of(at, first, window_us) for at, *_ in edges} | {start for start, *_ in turns}
        windows = sorted(start for start in starts if start < ended)
    running: set[str] = set()
    number: dict[str, int] = {}
    counted: Counter[int] = Counter()
    rows = []
    next_turn = next_edge = 0
    for start in windows:
        until = start + window_us
        while next_edge < len(edges) and edges[next_edge][0] <= until:
            _, step, node = edges[next_edge]
            next_edge += 1
            if step > 0 and node not in running:
                running.add(node)
                counted[number.setdefault(node, number_of(node))] += 1
            elif step < 0 and node in running:
                running.discard(node)
                _less(counted, number[node])
        while next_turn < len(turns) and turns[next_turn][0] <= start:
            _, node, after = turns[next_turn]
            next_turn += 1
            if node in running:
                _less(counted, number[node])
                counted[after] += 1
            number[node] = after
        if running:
            most = max(counted.values())
            rows.append(Agreement(start, window_us / 1e6, len(running), len(counted), most / len(running)))
    return rows


def _first(started: int, window_us: int) -> int:
    """The start of the first window of a run."""
    return started - started % window_us


def _window_of(at: int, first: int, window_us: int) -> int:
    """The start of the first window that ends at a moment or later."""
    return first + max(0, at - first - 1) // window_us * window_us


def _less(counted: Counter[int], number: int) -> None:
    counted[number] -= 1
    if not counted[number]:
        del counted[number]
