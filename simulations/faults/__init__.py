"""What is done to a world on purpose: records of it (`Fault`), and what each kind of them does (`KINDS`)."""

from simulations.faults.catalogue import KINDS, check
from simulations.faults.kind import Kind, Parameter
from simulations.faults.ongoing import Ongoing, Span, apply, possible
from simulations.faults.record import Fault, FaultError

__all__ = [
    "KINDS",
    "Fault",
    "FaultError",
    "Kind",
    "Ongoing",
    "Parameter",
    "Span",
    "apply",
    "check",
    "possible",
]
