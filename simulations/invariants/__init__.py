"""The invariants of a run: checks, each a function over the evidence that the run left."""

from simulations.invariants.catalogue import ALL, CHECKS, judge
from simulations.invariants.check import Check, Parameter
from simulations.invariants.verdict import Verdict

__all__ = ["ALL", "CHECKS", "Check", "Parameter", "Verdict", "judge"]
