"""A world of processes on hosts, run in virtual time from one seed."""

from simulations.world.clocks import EPOCH_S
from simulations.world.failures import Failure, ProgramFailed
from simulations.world.processes import Main, Node, NodeState, Process
from simulations.world.world import ConditionNotMet, Deadlock, World

__all__ = [
    "EPOCH_S",
    "ConditionNotMet",
    "Deadlock",
    "Failure",
    "Main",
    "Node",
    "NodeState",
    "Process",
    "ProgramFailed",
    "World",
]
