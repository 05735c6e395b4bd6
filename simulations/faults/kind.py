"""What a kind of fault is: its name, whom it strikes, its numbers, and what it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World

Struck = Literal["processes", "hosts", "links", "nobody"]
"""``a`` names processes or hosts; of links ``a`` and ``b`` name the hosts at both ends."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a kind; ``value`` is the fault's main one, others stand in its ``more``."""

    name: str
    sentence: str
    default: float
    least: float = 0.0
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    name: str
    sentence: str
    """What it does, for who chooses one."""
    of: Struck
    begin: Callable[[World, Fault], None]
    end: Callable[[World, Fault], None] | None = None
    """Undoes exactly what `begin` did for the same fault; None: it is over at once, or ended by another."""
    parameters: tuple[Parameter, ...] = ()

    def check(self, fault: Fault) -> None:
        """Raises `ValueError` if the fault has numbers that this kind has not, or out of range."""
        if fault.for_s is not None and self.end is None:
            raise ValueError(f"{self.name} is over at once; it has no for_s")
        known = {parameter.name: parameter for parameter in self.parameters}
        given: dict[str, float | str] = dict(fault.more)
        if fault.value or "value" in known:
            given["value"] = fault.value
        for name, value in given.items():
            parameter = known.get(name)
            if parameter is None:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{self.name} has no parameter {name}; {has}")
            if isinstance(value, str) or not parameter.least <= value <= parameter.most:
                span = f"from {parameter.least:g} to {parameter.most:g}"
                raise ValueError(f"{self.name}: {name} is {value}; it must be {span}")
