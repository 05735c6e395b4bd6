"""Leaves: a broker that leaves says so itself, all hear it, and nobody dials it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from mesh.broker.identity import format_id
from mesh.cluster.membership import State
from simulations.evidence import VIEW_STATES, Change, Evidence, Life, Sample
from simulations.invariants.bounds import admission_s, connection_s, grace_s
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.subjects import BY, WHOM, named, pairs_watched, within
from simulations.invariants.verdict import Verdict, verdict

Leave = tuple[str, int, int, int]
"""The observer's name and life; the id of the broker that left, and its incarnation: it may leave again."""
Gone = dict[Leave, float]
"""The time since which it was seen."""
LetBe = dict[tuple[str, str], tuple[str, Leave]]
"""By broker and URL: the name of the broker that left, and the leave."""
LinksLost = dict[tuple[int, int], list[float]]
"""By the boot of the log's writer, and the peer's id: when a link between them went down."""


class LeftByOwnWord(Judge):
    """Also, a broker that left is not dialled again before it comes back.

    Two kinds of brokers may dial its address: one configured to join there, and one that has no lasting link
    and knows the address from an earlier run. An attempt at a link that was under way at the goodbye dials
    again for its survey connections. It has the time of a connection and of an admission.
    """

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._attempt_s = connection_s(evidence) + admission_s(evidence)
        self._lost = _links_lost(evidence)
        self._dials = deque(evidence.dials)
        self._gone: dict[str, list[tuple[int, int]]] = {}
        """By observer: ids and incarnations of brokers that left."""
        self._gone_s: Gone = {}
        self._before: Sample | None = None
        self._let_go: dict[str, list[tuple[int, int]]] = {}
        """The table at the look before."""
        self._redialled: list[str] = []

    def on_change(self, change: Change) -> None:
        view = change.view
        left = [each for each in view.table[1:] if each.state is State.LEFT]
        self._gone[view.name] = [(each.id, each.incarnation) for each in left]

    def on_look(self, sample: Sample) -> None:
        before, self._before = self._before, sample
        if before is not None:
            self._look(before, sample)
        self._let_go = {name: self._gone[name] for name in sample.views if self._gone[name]}
        self._gone_s = {
            key: self._gone_s.get(key, sample.at_s)
            for name, leaves in self._let_go.items()
            for key in ((name, sample.views[name].life, *leave) for leave in leaves)
        }

    def _look(self, before: Sample, sample: Sample) -> None:
        """Check the dials between one look and the next."""
        dials = self._dials
        while dials and dials[0].at_s <= before.at_s:
            dials.popleft()
        let_be: LetBe | None = None
        while dials and dials[0].at_s < sample.at_s:
            dial = dials.popleft()
            if let_be is None:
                let_be = _let_be(before, sample, self._let_go, self._lost)
            name, key = let_be.get((dial.by, dial.url), ("", None))
            if key is not None and dial.at_s > self._gone_s[key] + self._attempt_s:
                self._redialled.append(f"{dial.by} dialled {name} at {dial.at_s:.3f} s, which had left")

    def finish(self) -> Verdict:
        evidence = self.evidence
        own: dict[str, list[float]] = {}
        lost = {format_id(life.id) for life in evidence.lives if life.id is not None and life.log_lost}
        for row in evidence.changes:
            if row["kind"] == "mem" and row["node"] == row["subject"] and row["to_state"] == "left":
                own.setdefault(row["node"], []).append(row["at_s"])
        wrong: list[str] = []
        looked = 0
        for row in evidence.member_rows:
            if row["to_state"] == "left":
                looked += 1
                said = [at_s for at_s in own.get(row["subject"], ()) if at_s <= row["at_s"] + 1e-3]
                if not said and row["subject"] not in lost:
                    wrong.append(
                        f"{evidence.writer(row)} records that {row['subject_name']} left at "
                        f"{row['at_s']:.3f} s, though it never said so"
                    )
        return verdict("left_by_own_word", looked, "leave(s) heard of", wrong + self._redialled)


def _links_lost(evidence: Evidence) -> LinksLost:
    found: LinksLost = {}
    for row in evidence.changes:
        if row["kind"] == "link" and row["state"] == "down":
            found.setdefault((int(row["boot"], 16), int(row["peer"], 16)), []).append(row["at_s"])
    return found


def _let_be(sample: Sample, following: Sample, names: Iterable[str], lost: LinksLost) -> LetBe:
    """Brokers that ``names`` must not dial from one look to the next."""
    found: LetBe = {}
    for view in (sample.views[name] for name in names):
        later = following.views.get(view.name)
        if later is None or later.life != view.life:
            continue
        others = [record for record in view.table if record.state is not State.LEFT]
        held = {record.id: record for record in view.table}
        others += [  # it may have been reported alive since it left
            record
            for record in later.table
            if record.state is not State.LEFT or held.get(record.id) != record
        ]
        lasting = any(
            id in later.links
            and not any(sample.at_s < at_s <= following.at_s for at_s in lost.get((view.boot, id), ()))
            for id in view.links
        )
        earlier = () if lasting else view.known
        sought = dict.fromkeys((*(record.peer_url for record in others), *view.join, *earlier, ""))
        for record in view.table[1:]:
            same = record.state is State.LEFT and later.record(record.id) == record
            if same and record.peer_url not in sought:
                leave = (view.name, view.life, record.id, record.incarnation)
                found[view.name, record.peer_url] = (record.name, leave)
    return found


