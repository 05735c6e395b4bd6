"""The subjects of a check: the parameters by which a scenario names them, and the brokers they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Evidence
from simulations.invariants.check import Parameter

WHOM: Final = Parameter("whom", "names", (), "the subjects; none named means all")
BY: Final = Parameter("by", "names", (), "only in their views; none named means all")


def within(sentence: str, default: float = 0.0) -> Parameter:
    return Parameter("within_s", "number", default, sentence)


def at_most(sentence: str, default: float) -> Parameter:
    return Parameter("most", "whole number", default, sentence)


def named(evidence: Evidence, whom: tuple[str, ...]) -> list[str]:
    """The named brokers; none named means all, and a client stands for its broker."""
    names = [evidence.host_of(name) for name in whom] or list(evidence.brokers)
    return list(dict.fromkeys(name for name in names if name in evidence.brokers))


def pairs_watched(evidence: Evidence, names: Sequence[str]) -> int:
    """How many pairs (observer, member) there were to watch."""
    ids = {life.id for name in names for life in evidence.brokers[name]}
    return len(
        {
            (evidence.writer(row), row["subject"])
            for row in evidence.member_rows
            if int(row["subject"], 16) in ids
        }
    )
