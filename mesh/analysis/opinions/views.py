"""How far members agree about who is present: one number for each view, compared at the end of every window.
Pure.

A view is the set of members that its holder believes present (alive or suspect), including itself. Its number
is the exclusive or of one number for each member. So a change is one step, and equal views have equal
numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

PRESENT: Final = frozenset({"alive", "suspect"})
WINDOWS_MOST: Final = 100_000
"""A longer run has windows only where something changed."""

Spans = Sequence[tuple[int, int]]


class Step(NamedTuple):
    """``observer``, in one boot, added a member to its view or removed it."""

    at: int
    observer: str
    boot: str
    subject: str
    present: bool


class Agreement(NamedTuple):
    """A row of the table ``views`` without its run, in the order of its columns."""

    start: int
    window_s: float
    observers: int
    distinct: int
    agree: float


def number_of(node: str) -> int:
    """The number of a member in views."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8).digest())


def views(
    steps: Iterable[Step], ran: Mapping[str, Spans], *, started: int, ended: int, window_us: int
) -> list[Agreement]:
    """The agreement of the brokers that ran at the end of each window. ``started`` and ``ended`` are the
    run's."""
    steps = sorted(steps)
    boots: dict[str, str] = {}
    held: dict[str, set[str]] = {}
    number: dict[str, int] = {}
    edges = sorted(
        (at, step, node)
        for node, spans in ran.items()
        for span in spans
        for at, step in ((span[0], 1), (span[1], -1))
    )
    running: set[str] = set()
    counted: Counter[int] = Counter()
    rows = []
    next_step = next_edge = 0
    first = started - started % window_us
    windows: Iterable[int] = range(first, ended, window_us)
    if len(range(first, ended, window_us)) > WINDOWS_MOST:
        moments = {at for at, *_ in edges} | {step.at for step in steps}
        starts = {first + max(0, at - first - 1) // window_us * window_us for at in moments}
        windows = sorted(start for start in starts if start < ended)
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
        while next_step < len(steps) and steps[next_step].at <= until:
            each = steps[next_step]
            next_step += 1
            before = number.get(each.observer, number_of(each.observer))
            if boots.get(each.observer) != each.boot:
                boots[each.observer] = each.boot
                held[each.observer] = set()
                after = number_of(each.observer)
            else:
                after = before
            members = held[each.observer]
            if each.present != (each.subject in members) and each.subject != each.observer:
                (members.add if each.present else members.discard)(each.subject)
                after ^= number_of(each.subject)
            if each.observer in running and after != before:
                _less(counted, before)
                counted[after] += 1
            number[each.observer] = after
        if running:
            most = max(counted.values())
            rows.append(Agreement(start, window_us / 1e6, len(running), len(counted), most / len(running)))
    return rows


def _less(counted: Counter[int], number: int) -> None:
    counted[number] -= 1
    if not counted[number]:
        del counted[number]
