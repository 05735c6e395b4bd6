"""Checks: invariants, and expectations of scenarios, as readers of the evidence of a run.

A `Judge` reads (`simulations.evidence.reading`), keeps what it needs, and reports its findings at the end. A
check is a function, called at the end, if it needs only what the evidence holds anyway: the faults, the fate
of messages, the rows about members and links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

from simulations.evidence import Evidence, Reader, read
from simulations.invariants.verdict import Verdict

When = Literal["always", "eventually", "end"]
ParameterType = Literal["number", "whole number", "text", "names"]
Value = float | str | tuple[str, ...]


class Judge(Reader):
    """Made from the evidence and the parameters of its check."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    def finish(self) -> Verdict:
        """Everything has been read: return the verdict."""
        raise NotImplementedError


def at_end(function: Callable[..., Verdict]) -> Callable[..., Judge]:
    """A judge that reads nothing and calls the function when all others have read."""

    @wraps(function)
    def judge(evidence: Evidence, **parameters: Any) -> Judge:
        return _AtEnd(evidence, lambda: function(evidence, **parameters))

    return judge


class _AtEnd(Judge):
    def __init__(self, evidence: Evidence, ask: Callable[[], Verdict]) -> None:
        super().__init__(evidence)
        self._ask = ask

    def finish(self) -> Verdict:
        return self._ask()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a check that a scenario may set."""

    name: str
    type: ParameterType
    default: Value
    sentence: str
    choices: tuple[str, ...] = ()
    """The allowed words of a text."""


@dataclass(frozen=True, slots=True)
class Check:
    """See the module. `judge_of` takes the evidence and the parameters by name."""

    id: str
    """The invariants' numbers: M for membership, D for delivery, X for soundness, S for expectations of
    scenarios.
    """
    name: str
    when: When
    """Three kinds: it holds at every moment, it becomes true within a bound, or it can be judged only at the
    end.
    """
    sentence: str
    judge_of: Callable[..., Judge]
    parameters: tuple[Parameter, ...] = ()
    default: bool = False
    """True if it applies to every run."""
    occasional: bool = False
    """True if its subject does not occur in every run. As an invariant it is then silent; as an expectation
    it fails.
    """
    needs: Callable[[Evidence], bool] = lambda evidence: True
    """The conditions on a run for it to apply; then there must be something to judge."""
    elsewhere: str = ""
    """Where it is judged, if a single run leaves nothing to judge."""

    def judge(self, evidence: Evidence, **parameters: Any) -> Verdict:
        """Judge the evidence with this check alone."""
        judge = self.judge_of(evidence, **parameters)
        read(evidence, [judge])
        return judge.finish()
