"""Checks: invariants, and expectations of scenarios, as readers of the evidence of a run.

A `Judge` reads (`simulations.evidence.reading`), keeps what it needs, and says at the end what it found. A
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
    """Made of the evidence and the parameters of its check."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    def finish(self) -> Verdict:
        """Everything has been read."""
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
    """What a scenario may set of a check."""

    name: str
    type: ParameterType
    default: Value
    sentence: str
    choices: tuple[str, ...] = ()
    """Of a text."""


@dataclass(frozen=True, slots=True)
class Check:
    """See the module. `judge_of` takes the evidence and the parameters by name."""

    id: str
    """As the invariants are numbered: M of membership, D of delivery, X of soundness, S of what scenarios
    expect."""
    name: str
    when: When
    """What holds at every moment, what comes true within a bound, and what can be asked at the end only."""
    sentence: str
    judge_of: Callable[..., Judge]
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

    def judge(self, evidence: Evidence, **parameters: Any) -> Verdict:
        """By itself."""
        judge = self.judge_of(evidence, **parameters)
        read(evidence, [judge])
        return judge.finish()
