"""The pure cores alone, for thousands of brokers: virtual time without asyncio, sockets or disks."""

from simulations.cores.field import KINDS, Change, Field, Options, Place, Wire
from simulations.cores.gossip import Gossip
from simulations.cores.meshed import Meshed
from simulations.cores.playing import play, told
from simulations.cores.running import CORES, Outcome, build, run

__all__ = [
    "CORES",
    "KINDS",
    "Change",
    "Field",
    "Gossip",
    "Meshed",
    "Options",
    "Outcome",
    "Place",
    "Wire",
    "build",
    "play",
    "run",
    "told",
]
