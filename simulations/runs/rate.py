"""How often something fails, as a rate with a confidence bound.

A run of many seeds estimates the share of all seeds that fail. The bound is that of Clopper and Pearson, The
Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial (1934), one-sided: a greater
share would have shown more failures with a probability of 95 %. Without any failure it is about 3 divided by
the number of seeds (the rule of three). It holds only for new seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

CONFIDENCE: Final = 0.95
HALVINGS: Final = 60
"""Halvings of the interval with the bound; more would not change a float."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of failures in ``trials``."""

    failures: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= self.failures <= self.trials:
            raise ValueError(f"{self.failures} of {self.trials} cannot have failed")

    @property
    def share(self) -> float:
        """The share of the trials that failed, from 0 to 1; NaN without trials."""
        return self.failures / self.trials if self.trials else math.nan

    @property
    def upper_bound(self) -> float:
        """The greatest share compatible with these failures at a confidence of 95 %; 1 without any trial."""
        if self.failures == self.trials:
            return 1.0
        least, most = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (least + most) / 2
            if _at_most(self.failures, self.trials, middle) > 1 - CONFIDENCE:
                least = middle
            else:
                most = middle
        return most

    def __str__(self) -> str:
        if not self.trials:
            return "no rate: nothing was played"
        return (
            f"failure rate {self.failures}/{self.trials} = {_percent(self.share)}, "
            f"at most {_percent(self.upper_bound)} with 95 % confidence"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "failures": self.failures,
            "seeds": self.trials,
            "rate": None if not self.trials else self.share,
            "upper_bound_95": self.upper_bound,
        }


def _at_most(failures: int, trials: int, share: float) -> float:
    """The probability of so many failures or fewer; ``share`` is above 0 and below 1."""
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(count + 1)
        - math.lgamma(trials - count + 1)
        + count * math.log(share)
        + (trials - count) * math.log1p(-share)
        for count in range(failures + 1)
    )
    return math.fsum(map(math.exp, logs))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
