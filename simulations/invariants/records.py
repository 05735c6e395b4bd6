"""What a broker holds of a member: it only grows, by the member's own word, in whatever order news comes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

from mesh.cluster.membership import RANKS, MemberRecord, merge
from simulations.evidence import FLUSH_S, VIEW_STATES, Evidence, Row
from simulations.invariants.bounds import (
    TOMBSTONE_S,
)
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import LIES
from simulations.invariants.verdict import Verdict, verdict

STATE_RANKS: Final = {str(state): rank for state, rank in RANKS.items()}


def records_only_grow(evidence: Evidence) -> Verdict:
    wrong: list[str] = []
    last: dict[tuple[str, int, int], tuple[float, tuple[int, int]]] = {}
    looked = 0
    for sample, view in evidence.looks():
        for record in view.table[1:]:
            looked += 1
            key = (view.name, view.boot, record.id)
            now = (record.incarnation, RANKS[record.state])
            before = last.get(key)
            if before is not None and now < before[1]:
                wrong.append(
                    f"{view.name} held {evidence.name_of(record.id)} as {_told(before[1])} at "
                    f"{before[0]:.1f} s and as {_told(now)} at {sample.at_s:.1f} s"
                )
            last[key] = (sample.at_s, now)
    wrong += _shrunk_rows(evidence)
    return verdict("records_only_grow", looked, "record(s) at a moment", wrong)


def _shrunk_rows(evidence: Evidence) -> Iterator[str]:
    """Between two samples the log tells."""
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


def only_owners_raise(evidence: Evidence) -> Verdict:
    """What an earlier run of a member said counts even where a disk has lost it. What somebody lied about is
    left out.
    """
    lies = [
        (span.start_s, life.id)
        for span in evidence.faults
        if span.fault.kind in LIES
        for name in span.fault.a
        for life in evidence.brokers.get(name, ())
    ]
    words = sorted((row["at_s"], int(row["node"], 16), row["inc"]) for row in evidence.rows)
    said: dict[int, int] = {}
    spoken = 0
    wrong: list[str] = []
    looked = 0
    for sample in evidence.samples:
        while spoken < len(words) and words[spoken][0] <= sample.at_s:
            _, id, incarnation = words[spoken]
            said[id] = max(said.get(id, 0), incarnation)
            spoken += 1
        for view in sample.views.values():
            said[view.id] = max(said.get(view.id, 0), view.me.incarnation)
        lied_about = {id: None for since_s, id in lies if since_s <= sample.at_s}
        # The last words of one that ended may be in no log: it can have refuted twice a period until then.
        unlogged = math.ceil(2 * FLUSH_S / evidence.period_s)
        ended = {life.id: None for life in evidence.lives if (life.ended_s or sample.at_s) < sample.at_s}
        for view in sample.views.values():
            for record in view.table[1:]:
                looked += 1
                most = said.get(record.id, record.incarnation) + unlogged * (record.id in ended)
                if record.incarnation > most and record.id not in lied_about:
                    wrong.append(
                        f"{view.name} holds incarnation {record.incarnation} of "
                        f"{evidence.name_of(record.id)} at {sample.at_s:.1f} s, which never went beyond "
                        f"{most}"
                    )
    return verdict("only_owners_raise", looked, "record(s) at a moment", wrong)


def merge_is_order_free(evidence: Evidence, shuffles: float = 5) -> Verdict:
    """The records that were held in the run, merged again in other orders and some twice."""
    about: dict[int, dict[MemberRecord, None]] = {}
    for _, view in evidence.looks():
        for record in view.table:
            about.setdefault(record.id, {})[record] = None
    rng = random.Random("the orders of M5")
    wrong: list[str] = []
    looked = 0
    for id, records in about.items():
        stands = _merged(list(records))
        for _ in range(int(shuffles)):
            order = [*records, *rng.sample(list(records), rng.randrange(len(records) + 1))]
            rng.shuffle(order)
            looked += 1
            if _merged(order) != stands:
                wrong.append(
                    f"of {evidence.name_of(id)} {shown(stands)} stands or {shown(_merged(order))}, by the "
                    f"order in which {len(records)} records are merged"
                )
    return verdict("merge_is_order_free", looked, "order(s) of records", wrong)


def _merged(records: Sequence[MemberRecord]) -> MemberRecord:
    stands = records[0]
    for record in records[1:]:
        stands = merge(stands, record)
    return stands


def shown(record: MemberRecord) -> str:
    return f"{record.state} of incarnation {record.incarnation}"


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


def changes_follow(evidence: Evidence) -> Verdict:
    """Each change of a member begins where the last one ended, so joins and leaves take turns."""
    wrong: list[str] = []
    looked = 0
    for rows in evidence.by_writer.values():
        states: dict[str, str] = {}
        seq = 0
        for row in rows:
            if row["seq"] != seq + 1:
                states = {}  # a disk that failed cost rows: what follows cannot be compared
            seq = row["seq"]
            if row["kind"] != "mem" or row["node"] == row["subject"]:
                continue
            looked += 1
            before = states.get(row["subject"])
            came = row["from_state"]
            if before is not None and came not in (before, "unknown"):
                wrong.append(
                    f"{evidence.writer(row)} told that {row['subject_name']} went from {came} to "
                    f"{row['to_state']} at {row['at_s']:.3f} s, when it was {before}"
                )
            elif before in VIEW_STATES and came == "unknown":
                wrong.append(
                    f"{evidence.writer(row)} told twice that {row['subject_name']} joined, again at "
                    f"{row['at_s']:.3f} s"
                )
            states[row["subject"]] = row["to_state"]
    return verdict("changes_follow", looked, "change(s) of a member", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M3",
        "records_only_grow",
        "always",
        "What a broker holds of a member never goes back in (incarnation, rank).",
        records_only_grow,
        needs=Evidence.had_several,
        default=True,
    ),
    Check(
        "M4",
        "only_owners_raise",
        "always",
        "No table holds a greater incarnation of a member than the member calls itself.",
        only_owners_raise,
        needs=Evidence.had_several,
        default=True,
    ),
    Check(
        "M5",
        "merge_is_order_free",
        "always",
        "The records of the run, merged in any order and some twice, give the same table.",
        merge_is_order_free,
        (Parameter("shuffles", "whole number", 5, "orders tried of each member's records"),),
        default=True,
    ),
    Check(
        "M22",
        "no_resurrection",
        "always",
        "The dead and the gone are remembered for a day, and raised only by a greater incarnation.",
        no_resurrection,
        default=True,
        occasional=True,
    ),
    Check(
        "M23",
        "changes_follow",
        "always",
        "What a broker tells of a member's changes is one chain, in which joins and leaves take turns.",
        changes_follow,
        needs=Evidence.had_several,
        default=True,
    ),
)
