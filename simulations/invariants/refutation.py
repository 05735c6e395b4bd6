"""A live broker that is accused refutes it, and is heard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.cluster.membership import MemberRecord, State
from simulations.evidence import Change, Evidence, Sample
from simulations.invariants.bounds import grace_s
from simulations.invariants.check import Check, Judge, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.subjects import WHOM, named, within
from simulations.invariants.verdict import Verdict, verdict


class AnswersAccusations(Judge):
    """A broker always considers itself alive, or gone; and its accuser hears so, if it can."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._circumstances = Circumstances(evidence)
        self._accused: dict[str, list[MemberRecord]] = {}
        """The accusations at the last look, by accuser."""
        self._before: Sample | None = None
        self._wrong: list[str] = []
        self._looked = 0

    def on_change(self, change: Change) -> None:
        accused = [each for each in change.view.table[1:] if each.state in (State.SUSPECT, State.DEAD)]
        self._accused[change.view.name] = accused

    def on_look(self, sample: Sample) -> None:
        self._looked += len(sample.views)
        for view in sample.views.values():
            state = view.me.state
            if state not in (State.ALIVE, State.LEFT) or (state is State.LEFT and view.state != "leaving"):
                self._wrong.append(f"{view.name} holds itself {state} at {sample.at_s:.1f} s")
        if self._before is not None:
            self._wrong += self._unanswered(self._before, sample)
        self._before = sample

    def _unanswered(self, before: Sample, sample: Sample) -> Iterator[str]:
        """Accusations present at two moments some time apart, between two brokers that were linked and
        well.
        """
        evidence, circumstances = self.evidence, self._circumstances
        from_s, until_s = before.at_s, sample.at_s
        if until_s - from_s < evidence.period_s / 2:
            return
        for observer in sample.views.values():
            earlier = before.views.get(observer.name)
            for record in self._accused[observer.name]:
                if earlier is None or earlier.boot != observer.boot:
                    continue
                name = evidence.name_of(record.id)
                accused, accused_before = sample.views.get(name), before.views.get(name)
                if (
                    accused is None
                    or accused.id != record.id
                    or accused_before is None
                    or record not in earlier.table
                    or any(observer.id not in each.links for each in (accused, accused_before))
                    or any(accused.id not in each.links for each in (observer, earlier))
                    or any(
                        circumstances.touched(each, from_s - grace_s(evidence), until_s)
                        # A silence too short to excuse a death can still leave an accusation unanswered.
                        or circumstances.away(each, from_s - grace_s(evidence), until_s)
                        for each in (name, observer.name)
                    )
                ):
                    continue
                yield (
                    f"{name} left it unanswered that {observer.name}, to which it is linked, holds it "
                    f"{record.state} since {from_s:.1f} s"
                )

    def finish(self) -> Verdict:
        return verdict("answers_accusations", self._looked, "broker(s) at a moment", self._wrong)


@at_end
def refuted(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """Considers every accusation of a broker that is up under that id, at every observer."""
    within_s = within_s or 2 * evidence.period_s
    circumstances = Circumstances(evidence)
    names = named(evidence, whom)
    wrong: list[str] = []
    looked = 0
    for name in names:
        for id in dict.fromkeys(life.id or 0 for life in evidence.brokers[name]):
            for observer in (each for lives in evidence.brokers.values() for each in lives):
                for belief in circumstances.beliefs(observer, id):
                    end_s = belief.at_s + within_s
                    accused = evidence.up(name, belief.at_s, end_s)
                    if belief.state not in ("suspect", "dead") or accused is None or accused.id != id:
                        continue
                    if observer.ended_s is not None and observer.ended_s < end_s:
                        continue
                    looked += 1
                    later = circumstances.belief(observer, id, end_s)
                    if later is None or later.state != "alive" or later.incarnation <= belief.incarnation:
                        wrong.append(
                            f"{observer.name} held {name} {belief.state} at {belief.at_s:.3f} s and heard "
                            f"nothing else within {within_s:g} s"
                        )
    return verdict("refuted", looked, "accusation(s)", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M6",
        "answers_accusations",
        "always",
        "No broker sees itself as suspect or dead, and none leaves such an accusation by a peer unanswered.",
        AnswersAccusations,
        default=True,
    ),
    Check(
        "S9",
        "refuted",
        "eventually",
        "A broker that is accused and up is alive again everywhere soon.",
        refuted,
        (WHOM, within("seconds from the accusation; 0 is two periods")),
    ),
)
