"""What is done to a world on purpose, as data: a schedule can be printed, written to a file, cut down and run
again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from simulations.network import LinkQuality

if TYPE_CHECKING:
    from simulations.world import World


class FaultKind(StrEnum):
    """``a`` and ``b`` are names of processes, or of hosts where it says so."""

    CRASH = "crash"
    """Kill the processes ``a`` (SIGKILL): no code of theirs runs again, their peers get RST."""
    POWER_OFF = "power_off"
    """The hosts ``a`` lose power with all their processes: silence, and what was not synced is lost."""
    START = "start"
    """Start the processes ``a`` (again), powering their hosts on where needed."""
    STOP = "stop"
    """Ask the processes ``a`` to end (SIGTERM)."""
    PAUSE = "pause"
    """Stop running the processes ``a`` (SIGSTOP); their kernels still take what arrives."""
    RESUME = "resume"
    """Go on running the processes ``a`` (SIGCONT)."""
    PARTITION = "partition"
    """Lose everything between the hosts ``a`` and the hosts ``b``, both ways; ``b`` empty is all others."""
    CUT_ONE_WAY = "cut_one_way"
    """Lose everything from the hosts ``a`` to the hosts ``b``."""
    HEAL = "heal"
    """Mend all cuts, or with ``a`` and ``b`` those between these hosts."""
    SLOW_LINK = "slow_link"
    """Packets between the hosts ``a`` and ``b`` take ``value`` seconds, both ways; 0 is the usual again."""
    LOSSY_LINK = "lossy_link"
    """A share ``value`` of the packets between the hosts ``a`` and ``b`` is lost and sent again; 0 is the
    usual.
    """
    SLOW_PROCESS = "slow_process"
    """The code of the processes ``a`` takes ``value`` times as long; 1 is the usual."""
    CLOCK_STEP = "clock_step"
    """The wall clock of the hosts ``a`` jumps by ``value`` seconds."""
    DISK_FAULT = "disk_fault"
    """Every disk job on the hosts ``a`` fails with errno ``value``; 0 is no longer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing done at one time, in seconds since the run began."""

    at_s: float
    kind: FaultKind
    a: tuple[str, ...] = ()
    b: tuple[str, ...] = ()
    value: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "at_s": self.at_s,
            "kind": str(self.kind),
            "a": list(self.a),
            "b": list(self.b),
            "value": self.value,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fault:
        """The reverse of `as_json`.

        Raises:
            ValueError: a field is missing, unknown or of the wrong type; the message says which.
        """
        fields = {"at_s": (int, float), "kind": str, "a": list, "b": list, "value": (int, float)}
        for name, value in data.items():
            if name not in fields:
                raise ValueError(f"a fault has no field {name!r}; it has {', '.join(fields)}")
            if not isinstance(value, fields[name]) or isinstance(value, bool):  # type: ignore[arg-type]
                raise ValueError(f"a fault's {name} cannot be {value!r}")
        if "at_s" not in data or "kind" not in data:
            raise ValueError(f"a fault needs at_s and kind, got {data}")
        if data["kind"] not in list(FaultKind):
            raise ValueError(f"there is no fault kind {data['kind']!r}; there are {', '.join(FaultKind)}")
        return cls(
            float(data["at_s"]),
            FaultKind(data["kind"]),
            tuple(data.get("a", ())),
            tuple(data.get("b", ())),
            float(data.get("value", 0.0)),
        )

    def __str__(self) -> str:
        parts = [str(self.kind), ",".join(self.a), ",".join(self.b), f"{self.value:g}" if self.value else ""]
        return " ".join(part for part in parts if part)


def apply(world: World, fault: Fault) -> None:
    """Do it now, and note it in the world's history and truth."""
    world.note(fault)
    match fault.kind:
        case FaultKind.CRASH:
            for name in fault.a:
                world.node(name).crash()
        case FaultKind.POWER_OFF:
            for name in fault.a:
                world.power_off(name)
        case FaultKind.START:
            for name in fault.a:
                world.node(name).start()
        case FaultKind.STOP:
            for name in fault.a:
                world.node(name).stop()
        case FaultKind.PAUSE:
            for name in fault.a:
                world.node(name).pause()
        case FaultKind.RESUME:
            for name in fault.a:
                world.node(name).resume()
        case FaultKind.SLOW_PROCESS:
            for name in fault.a:
                world.node(name).slow_down(fault.value)
        case FaultKind.CLOCK_STEP:
            for name in fault.a:
                world.step_clock(name, fault.value)
        case FaultKind.DISK_FAULT:
            for name in fault.a:
                world.disk(name).fault = int(fault.value) or None
        case _:
            _apply_to_links(world, fault)


def _apply_to_links(world: World, fault: Fault) -> None:
    network = world.network
    here = _hosts(world, fault.a)
    there = _hosts(world, fault.b) if fault.b else [name for name in network.hosts if name not in here]
    match fault.kind:
        case FaultKind.PARTITION:
            network.cut(here, there)
            network.cut(there, here)
        case FaultKind.CUT_ONE_WAY:
            network.cut(here, there)
        case FaultKind.HEAL if not fault.a:
            network.mend_all()
        case FaultKind.HEAL:
            network.mend(here, there)
            network.mend(there, here)
        case FaultKind.SLOW_LINK:
            _set_quality(world, here, there, LinkQuality(latency_s=fault.value) if fault.value else None)
        case FaultKind.LOSSY_LINK:
            _set_quality(world, here, there, LinkQuality(loss=fault.value) if fault.value else None)


def _hosts(world: World, names: Iterable[str]) -> list[str]:
    for name in names:
        if name not in world.network.hosts:
            raise ValueError(
                f"there is no host {name!r} in this world; there are {', '.join(world.network.hosts)}"
            )
    return list(names)


def _set_quality(world: World, here: list[str], there: list[str], quality: LinkQuality | None) -> None:
    for one in here:
        for other in there:
            world.network.set_quality(one, other, quality)
            world.network.set_quality(other, one, quality)


DISK_FULL: Final = float(errno.ENOSPC)
DISK_BROKEN: Final = float(errno.EIO)
