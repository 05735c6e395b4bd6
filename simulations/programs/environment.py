"""The world a simulated broker or client is given instead of the real one."""

from __future__ import annotations

from mesh.environment import Environment
from simulations.world import Process


def environment_of(process: Process) -> Environment:
    """Storage, randomness, wall clock and identity of one life of a simulated process."""
    return Environment(
        storage=process.storage,
        rng=process.stream("mesh"),
        wall_time=process.wall_time,
        token=process.stream("token").randbytes,
        host=process.host.name,
        pid=process.pid,
        rss_bytes=lambda: 0,  # the simulator's own memory says nothing about one broker
    )
