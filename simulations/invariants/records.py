"""A broker's records of members: they only grow, by the member's own word, in whatever order news comes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

from mesh.broker.identity import format_id
from mesh.cluster.membership import RANKS, MemberRecord, merge
from simulations.evidence import EVERY, FLUSH_S, VIEW_STATES, Change, Evidence, Row, Sample
from simulations.invariants.bounds import (
    TOMBSTONE_S,
)
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import LIES
from simulations.invariants.verdict import Verdict, verdict

STATE_RANKS: Final = {str(state): rank for state, rank in RANKS.items()}


class RecordsOnlyGrow(Judge):
    """Compares looks; between two of them, the logs."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._wrong: list[str] = []
        self._looked = 0
        self._held: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._forgotten_s: dict[tuple[str, int, int], float] = {}
        """When records that are no longer held were last seen."""
        self._before_s = 0.0

    def on_change(self, change: Change) -> None:
        view, before = change.view, change.before
        for record in change.records:
            if record.id == view.id:
                continue
            key = (view.name, view.boot, record.id)
            held, now = self._held.get(key), (record.incarnation, RANKS[record.state])
            if held is not None and now < held:
                self._wrong.append(
                    f"{view.name} held {self.evidence.name_of(record.id)} as {_told(held)} at "
                    f"{self._forgotten_s.get(key, self._before_s):.1f} s and as {_told(now)} at "
                    f"{change.at_s:.1f} s"
                )
            self._held[key] = now
            self._forgotten_s.pop(key, None)
        if before is not None and before.table is not view.table:
            holds = {record.id for record in view.table}
            for record in before.table:
                if record.id not in holds:
                    self._forgotten_s[view.name, view.boot, record.id] = self._before_s

    def on_look(self, sample: Sample) -> None:
        self._looked += sum(len(view.table) - 1 for view in sample.views.values())
        self._before_s = sample.at_s

    def finish(self) -> Verdict:
        wrong = [*self._wrong, *_shrunk_rows(self.evidence)]
        return verdict("records_only_grow", self._looked, "record(s) at a moment", wrong)


def _shrunk_rows(evidence: Evidence) -> Iterator[str]:
    """Between two samples the log decides."""
    last: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in _in_writing_order(evidence):
        key = (row["node"], row["boot"], row["subject"])
        now = (row["subject_inc"], STATE_RANKS[row["to_state"]])
        if row["from_state"] != "unknown" and now < last.get(key, (0, 0)):
            yield (
                f"{evidence.writer(row)} went from {_told(last[key])} of {row['subject_name']} back to "
                f"{_told(now)} at {row['at_s']:.3f} s"
            )
        last[key] = now


def _in_writing_order(evidence: Evidence) -> Iterator[Row]:
    for rows in evidence.by_writer.values():
        for row in rows:
            if row["kind"] == "mem" and row["node"] != row["subject"]:
                yield row


def _told(pair: tuple[int, int]) -> str:
    states = {rank: state for state, rank in STATE_RANKS.items()}
    return f"{states[pair[1]]} of incarnation {pair[0]}"


class OnlyOwnersRaise(Judge):
    """Records grow only by the member's own word. That of an earlier run counts even if a disk has lost it.

    Records that somebody lied about are left out. A member's own incarnation only rises, so a correct record
    stays correct. Only new records and wrong ones are checked.
    """

    kinds = EVERY

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._lies = [
            (span.start_s, life.id)
            for span in evidence.faults
            if span.fault.kind in LIES
            for name in span.fault.a
            for life in evidence.brokers.get(name, ())
        ]
        self._words: dict[str, int] = {}
        """By the id in its form in the logs."""
        self._said: dict[int, int] = {}
        """The same by looks."""
        self._doubtful: dict[tuple[str, int], None] = {}
        """Pairs of an observer and a member whose record must be checked."""
        self._wrong: list[str] = []
        self._looked = 0
        # The last messages of a broker that ended may be in no log: it can have refuted twice a period until
        # then.
        self._unlogged = math.ceil(2 * FLUSH_S / evidence.period_s)

    def on_row(self, row: Row) -> None:
        if row["inc"] > self._words.get(row["node"], -1):
            self._words[row["node"]] = row["inc"]

    def on_change(self, change: Change) -> None:
        self._doubtful |= {(change.view.name, record.id): None for record in change.records}

    def on_look(self, sample: Sample) -> None:
        for view in sample.views.values():
            self._looked += len(view.table) - 1
            self._said[view.id] = max(self._said.get(view.id, 0), view.me.incarnation)
        if not self._doubtful:
            return
        at_s = sample.at_s
        lied_about = {id: None for since_s, id in self._lies if since_s <= at_s}
        lives = self.evidence.lives
        ended = {life.id: None for life in lives if life.ended_s is not None and life.ended_s <= at_s}
        doubtful, self._doubtful = self._doubtful, {}
        for name in dict.fromkeys(name for name, _ in doubtful):
            holder = sample.views.get(name)
            for record in holder.table[1:] if holder is not None else ():
                if (name, record.id) in doubtful:
                    said = self._most(record.id)
                    if said is None:  # no record of it has arrived yet
                        self._doubtful[name, record.id] = None
                        continue
                    most = said + self._unlogged * (record.id in ended)
                    if record.incarnation > most:
                        self._doubtful[name, record.id] = None
                        if record.id not in lied_about:
                            self._wrong.append(
                                f"{name} holds incarnation {record.incarnation} of "
                                f"{self.evidence.name_of(record.id)} at {at_s:.1f} s, which never went "
                                f"beyond {most}"
                            )

    def _most(self, id: int) -> int | None:
        """The greatest incarnation that it was heard to call itself."""
        logged, seen = self._words.get(format_id(id)), self._said.get(id)
        return max((each for each in (logged, seen) if each is not None), default=None)

    def finish(self) -> Verdict:
        return verdict("only_owners_raise", self._looked, "record(s) at a moment", self._wrong)


