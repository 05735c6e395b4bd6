"""The environment of a simulated broker or client, in place of the real one."""

from __future__ import annotations

import random

from mesh.environment import Environment, OpenJournal, OpenOutbox
from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.journal import VirtualJournal
from simulations.kernel.outbox import VirtualOutbox
from simulations.kernel.storage import VirtualStorage
from simulations.world import Process


def journals_of(process: Process, storage: VirtualStorage, rng: random.Random) -> OpenJournal:
    """How a simulated process opens its journal: on a thread that dies with its ``storage``."""

    async def open_journal(path: str, *, broker: str, mesh: str) -> VirtualJournal:
        world = process.world
        disk = world.disk(process.host.name)
        thread = DiskThread(disk, world.scheduler, storage, process.loop, rng)
        journal = VirtualJournal(path, broker=broker, mesh=mesh, thread=thread, wall_time=process.wall_time)
        await journal.open()
        return journal

    return open_journal


def outboxes_of(process: Process, storage: VirtualStorage, rng: random.Random) -> OpenOutbox:
    """How a simulated process opens its outbox: on a thread that dies with its ``storage``."""

    async def open_outbox(path: str, *, max_bytes: int) -> VirtualOutbox:
        world = process.world
        disk = world.disk(process.host.name)
        thread = DiskThread(disk, world.scheduler, storage, process.loop, rng)
        outbox = VirtualOutbox(
            path, max_bytes=max_bytes, token=rng.randbytes, thread=thread, wall_time=process.wall_time
        )
        await outbox.open()
        return outbox

    return open_outbox


def environment_of(process: Process) -> Environment:
    """Storage, journal, randomness, wall clock and identity of one life of a simulated process."""
    return Environment(
        storage=process.storage,
        rng=process.stream("mesh"),
        wall_time=process.wall_time,
        token=process.stream("token").randbytes,
        host=process.host.name,
        pid=process.pid,
        rss_bytes=lambda: 0,  # the simulator's own memory says nothing about one broker
        open_journal=journals_of(process, process.storage, process.stream("sqlite")),
        open_outbox=outboxes_of(process, process.storage, process.stream("outbox")),
    )
