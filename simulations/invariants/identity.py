"""One id is one member: through restarts, and when two brokers have the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final

from mesh.broker.identity import format_id
from mesh.cluster.membership import MemberRecord, State
from simulations.evidence import Change, Evidence, Life, Sample, View
from simulations.invariants.check import Check, Judge, at_end
from simulations.invariants.circumstances import Belief, Circumstances
from simulations.invariants.records import shown
from simulations.invariants.subjects import WHOM, named, within
from simulations.invariants.verdict import Verdict, verdict


class RestartsAreOneMember(Judge):
    """A broker that comes back with its id is one alive member with a greater incarnation, and was welcomed
    once.
    """

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._circumstances = Circumstances(evidence)
        self._named = {(life.id, life.boot): life.name for life in evidence.lives if life.id is not None}
        self._held: dict[tuple[int | None, int | None], dict[int | None, int]] = {}
        """By id and boot: the greatest incarnation that others held for that life, by the boot of each."""
        self._own: dict[tuple[str, int | None], dict[int, float]] = {}
        """By name and boot: when it was first seen, and its own incarnation then."""

    def on_change(self, change: Change) -> None:
        view = change.view
        self._own.setdefault((view.name, view.boot), {}).setdefault(view.me.incarnation, change.at_s)
        for record in change.records:
            key = (record.id, record.boot)
            if self._named.get(key) != view.name:
                held = self._held.setdefault(key, {})
                held[view.boot] = max(held.get(view.boot, 0), record.incarnation)

    def finish(self) -> Verdict:
        evidence = self.evidence
        wrong: list[str] = []
        looked = 0
        last = evidence.last
        for lives in evidence.brokers.values():
            for before, life in list(pairwise(lives))[-1:]:
                if before.id != life.id or life.id is None:
                    continue
                if evidence.twin_between(life.name, life.id, life.started_s, evidence.end_s):
                    continue
                name, old = life.name, self._heard(before)
                for view in last.values():
                    if view.name == name:
                        continue
                    looked += 1
                    records = [each for each in view.table if each.name == name and each.in_view]
                    if [each.id for each in records] != [life.id] or records[0].state is not State.ALIVE:
                        held = ", ".join(map(shown, records)) or "nothing"
                        wrong.append(f"{view.name} holds {held} of {name}, which was started again")
                    elif not self._is_newer(records[0], before, life, old):
                        wrong.append(
                            f"{view.name} holds incarnation {records[0].incarnation} of {name}, known "
                            f"by {old} before it was started again"
                        )
                    wrong += self._welcomed_twice(view, life)
        return verdict("restarts_are_one_member", looked, "broker(s) started again, seen by another", wrong)

    def _is_newer(self, record: MemberRecord, before: Life, life: Life, old: int) -> bool:
        """True if it outweighs the record of the earlier run.

        It may have the same incarnation if that was not saved, or lost by its disk: of two alive the greater
        boot wins then, and the lesser one refutes.
        """
        if record.incarnation == old and record.boot == life.boot:
            return self._circumstances.disk_was_struck(before) or not self._was_saved(before, old)
        return record.incarnation > old

    def _heard(self, life: Life) -> int:
        """The greatest incarnation that another broker held for that life.

        A broker saves its own within a second. So after a power loss it may come back with an incarnation
        that it had. A disk that lies forgets what it saved. Then only brokers that run to
        the end can tell it the old one.
        """
        subject = (format_id(life.id or 0), format_id(life.boot or 0))
        held = [
            (boot or 0, incarnation) for boot, incarnation in self._held.get((life.id, life.boot), {}).items()
        ]
        held += [
            (int(row["boot"], 16), int(row["subject_inc"]))
            for row in self.evidence.member_rows
            if (row["subject"], row["subject_boot"]) == subject
        ]
        if self._circumstances.disk_was_struck(life):
            lasting = {view.boot for view in self.evidence.last.values()}
            held = [(boot, incarnation) for boot, incarnation in held if boot in lasting]
        return max([0, *(incarnation for _, incarnation in held)])

    def _welcomed_twice(self, view: View, life: Life) -> Iterator[str]:
        lives = self.evidence.brokers[view.name]
        observer = next((each for each in lives if each.number == view.life), None)
        if observer is None or life.boot is None:
            return
        joins = 0
        own: Belief | None = None
        before: Belief | None = None
        for belief in self._circumstances.beliefs(observer, life.id or 0):
            if belief.boot == format_id(life.boot):
                if before is None or before.boot != belief.boot:
                    joins += not (own and before and self._was_unsaved(life, before, own))
                own = belief
            before = belief
        if joins > 1:
            yield f"{view.name} welcomed {life.name} {joins} times in one run of it"

    def _was_unsaved(self, life: Life, earlier: Belief, own: Belief) -> bool:
        """True if an earlier run had announced this incarnation, or a later one, and ended before saving it.

        What others remember of that run then appears again.
        """
        if earlier.incarnation < own.incarnation:
            return False
        for ended in self.evidence.brokers[life.name]:
            if ended.id == life.id and ended.boot is not None and format_id(ended.boot) == earlier.boot:
                return self._circumstances.disk_was_struck(ended) or not self._was_saved(
                    ended, earlier.incarnation
                )
        return False

    def _was_saved(self, life: Life, incarnation: int) -> bool:
        """True if a run had that incarnation, or a later one, long enough before its end to save it."""
        saved_s = self._circumstances.written_until_s(life)
        subject = (format_id(life.id or 0), format_id(life.boot or 0))
        known = list(self._own.get((life.name, life.boot), {}).items())
        known += [
            (row["subject_inc"], row["at_s"])
            for row in self.evidence.member_rows
            if (row["subject"], row["subject_boot"]) == subject
        ]
        return any(at_s <= saved_s and each >= incarnation for each, at_s in known)


class OneOfEachId(Judge):
    """If two brokers have one id, only one goes on after a while."""

    def __init__(self, evidence: Evidence, within_s: float = 0.0) -> None:
        super().__init__(evidence)
        self._within_s = within_s or evidence.scenario.bound_s
        self._together_s: dict[tuple[tuple[str, int], ...], float] = {}
        """Since when both brokers of a pair were seen at each look, by their names and lives."""
        self._wrong: list[str] = []
        self._looked = 0

    def on_look(self, sample: Sample) -> None:
        holders: dict[int, list[View]] = {}
        for view in sample.views.values():
            if view.state in ("ready", "isolated"):
                holders.setdefault(view.id, []).append(view)
        before, self._together_s = self._together_s, {}
        for id, views in holders.items():
            for one, other in combinations(views, 2):
                self._looked += 1
                pair = ((one.name, one.life), (other.name, other.life))
                since_s = self._together_s[pair] = before.get(pair, sample.at_s)
                if sample.at_s - since_s >= self._within_s:
                    self._wrong.append(
                        f"{one.name} and {other.name} are both {format_id(id)} for more than "
                        f"{self._within_s:g} s since {since_s:.1f} s"
                    )

    def finish(self) -> Verdict:
        return verdict("one_of_each_id", self._looked, "moment(s) of two with one id", self._wrong)


@at_end
def greater_incarnation(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 5.0) -> Verdict:
    """For each restart with the same id: the records that others had before decide, whatever its clock and
    disk say.
    """
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in named(evidence, whom):
        for before, life in zip(evidence.brokers[name], evidence.brokers[name][1:], strict=False):
            if before.id != life.id or life.id is None:
                continue
            from_s = life.started_s
            for observer in circumstances.up_through(from_s, from_s + within_s):
                known = circumstances.belief(observer, life.id, from_s)
                now = circumstances.belief(observer, life.id, from_s + within_s)
                if observer.name == name or known is None or now is None:
                    continue
                looked += 1
                if now.state != "alive" or now.incarnation <= known.incarnation:
                    wrong.append(
                        f"{observer.name} holds {name} {now.state} in incarnation {now.incarnation} "
                        f"{within_s:g} s after its start at {from_s:.3f} s, and held incarnation "
                        f"{known.incarnation} before"
                    )
    return verdict("greater_incarnation", looked, "restart(s) seen by another", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M13",
        "restarts_are_one_member",
        "eventually",
        "A broker restarted with its id is one alive member with a greater incarnation everywhere, "
        "welcomed once.",
        RestartsAreOneMember,
        default=True,
        occasional=True,
    ),
    Check(
        "M14",
        "one_of_each_id",
        "eventually",
        "If two brokers have one id, at most one goes on.",
        OneOfEachId,
        (within("seconds for which both may; 0 is the scenario's bound"),),
    ),
    Check(
        "S18",
        "greater_incarnation",
        "eventually",
        "A broker restarted with its id is alive everywhere in time, in a greater incarnation than before.",
        greater_incarnation,
        (WHOM, within("seconds from its start", 5.0)),
    ),
)
