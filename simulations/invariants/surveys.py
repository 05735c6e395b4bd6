"""Every answer counts once, and who asks has the result in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.clients.calls import GRACE_S
from simulations.evidence import Evidence
from simulations.invariants.bounds import ROUND_LATE_MAX, grace_s
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.verdict import Verdict, verdict


def answers_count_once(evidence: Evidence) -> Verdict:
    """Of heartbeats by the event log, of clients' surveys by the ledger."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    seen: dict[tuple[str, str, str, int], None] = {}
    looked = 0
    bound_us = ROUND_LATE_MAX * evidence.deadline_s * 1e6
    for row in evidence.rows:
        if row["kind"] != "hb" or row["msg"] != "answer":
            continue
        looked += 1
        key = (row["node"], row["boot"], row["src"], row["hb_seq"])
        peer = evidence.name_of(int(row["src"], 16))
        what = f"the answer of {peer} to round {row['hb_seq']} of {evidence.writer(row)}"
        if key in seen:
            wrong.append(f"{what} was counted twice, again at {row['at_s']:.3f} s")
        seen[key] = None
        if row["rtt_us"] > bound_us:
            writer, since_s = evidence.writer(row), row["at_s"] - grace_s(evidence)
            # In a round for which its broker was late every answer counts, and nobody is judged.
            late = circumstances.struck(writer, since_s, row["at_s"])
            if not late and not circumstances.away(writer, since_s, row["at_s"]):
                wrong.append(f"{what} was counted after {row['rtt_us'] / 1e6:.3f} s")
    for question in evidence.ledger.questions:
        responders: dict[str, None] = {}
        for answer in question.answers:
            looked += 1
            what = f"{question.asker} counted an answer of {answer.responder} to {question.name}"
            if answer.responder in responders:
                wrong.append(f"{what} twice")
            responders[answer.responder] = None
            if answer.question != question.name:
                wrong.append(f"{what}, which was one to {answer.question}")
            if question.ended_s is not None and answer.at_s > question.ended_s:
                wrong.append(f"{what} after the survey was over")
    return verdict("answers_count_once", looked, "answer(s)", wrong)


def surveys_return(evidence: Evidence, slack_s: float = 0.1) -> Verdict:
    """Callers whose process was let run until then.

    A client waits longer for a broker that does not tell it that the time is over, as one may not that
    leaves, left or was struck. A broker at work reads the question when it is done, and tells that the time
    is over when it is done again.
    """
    circumstances = Circumstances(evidence)
    alive_until = {
        (life.name, life.number): evidence.end_s if life.ended_s is None else life.ended_s
        for life in evidence.lives
    }
    wrong: list[str] = []
    looked = 0
    for question in evidence.ledger.questions:
        host, since_s = evidence.host_of(question.asker), question.asked_s - evidence.period_s
        heard_s = circumstances.free_s(host, question.asked_s)
        due_s = circumstances.free_s(host, heard_s + question.timeout_s) + slack_s
        leaves = any(
            circumstances.asked_to_end_s(life) <= due_s and (life.ended_s or due_s) >= since_s
            for life in evidence.brokers.get(host, ())
        )
        if leaves or (host in evidence.brokers and not circumstances.is_well(host, since_s, due_s)):
            due_s += GRACE_S
        due_s = min(due_s, question.asked_s + question.timeout_s + GRACE_S + slack_s)
        if alive_until.get((question.asker, question.life), evidence.end_s) < due_s:
            continue
        if circumstances.struck(question.asker, question.asked_s, due_s):
            continue
        looked += 1
        if question.ended_s is None or question.ended_s > due_s:
            when = (
                "never" if question.ended_s is None else f"after {question.ended_s - question.asked_s:.3f} s"
            )
            wrong.append(
                f"{question.name} of {question.asker} returned {when}; it had {question.timeout_s:g} s"
            )
    return verdict("surveys_return", looked, "survey(s)", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D9",
        "answers_count_once",
        "always",
        "No answer counts twice, after its time, or for another question.",
        answers_count_once,
        default=True,
        needs=Evidence.had_several,
    ),
    Check(
        "D10",
        "surveys_return",
        "always",
        "Who asks has the result by the deadline.",
        surveys_return,
        (Parameter("slack_s", "number", 0.1, "seconds beyond the deadline"),),
        default=True,
        occasional=True,
    ),
)
