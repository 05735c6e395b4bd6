"""Brokers and clients in virtual time, over a network and disks that fail on purpose. See
docs/guides/simulating.md.

Names are loaded when they are first used: importing one module loads none of the others.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulations.faults import Fault
    from simulations.kernel.network import LinkQuality
    from simulations.meshes import Mesh, Violated
    from simulations.world import ConditionNotMet, Deadlock, Process, ProgramFailed, World

__all__ = [
    "ConditionNotMet",
    "Deadlock",
    "Fault",
    "LinkQuality",
    "Mesh",
    "Process",
    "ProgramFailed",
    "Violated",
    "World",
]

_MODULES = {
    "ConditionNotMet": "simulations.world",
    "Deadlock": "simulations.world",
    "Fault": "simulations.faults",
    "LinkQuality": "simulations.kernel.network",
    "Mesh": "simulations.meshes",
    "Process": "simulations.world",
    "ProgramFailed": "simulations.world",
    "Violated": "simulations.meshes",
    "World": "simulations.world",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'simulations' has no attribute {name!r}")
    if sys.platform == "win32":
        import_module(
            "protocols.system"
        )  # refuses an unsupported system before the other imports miss Unix modules
    return getattr(import_module(_MODULES[name]), name)
