"""Faults of disks, and of the files on them: a broker's state and its event log."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault
from simulations.kernel.storage import LOG_FOLDER, STATE_FOLDER, Disk

if TYPE_CHECKING:
    from simulations.world import World

DISK_FULL: Final = float(errno.ENOSPC)
DISK_BROKEN: Final = float(errno.EIO)
ERRNO_MAX: Final = 133
SYNC_S: Final = 0.5
TORN_BYTES: Final = 20.0

FILES: Final = Parameter("files", "which files", "state", choices=("state", "log"))
FOLDERS: Final = {"state": STATE_FOLDER, "log": LOG_FOLDER}


def _fail(world: World, fault: Fault) -> None:
    for name in fault.a:
        _fail_by(world.disk(name), fault)


def _fail_by(disk: Disk, fault: Fault) -> None:
    disk.fault, disk.fault_share = int(fault.amount), fault.number("share", 1.0)


def _work(world: World, fault: Fault) -> None:
    """Apply the settings of the latest fault that still lasts, or none."""
    for name in fault.a:
        world.disk(name).fault = None
        for other in _still(world, fault, name):
            _fail_by(world.disk(name), other)


def _still(world: World, fault: Fault, host: str) -> list[Fault]:
    """The other faults of its kind that a host has."""
    return [other for other in world.ongoing.faults() if other.kind == fault.kind and host in other.a]


def _slow_down(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).slow_s += fault.amount


def _speed_up(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).slow_s = max(0.0, world.disk(name).slow_s - fault.amount)


def _lie(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).lying = True


def _be_honest(world: World, fault: Fault) -> None:
    """Once no such fault is left, write the cache to the medium."""
    for name in fault.a:
        if not _still(world, fault, name):
            world.disk(name).lying = False
            world.disk(name).flush()


def _fail_syncs(world: World, fault: Fault) -> None:
    """Fail as many syncs as the worst of its faults demands."""
    for name in fault.a:
        world.disk(name).failing_syncs = max(world.disk(name).failing_syncs, fault.amount)


def _sync_again(world: World, fault: Fault) -> None:
    for name in fault.a:
        shares = [other.amount for other in _still(world, fault, name)]
        world.disk(name).failing_syncs = max(shares, default=0.0)


def _shrink(world: World, fault: Fault) -> None:
    """Shrink to the smallest size that its faults leave."""
    for name in fault.a:
        size_max = world.disk(name).size_max
        world.disk(name).size_max = (
            int(fault.amount) if size_max is None else min(size_max, int(fault.amount))
        )


def _grow(world: World, fault: Fault) -> None:
    for name in fault.a:
        sizes = [int(other.amount) for other in _still(world, fault, name)]
        world.disk(name).size_max = min(sizes, default=None)


def _struck_files(world: World, fault: Fault) -> Iterator[tuple[Disk, str]]:
    for name in fault.a:
        disk = world.disk(name)
        for path in disk.paths_under(FOLDERS[fault.text("files", "state")]):
            if not path.endswith("/lock"):
                yield disk, path


def _tear(world: World, fault: Fault) -> None:
    for disk, path in _struck_files(world, fault):
        disk.tear(path, int(fault.amount))


def _flip(world: World, fault: Fault) -> None:
    rng = world.ongoing.stream(fault)
    for disk, path in _struck_files(world, fault):
        for _ in range(int(fault.amount)):
            disk.flip(path, rng)


def _lose(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.disk(name).lose(FOLDERS[fault.text("files", "state")])


KINDS: Final = (
    Kind(
        "disk_fault",
        "disk jobs on hosts fail with an errno, such as 28 (no space) or 5 (input/output error)",
        "hosts",
        _fail,
        _work,
        (
            Parameter("value", "the errno", DISK_BROKEN, 1, ERRNO_MAX),
            Parameter("share", "how many of the jobs", 1.0, 0, 1),
        ),
    ),
    Kind(
        "slow_disk",
        "syncs (fsync, replaced files) take longer on hosts",
        "hosts",
        _slow_down,
        _speed_up,
        (Parameter("value", "seconds more for each", SYNC_S, 0, 3600),),
    ),
    Kind(
        "lying_disk",
        "the disks of hosts report data as synced that are in a cache: a power loss takes some of them",
        "hosts",
        _lie,
        _be_honest,
    ),
    Kind(
        "failing_syncs",
        "syncs on hosts fail: their data can be read, and are lost with the power",
        "hosts",
        _fail_syncs,
        _sync_again,
        (Parameter("value", "how many of the syncs", 1.0, 0, 1),),
    ),
    Kind(
        "full_disk",
        "files on hosts may have so many bytes in all; disks that have more are full",
        "hosts",
        _shrink,
        _grow,
        (Parameter("value", "bytes", 0.0),),
    ),
    Kind(
        "torn_file",
        "the ends of files on hosts are gone",
        "hosts",
        _tear,
        None,
        (Parameter("value", "bytes off each", TORN_BYTES, 1), FILES),
    ),
    Kind(
        "flipped_bits",
        "bits of files on hosts are flipped",
        "hosts",
        _flip,
        None,
        (Parameter("value", "bits of each", 1.0, 1, 10_000), FILES),
    ),
    Kind("lost_files", "the folder of files on hosts is gone", "hosts", _lose, None, (FILES,)),
)
