"""About whom a check is: the parameters by which a scenario says so, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Evidence
from simulations.invariants.check import Parameter

WHOM: Final = Parameter("whom", "names", (), "about whom; nobody named is everybody")
BY: Final = Parameter("by", "names", (), "only in their eyes; nobody named is everybody")


def within(sentence: str, default: float = 0.0) -> Parameter:
    return Parameter("within_s", "number", default, sentence)


def at_most(sentence: str, default: float) -> Parameter:
    return Parameter("most", "whole number", default, sentence)


def named(evidence: Evidence, whom: tuple[str, ...]) -> list[str]:
    """Nobody named is everybody; clients stand for their broker."""
    names = [evidence.host_of(name) for name in whom] or list(evidence.brokers)
    return list(dict.fromkeys(name for name in names if name in evidence.brokers))


def pairs_watched(evidence: Evidence, names: Sequence[str]) -> int:
    """How many (observer, member) there were to be watched."""
    ids = {life.id for name in names for life in evidence.brokers[name]}
    return len(
        {
            (evidence.writer(row), row["subject"])
            for row in evidence.member_rows
            if int(row["subject"], 16) in ids
        }
    )
