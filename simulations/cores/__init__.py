"""The pure cores alone, for thousands of brokers: virtual time without asyncio, sockets or disks."""

from simulations.cores.core import Change
from simulations.cores.field import Field, Options
from simulations.cores.gossip import Gossip
from simulations.cores.meshed import Meshed
from simulations.cores.playing import play, told
from simulations.cores.running import CORES, Outcome, build, run
from simulations.cores.striking import KINDS, Striking

__all__ = [
    "CORES",
    "KINDS",
    "Change",
    "Field",
    "Gossip",
    "Meshed",
    "Options",
    "Outcome",
    "Striking",
    "build",
    "play",
    "run",
    "told",
]
