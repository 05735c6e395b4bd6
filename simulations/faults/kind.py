"""A kind of fault: its name, what it strikes, its numbers, and its effect.

A simple kind does one thing (`Kind.begin`), which may be undone (`Kind.end`). A compound one unfolds into
simple faults, one after the other, drawn from a separate random stream.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from simulations.faults.record import Fault, FaultError

if TYPE_CHECKING:
    from simulations.world import World

Struck = Literal["processes", "hosts", "links", "nobody"]
"""``a`` names processes or hosts; for links, ``a`` and ``b`` name the hosts at both ends."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a kind; ``value`` is the fault's main one, others are in its ``more``."""

    name: str
    sentence: str
    default: float | str | None
    """None: it depends on the others."""
    least: float = 0.0
    most: float = math.inf
    choices: tuple[str, ...] = ()
    """The allowed words, if it is a word and no number."""

    def check(self, kind: str, value: float | str) -> None:
        """Raise `FaultError` if it cannot have that value."""
        shown = value if isinstance(value, str) else f"{value:g}"
        if self.choices:
            if value not in self.choices:
                span = " or ".join(self.choices)
                raise FaultError(f"{kind}: {self.name} is {shown}; it must be {span}", self.name)
        elif isinstance(value, str) or not self.least <= value <= self.most:
            span = f"from {self.least:g} to {self.most:g}"
            raise FaultError(f"{kind}: {self.name} is {shown}; it must be {span}", self.name)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    name: str
    sentence: str
    """Its effect, for people who choose one."""
    of: Struck
    begin: Callable[[World, Fault], None] | None = None
    end: Callable[[World, Fault], None] | None = None
    """Undoes exactly what `begin` did for the same fault. None: it is over at once, or another fault ends
    it.
    """
    parameters: tuple[Parameter, ...] = ()
    unfold: Callable[[World, Fault, random.Random], Iterator[Fault]] | None = None
    """The parts of a compound fault, in the order of their times, which count as a world's do. The next part
    is asked for when the last has been done, so the parts may never end.
    """
    names_least: int = 1
    """The least number of processes or hosts that it must name."""
    among: bool = False
    """True for a kind of links that may have the same hosts on both sides: it strikes all links among
    them.
    """
    two_sided: bool = False
    """True for a kind of links between ``a`` and ``b``; one may be left out, and then means all others."""
    one_sided: bool = False
    """True for a kind of links among the hosts of ``a``, or among all hosts."""
    few: int = 0
    """This number of hosts, on both sides together, is too few; naming none means all."""
    part: Callable[[Fault], Fault] | None = None
    """For a compound kind whose parts have given numbers: a sample of its parts."""
    doers: bool = False
    """True for a kind of processes or hosts whose ``b`` may name the actor."""

    @property
    def lasting(self) -> bool:
        """True if it can have a duration, and a heal undoes it."""
        return self.end is not None or self.unfold is not None

    def filled(self, fault: Fault) -> Fault:
        """The fault with the kind's own main number, if it has none."""
        for parameter in self.parameters:
            if parameter.name == "value" and fault.value is None and parameter.default is not None:
                assert not isinstance(parameter.default, str), "the main number is a number"
                return replace(fault, value=parameter.default)
        return fault

    def between(self, fault: Fault, hosts: Collection[str]) -> Fault:
        """The fault with both sides named, if it has two.

        Hosts that come later are neither struck nor, at the fault's end, healed.
        """
        if not self.two_sided or bool(fault.a) == bool(fault.b):
            return fault
        others = tuple(name for name in hosts if name not in fault.a and name not in fault.b)
        return replace(fault, a=fault.a or others, b=fault.b or others)

    def check(self, fault: Fault) -> None:
        """Raise `FaultError` if the fault is impossible.

        It names too few targets or unsuitable ones, or has numbers that this kind lacks or that are out of
        range.
        """
        if fault.for_s is not None and not self.lasting:
            raise FaultError(f"{self.name} is over at once; it has no for_s", "for_s")
        self._check_names(fault)
        known = {parameter.name: parameter for parameter in self.parameters}
        given: dict[str, float | str] = dict(fault.more)
        if fault.value is not None:
            given["value"] = fault.value
        for name, value in given.items():
            parameter = known.get(name)
            if parameter is None:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise FaultError(f"{self.name} has no parameter {name}; {has}", name)
            parameter.check(self.name, value)

    def _check_names(self, fault: Fault) -> None:
        if self.of == "links":
            named = len(fault.a) + len(fault.b)
            both = [name for name in fault.a if name in fault.b]
            if both and not (self.among and fault.a == fault.b):
                raise FaultError(f"{self.name} has {', '.join(both)} on both sides", "b")
            if fault.b and self.one_sided:
                raise FaultError(f"{self.name} happens among the hosts that a names; it has no b", "b")
            if 0 < named <= self.few:
                raise FaultError(f"{self.name} needs {self.few + 1} or more hosts; name none for all", "a")
        else:
            named = len(fault.a)
            if fault.b and not self.doers:
                raise FaultError(f"{self.name} strikes {self.of}, which a names; it has no b", "b")
        if named < self.names_least:
            where = "a or b" if self.of == "links" else "a"
            what = "hosts" if self.of == "links" else self.of
            number = "some" if self.names_least == 1 else f"{self.names_least} or more"
            raise FaultError(f"{self.name} strikes {what}; name {number} in {where}", "a")
