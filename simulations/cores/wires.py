"""The wires of a field, as numbers: the places at their ends, and their troubles.

A wire is one direction between two places; ``wire ^ 1`` is the other. The data that every message needs is in
three arrays over all wires, 13 bytes a wire, so that those of ten thousand places fit a cache. The data that
only few wires have at a time is in a separate object.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulations.cores.core import Message


@dataclass(slots=True)
class Trouble:
    """The troubles of one wire."""

    cuts: int = 0
    clogs: int = 0
    loss: list[float] = field(default_factory=list)
    extra_ns: list[int] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    """Messages that have not crossed because of a cut."""
    tries: int = 0
    """How often they were retried."""
    clogged: list[Message] = field(default_factory=list)
    """Messages that wait at the wire's end."""

    def __bool__(self) -> bool:
        return bool(self.cuts or self.clogs or self.loss or self.extra_ns or self.held or self.clogged)


_NONE = Trouble()


class Wires:
    """All wires of a field."""

    def __init__(self) -> None:
        self.targets = array("i")
        """The place at its end, by wire."""
        self.last_ns = array("q")
        """When the last message on it arrives, by wire."""
        self.special = bytearray()
        """True if a message needs special handling, by wire: the wire has trouble, or nobody runs at its
        end.
        """
        self.of: list[dict[int, int]] = []
        """By place: its wires to the others, by place."""
        self._troubles: dict[int, Trouble] = {}
        self._awake = bytearray()
        """True if a broker runs there, by place."""

    def add_place(self) -> None:
        """Add a place, where nobody runs yet."""
        self._awake.append(False)
        self.of.append({})

    def connect(self, one: int, other: int) -> None:
        """Add a wire each way, unless they exist."""
        if other in self.of[one]:
            return
        wire = len(self.targets)
        self.of[one][other], self.of[other][one] = wire, wire + 1
        self.targets.extend((other, one))
        self.last_ns.extend((0, 0))
        self.special.extend((not self._awake[other], not self._awake[one]))

    def source(self, wire: int) -> int:
        return self.targets[wire ^ 1]

    def between(self, sources: Iterable[int], targets: Iterable[int]) -> Iterator[int]:
        """The wires from any of the first places to any of the second."""
        wanted = frozenset(targets)  # only for look-ups
        for place in sources:
            for target, wire in self.of[place].items():
                if target in wanted:
                    yield wire

    # --- troubles

    def trouble(self, wire: int) -> Trouble:
        """The trouble of a wire, read-only; see `suffer`."""
        return self._troubles.get(wire, _NONE)

    def suffer(self, wire: int) -> Trouble:
        """The trouble of a wire, to be changed; then call `judge`."""
        return self._troubles.setdefault(wire, Trouble())

    def judge(self, wire: int) -> None:
        """Update a wire after a change of its trouble."""
        if not self._troubles.get(wire, _NONE):
            self._troubles.pop(wire, None)
        self.special[wire] = wire in self._troubles or not self._awake[self.targets[wire]]

    def runs(self, place: int, running: bool) -> None:
        """Record whether a broker runs at a place from now on."""
        self._awake[place] = running
        for wire in self.of[place].values():
            self.judge(wire ^ 1)
