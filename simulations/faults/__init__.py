"""What is done to a world on purpose: records of it (`Fault`), and what each kind of them does (`KINDS`)."""

from simulations.faults.catalogue import KINDS, apply, check, undo
from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

__all__ = ["KINDS", "Fault", "Kind", "Parameter", "apply", "check", "undo"]