class MergeIsOrderFree(Judge):
    """Merges the records of the run again in other orders, some of them twice."""

    def __init__(self, evidence: Evidence, shuffles: float = 5) -> None:
        super().__init__(evidence)
        self._shuffles = int(shuffles)
        self._about: dict[int, dict[MemberRecord, None]] = {}

    def on_change(self, change: Change) -> None:
        for record in change.records:
            self._about.setdefault(record.id, {})[record] = None

    def finish(self) -> Verdict:
        rng = random.Random("the orders of M5")
        wrong: list[str] = []
        looked = 0
        for id, records in self._about.items():
            stands = _merged(list(records))
            for _ in range(self._shuffles):
                order = [*records, *rng.sample(list(records), rng.randrange(len(records) + 1))]
                rng.shuffle(order)
                looked += 1
                if _merged(order) != stands:
                    wrong.append(
                        f"of {self.evidence.name_of(id)} {shown(stands)} stands or {shown(_merged(order))}, "
                        f"by the order in which {len(records)} records are merged"
                    )
        return verdict("merge_is_order_free", looked, "order(s) of records", wrong)


def _merged(records: Sequence[MemberRecord]) -> MemberRecord:
    stands = records[0]
    for record in records[1:]:
        stands = merge(stands, record)
    return stands


def shown(record: MemberRecord) -> str:
    return f"{record.state} of incarnation {record.incarnation}"


@at_end
def no_resurrection(evidence: Evidence) -> Verdict:
    """Tombstones are kept, and no stale record raises the dead."""
    wrong: list[str] = []
    buried: dict[tuple[str, str, str], Row] = {}
    looked = 0
    for row in _in_writing_order(evidence):
        key = (row["node"], row["boot"], row["subject"])
        before = buried.pop(key, None)
        if row["to_state"] in ("dead", "left"):
            looked += 1
            buried[key] = row
        if before is None:
            continue
        who = f"{evidence.writer(row)} held {row['subject_name']} {before['to_state']}"
        if row["from_state"] == "unknown" and row["at_s"] - before["at_s"] < TOMBSTONE_S:
            wrong.append(f"{who} and had forgotten it {row['at_s'] - before['at_s']:.1f} s later")
        elif row["to_state"] in VIEW_STATES and row["subject_inc"] <= before["subject_inc"]:
            wrong.append(
                f"{who} in incarnation {before['subject_inc']}, and incarnation {row['subject_inc']} raised "
                f"it at {row['at_s']:.3f} s"
            )
    return verdict("no_resurrection", looked, "tombstone(s)", wrong)


class ChangesFollow(Judge):
    """Each change of a member begins where the last one ended, so joins and leaves alternate."""

    kinds = EVERY

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._seqs: dict[tuple[str, str], int] = {}
        self._states: dict[tuple[str, str], dict[str, str]] = {}
        self._wrong: list[str] = []
        self._looked = 0

    def on_row(self, row: Row) -> None:
        writer = (row["node"], row["boot"])
        if row["seq"] != self._seqs.get(writer, 0) + 1:
            self._states[writer] = {}  # a failed disk lost rows: what follows cannot be compared
        self._seqs[writer] = row["seq"]
        if row["kind"] != "mem" or row["node"] == row["subject"]:
            return
        self._looked += 1
        states = self._states.setdefault(writer, {})
        before = states.get(row["subject"])
        came = row["from_state"]
        if before is not None and came not in (before, "unknown"):
            self._wrong.append(
                f"{self.evidence.writer(row)} told that {row['subject_name']} went from {came} to "
                f"{row['to_state']} at {row['at_s']:.3f} s, when it was {before}"
            )
        elif before in VIEW_STATES and came == "unknown":
            self._wrong.append(
                f"{self.evidence.writer(row)} told twice that {row['subject_name']} joined, again at "
                f"{row['at_s']:.3f} s"
            )
        states[row["subject"]] = row["to_state"]

    def finish(self) -> Verdict:
        return verdict("changes_follow", self._looked, "change(s) of a member", self._wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M3",
        "records_only_grow",
        "always",
        "A broker's record of a member never goes back in (incarnation, rank).",
        RecordsOnlyGrow,
        needs=Evidence.had_several,
        default=True,
    ),
    Check(
        "M4",
        "only_owners_raise",
        "always",
        "No table holds a greater incarnation of a member than the member's own.",
        OnlyOwnersRaise,
        needs=Evidence.had_several,
        default=True,
    ),
    Check(
        "M5",
        "merge_is_order_free",
        "always",
        "The records of the run, merged in any order and some twice, give the same table.",
        MergeIsOrderFree,
        (Parameter("shuffles", "whole number", 5, "orders tried of each member's records"),),
        default=True,
    ),
    Check(
        "M22",
        "no_resurrection",
        "always",
        "Dead and departed members are remembered for a day, and raised only by a greater incarnation.",
        no_resurrection,
        default=True,
        occasional=True,
    ),
    Check(
        "M23",
        "changes_follow",
        "always",
        "The changes that a broker reports of a member form one chain, in which joins and leaves alternate.",
        ChangesFollow,
        needs=Evidence.had_several,
        default=True,
    ),
)
