"""What happens to disks."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World

DISK_FULL: Final = float(errno.ENOSPC)
DISK_BROKEN: Final = float(errno.EIO)


def _fail(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).fault = int(fault.value) or None


def _work(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).fault = None


KINDS: Final = (
    Kind(
        "disk_fault",
        "every disk job on hosts fails with an errno, such as 28 (no space) or 5 (input/output error)",
        "hosts",
        _fail,
        _work,
        (Parameter("value", "the errno; 0 is no longer", 0.0, 0, 200),),
    ),
)
