"""Failures in a world that no code handled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from simulations.kernel.guards import Escaped


class ProgramFailed(AssertionError):
    """A program in a world failed unhandled; ``failures`` has all failures, the cause first."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__("in the simulated world:\n  " + "\n  ".join(map(str, self.failures)))


@dataclass(frozen=True, slots=True)
class Failure:
    """A process ended by an exception, a task died unseen, a callback raised, or code tried to reach the real
    world.
    """

    t_s: float
    process: str
    message: str
    exception: BaseException | None = None

    def __str__(self) -> str:
        reason = ""
        if self.exception is not None:
            reason = f": {type(self.exception).__name__}: {self.exception}{_raised_at(self.exception)}"
        return f"at {self.t_s:.6f} s {self.process}: {self.message}{reason}"


def _raised_at(error: BaseException) -> str:
    """The line where it was raised, if that is known; the fence's errors name the relevant line."""
    trace = error.__traceback__
    if trace is None or isinstance(error, Escaped):
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
