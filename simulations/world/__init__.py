"""A world of processes on hosts, run in virtual time from one seed."""

from simulations.world.clocks import EPOCH_S
from simulations.world.processes import Main, Node, NodeState, Process
from simulations.world.world import ConditionNotMet, Deadlock, World

__all__ = ["EPOCH_S", "ConditionNotMet", "Deadlock", "Main", "Node", "NodeState", "Process", "World"]
