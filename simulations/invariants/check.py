"""What a check is: an invariant, or an expectation that a scenario has, as a function over the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from simulations.evidence import Evidence
from simulations.invariants.verdict import Verdict

When = Literal["always", "eventually", "end"]
ParameterType = Literal["number", "whole number", "text", "names"]
Value = float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a scenario may set of a check."""

    name: str
    type: ParameterType
    default: Value
    sentence: str
    choices: tuple[str, ...] = ()
    """Of a text."""


@dataclass(frozen=True, slots=True)
class Check:
    """See the module. `judge` takes the evidence and the parameters by name."""

    id: str
    """As the invariants are numbered: M of membership, D of delivery, X of soundness, S of what scenarios
    expect."""
    name: str
    when: When
    """What holds at every moment, what comes true within a bound, and what can be asked at the end only."""
    sentence: str
    judge: Callable[..., Verdict]
    parameters: tuple[Parameter, ...] = ()
    default: bool = False
    """It is asked of every run."""
    occasional: bool = False
    """What it looks at does not happen in every run. Asked of every run it is silent then; asked for, it
    fails."""
    needs: Callable[[Evidence], bool] = lambda evidence: True
    """What a run must have for it to be asked; then there must be something to look at."""
    elsewhere: str = ""
    """Who looks at it, where one run by itself leaves nothing to look at."""
    dormant: str = ""
    """What must come before there is anything to judge."""

    def __call__(self, evidence: Evidence, **parameters: Any) -> Verdict:
        return self.judge(evidence, **parameters)
