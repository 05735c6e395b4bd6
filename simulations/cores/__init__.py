"""The pure cores alone, for hundreds of brokers: virtual time without asyncio, sockets or disks."""

from simulations.cores.core import Change
from simulations.cores.field import Field, Options
from simulations.cores.meshed import Meshed
from simulations.cores.playing import play, told
from simulations.cores.running import Outcome, build, run
from simulations.cores.striking import KINDS, Striking

__all__ = [
    "KINDS",
    "Change",
    "Field",
    "Meshed",
    "Options",
    "Outcome",
    "Striking",
    "build",
    "play",
    "run",
    "told",
]