@at_end
def leaves_are_seen(evidence: Evidence, within_s: float = 2.0) -> Verdict:
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for life in evidence.lives:
        if life.how != "left" or life.id is None or life.ended_s is None:
            continue
        left_s = _said_goodbye_s(evidence, life)
        if circumstances.touched(life.name, left_s - grace_s(evidence), left_s + within_s):
            continue
        for observer in circumstances.up_through(left_s, left_s + within_s):
            known = circumstances.belief(observer, life.id, left_s)
            if observer.id == life.id or known is None or known.state not in VIEW_STATES:
                continue
            twin_from_s = left_s - grace_s(evidence)
            if evidence.twin_between(observer.name, observer.id, twin_from_s, left_s + within_s):
                continue  # one of the two has the link, and hears it
            if circumstances.touched(observer.name, left_s - grace_s(evidence), left_s + within_s):
                continue
            looked += 1
            # If the log is lost, the view at the leave may date from a look after the next start.
            boot = format_id(life.boot or 0) if observer.log_lost else known.boot
            later = [
                each
                for each in circumstances.beliefs(observer, life.id)
                if each.at_s > left_s and each.boot == boot
            ]
            held = circumstances.belief(observer, life.id, left_s + within_s)
            if held is not None and held.state != "left" and held.boot == boot:
                wrong.append(
                    f"{observer.name} holds {life.name} {held.state} {within_s:g} s after it left at "
                    f"{left_s:.3f} s"
                )
            if any(each.state == "dead" for each in later):
                wrong.append(f"{observer.name} called {life.name} dead, though it left at {left_s:.3f} s")
    return verdict("leaves_are_seen", looked, "leave(s) seen by another", wrong)


def _said_goodbye_s(evidence: Evidence, life: Life) -> float:
    for row in evidence.by_writer.get((format_id(life.id or 0), format_id(life.boot or 0)), ()):
        if row["kind"] == "mem" and row["node"] == row["subject"] and row["to_state"] == "left":
            return float(row["at_s"])
    return life.ended_s or 0.0


@at_end
def never_left(evidence: Evidence, whom: tuple[str, ...] = ()) -> Verdict:
    """Until the scenario is over and everybody leaves."""
    names = named(evidence, whom)
    drained_s = evidence.phases.get("drained_s", evidence.end_s)
    wrong = [
        f"{evidence.writer(row)} records that {row['subject_name']} left at {row['at_s']:.3f} s"
        for row in evidence.member_rows
        if row["to_state"] == "left" and row["subject_name"] in names and row["at_s"] < drained_s
    ]
    return verdict("never_left", pairs_watched(evidence, names), "member(s) seen by another", wrong)


@at_end
def left_seen(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    within_s: float = 2.0,
    after: str = "leave",
) -> Verdict:
    """``after``: ``heal`` counts from the heal, for brokers that could not hear of it before."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in named(evidence, whom):
        for life in evidence.brokers[name]:
            if life.how != "left" or life.ended_s is None:
                continue
            from_s = evidence.phases.get("healed_s", life.ended_s) if after == "heal" else life.ended_s
            if life.ended_s > from_s or from_s >= evidence.phases.get("drained_s", evidence.end_s):
                continue
            for observer in circumstances.up_through(from_s, from_s + within_s):
                if observer.name == name or (by and observer.name not in by):
                    continue
                looked += 1
                heard = any(
                    belief.state == "left" and belief.at_s <= from_s + within_s
                    for belief in circumstances.beliefs(observer, life.id or 0)
                )
                if not heard:
                    wrong.append(
                        f"{observer.name} did not hear within {within_s:g} s of {from_s:.3f} s that {name} "
                        "left"
                    )
    return verdict("left_seen", looked, "leave(s) seen by another", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M11",
        "left_by_own_word",
        "always",
        "Only a member's own word makes it left, and a member that left is not dialled.",
        LeftByOwnWord,
        default=True,
        occasional=True,
    ),
    Check(
        "M12",
        "leaves_are_seen",
        "eventually",
        "A leave reaches all healthy brokers within two seconds, and none declares the broker dead.",
        leaves_are_seen,
        (within("seconds from the goodbye", 2.0),),
        default=True,
        occasional=True,
    ),
    Check(
        "S7",
        "never_left",
        "always",
        "None of them is ever recorded as having left of its own will, before the end.",
        never_left,
        (WHOM,),
    ),
    Check(
        "S12",
        "left_seen",
        "eventually",
        "Others hear in time that they left.",
        left_seen,
        (
            WHOM,
            BY,
            within("seconds", 2.0),
            Parameter("after", "text", "leave", "the start of the seconds", ("leave", "heal")),
        ),
    ),
)
