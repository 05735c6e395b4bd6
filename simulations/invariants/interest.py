"""Every broker knows the interest of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Change, Evidence, Sample, View
from simulations.invariants.check import Check, Judge
from simulations.invariants.lasting import Lasting
from simulations.invariants.verdict import Verdict, verdict


class InterestKnown(Judge):
    """Two brokers are compared when the one's interest or the other's record of it has changed."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._changed: dict[str, None] = {}
        """Brokers whose views are not yet compared."""
        self._odd: dict[tuple[str, str], None] = {}
        """Pairs of brokers: the first lacks some interest of the second."""
        self._looked = 0
        self._lasting: Lasting[tuple[str, str]] = Lasting()

    def on_change(self, change: Change) -> None:
        self._changed[change.view.name] = None

    def on_look(self, sample: Sample) -> None:
        if not self.evidence.is_rest(sample.at_s):
            return
        views, changed = sample.views, self._changed
        self._looked += len(views) * (len(views) - 1)
        self._odd = {
            (name, owner): None
            for name, owner in self._odd
            if name in views and owner in views and name not in changed and owner not in changed
        }
        for one in changed:
            for other in views if one in views else ():
                if other != one:
                    self._compare(views[one], views[other])
                    self._compare(views[other], views[one])
        self._changed = {}
        self._lasting.look(
            {
                (name, owner): f"{name} does not hold what {owner} wants at {sample.at_s:.1f} s"
                for name, owner in self._odd
            }
        )

    def _compare(self, view: View, owner: View) -> None:
        version, patterns = view.held.get(owner.id, (0, ()))
        if version != owner.interest_version or patterns != owner.interest:
            self._odd[view.name, owner.name] = None

    def finish(self) -> Verdict:
        return verdict("interest_known", self._looked, "table(s) of another's interest", self._lasting.said())


def _had_several_at_rest(evidence: Evidence) -> bool:
    return evidence.had_several() and evidence.was_whole()


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D6",
        "interest_known",
        "eventually",
        "At rest every broker knows exactly the interest of each other one.",
        InterestKnown,
        default=True,
        needs=_had_several_at_rest,
    ),
)
