"""Faults that are applied to a world on purpose: their records (`Fault`), and the effect of each kind
(`KINDS`).
"""

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
