"""The faults of a world: those that last, those that unfold, and the begin and end of each.

A compound fault has children, which are simple or compound themselves. When it ends, by its time, by hand or
by healing, its children end too, and its remaining parts never happen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from simulations.faults.catalogue import KINDS, check
from simulations.faults.kind import Kind
from simulations.faults.record import Fault
from simulations.kernel.scheduler import nanoseconds

if TYPE_CHECKING:
    from simulations.world import World


JOINS: Final = ("start", "mass_join")
"""Kinds that strike processes that are down."""


@dataclass(slots=True)
class Span:
    """A fault as it was done, in seconds since the run began."""

    fault: Fault
    start_s: float
    end_s: float | None = None
    """When it was undone; None: not yet, or it was over at once."""
    parent: Fault | None = None
    """The compound fault that it is a part of."""


@dataclass(slots=True)
class _Entry:
    kind: Kind
    span: Span
    done: Fault
    """A fault as it was done, and as it must be undone."""
    parent: int | None
    children: dict[int, None] = field(default_factory=dict)
    steps: Iterator[Fault] | None = None


class Ongoing:
    """All faults of one world."""

    def __init__(self, world: World) -> None:
        self.spans: list[Span] = []
        """All faults that were done, in order."""
        self.to_start: dict[str, None] = {}
        """Processes that a finished fault took down, and another one keeps down."""
        self._world = world
        self._entries: dict[int, _Entry] = {}
        self._last = 0
        self._alike: Counter[str] = Counter()

    def faults(self) -> list[Fault]:
        """The faults that still last."""
        return [entry.span.fault for entry in self._entries.values()]

    def begun(self, kind: Kind, fault: Fault, done: Fault, parent: int | None = None) -> None:
        """Record that it was done, and how, to undo it when its time is over."""
        world = self._world
        above = None if parent is None else self._entries[parent]
        span = Span(fault, world.now_s, parent=above.span.fault if above else None)
        self.spans.append(span)
        if not kind.lasting:
            return
        self._last += 1
        number = self._last
        entry = self._entries[number] = _Entry(kind, span, done, parent)
        if above is not None:
            above.children[number] = None
        if fault.for_s is not None:
            world.scheduler.after(nanoseconds(fault.for_s), self._end, number)
        if kind.unfold is not None:
            entry.steps = kind.unfold(world, fault, self.stream(fault))
            self._next_step(number)

    def end_if(self, wanted: Callable[[Kind, Fault], bool]) -> None:
        """Undo the matching faults that still last."""
        for number, entry in list(self._entries.items()):
            if wanted(entry.kind, entry.span.fault):
                self._end(number)

    def stream(self, fault: Fault) -> random.Random:
        """A random stream for this fault's own choices, independent of other faults and other times."""
        what = f"{fault.kind}|{','.join(fault.a)}|{','.join(fault.b)}|{fault.value or 0.0:g}|{fault.more}"
        self._alike[what] += 1
        return random.Random(f"{self._world.seed}:fault:{what}:{self._alike[what]}")

    def _next_step(self, number: int) -> None:
        """Apply the parts that are due now."""
        entry = self._entries[number]
        assert entry.steps is not None
        for step in entry.steps:
            at_ns = nanoseconds(step.at_s)
            if at_ns > self._world.scheduler.now_ns:
                self._world.scheduler.at(at_ns, self._do_step, number, step)
                return
            apply(self._world, step, parent=number)
        entry.steps = None
        self._forget_finished(number)

    def _do_step(self, number: int, step: Fault) -> None:
        if number in self._entries:
            apply(self._world, step, parent=number)
            self._next_step(number)

    def _end(self, number: int) -> None:
        entry = self._entries.pop(number, None)
        if entry is None:
            return  # ended before its time
        world, fault = self._world, entry.span.fault
        world.history.record(world.scheduler.now_ns, "world", "undo", str(fault))
        entry.span.end_s = world.now_s
        for child in list(entry.children):
            self._end(child)
        if entry.kind.end is not None:
            entry.kind.end(world, entry.done)
        if entry.parent is not None and entry.parent in self._entries:
            del self._entries[entry.parent].children[number]
            self._forget_finished(entry.parent)

    def _forget_finished(self, number: int) -> None:
        """A compound fault without an end of its own is over with its last part."""
        entry = self._entries[number]
        if entry.steps is None and not entry.children and entry.span.fault.for_s is None:
            self._end(number)


def possible(world: World, fault: Fault) -> Fault | None:
    """The fault without targets that are in no state for it, since a schedule cannot know which are up.

    None if no target is left.
    """
    able = tuple(name for name in fault.a if _is_able(world, fault.kind, name))
    return None if fault.a and not able else replace(fault, a=able)


def _is_able(world: World, kind: str, name: str) -> bool:
    if kind not in KINDS or KINDS[kind].of != "processes":
        return True
    node = world.node(name)
    if kind in JOINS:
        return not node.alive
    return node.paused if kind == "resume" else node.alive


def apply(world: World, fault: Fault, *, parent: int | None = None) -> None:
    """Apply it now, record it in the world's history and truth, and undo it when its time is over.

    ``parent``: the compound fault it is a part of, by its number in `Ongoing`.
    """
    kind = check(fault, processes=world.nodes, hosts=world.network.hosts)
    fault = kind.filled(fault)
    world.note(fault)
    done = kind.between(fault, world.network.hosts)
    if kind.begin is not None:
        kind.begin(world, done)
    world.ongoing.begun(kind, fault, done, parent)
