"""Every broker knows what the others want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import Evidence, Sample, View
from simulations.invariants.check import Check, at_end
from simulations.invariants.verdict import Verdict, verdict


@at_end
def interest_known(evidence: Evidence) -> Verdict:
    """A change of a moment ago may be on its way, so a difference counts at two moments in a row, or at the
    last."""
    wrong: list[str] = []
    looked = 0
    before: dict[tuple[str, str], None] = {}
    for number, sample in enumerate(evidence.rest):
        odd: dict[tuple[str, str], None] = {}
        for view, owner in _pairs(sample):
            looked += 1
            version, patterns = view.held.get(owner.id, (0, ()))
            if version != owner.interest_version or patterns != owner.interest:
                odd[view.name, owner.name] = None
        final = number == len(evidence.rest) - 1
        wrong += [
            f"{name} does not hold what {owner} wants at {sample.at_s:.1f} s"
            for name, owner in odd
            if final or (name, owner) in before
        ]
        before = odd
    return verdict("interest_known", looked, "table(s) of another's interest", wrong)


def _pairs(sample: Sample) -> Iterator[tuple[View, View]]:
    for view in sample.views.values():
        for owner in sample.views.values():
            if owner is not view:
                yield view, owner


def _had_several_at_rest(evidence: Evidence) -> bool:
    return evidence.had_several() and evidence.was_whole()


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D6",
        "interest_known",
        "eventually",
        "At rest every broker holds exactly what each other one wants.",
        interest_known,
        default=True,
        needs=_had_several_at_rest,
    ),
)
