"""Every answer counts once, and the asker has the result in time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from mesh.clients.calls import GRACE_S
from simulations.evidence import Evidence, Row
from simulations.evidence.ledger import Question
from simulations.invariants.bounds import ROUND_LATE_MAX, grace_s
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.verdict import Verdict, verdict


class AnswersCountOnce(Judge):
    """Checks heartbeats by the event log, and clients' surveys by the ledger."""

    kinds = ("hb",)

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._circumstances = Circumstances(evidence)
        self._bound_us = ROUND_LATE_MAX * evidence.deadline_s * 1e6
        self._seen: dict[tuple[str, str, str], Numbers] = {}
        """For each run of a broker: the rounds that another one answered."""
        self._wrong: list[str] = []
        self._looked = 0

    def on_row(self, row: Row) -> None:
        if row["msg"] != "answer":
            return
        self._looked += 1
        key = (row["node"], row["boot"], row["src"])
        rounds = self._seen.get(key)
        if rounds is None:
            rounds = self._seen[key] = Numbers()
        if not rounds.add(row["hb_seq"]):
            self._wrong.append(f"{self._what(row)} was counted twice, again at {row['at_s']:.3f} s")
        if row["rtt_us"] > self._bound_us:
            writer, since_s = self.evidence.writer(row), row["at_s"] - grace_s(self.evidence)
            # In a round for which its broker was late every answer counts, and nobody is judged.
            late = self._circumstances.struck(writer, since_s, row["at_s"])
            if not late and not self._circumstances.away(writer, since_s, row["at_s"]):
                self._wrong.append(f"{self._what(row)} was counted after {row['rtt_us'] / 1e6:.3f} s")

    def _what(self, row: Row) -> str:
        peer = self.evidence.name_of(int(row["src"], 16))
        return f"the answer of {peer} to round {row['hb_seq']} of {self.evidence.writer(row)}"

    def finish(self) -> Verdict:
        for question in self.evidence.ledger.questions:
            self._looked += len(question.answers)
            self._wrong += _miscounted(question)
        return verdict("answers_count_once", self._looked, "answer(s)", self._wrong)


def _miscounted(question: Question) -> Iterator[str]:
    responders: dict[str, None] = {}
    for answer in question.answers:
        what = f"{question.asker} counted an answer of {answer.responder} to {question.name}"
        if answer.responder in responders:
            yield f"{what} twice"
        responders[answer.responder] = None
        if answer.question != question.name:
            yield f"{what}, which belongs to {answer.question}"
        if question.ended_s is not None and answer.at_s > question.ended_s:
            yield f"{what} after the survey was over"


class Numbers:
    """Whole numbers that were seen. Consecutive numbers take no extra room."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        """The end of each row, exclusive."""

    def add(self, number: int) -> bool:
        """Add a number. Returns True if it is new."""
        begins, ends = self._begins, self._ends
        if ends and ends[-1] == number:  # the usual case
            ends[-1] += 1
            return True
        place = bisect_right(begins, number)
        if place and number < ends[place - 1]:
            return False
        joins_before = place > 0 and ends[place - 1] == number
        joins_next = place < len(begins) and begins[place] == number + 1
        if joins_before and joins_next:
            ends[place - 1] = ends.pop(place)
            del begins[place]
        elif joins_before:
            ends[place - 1] += 1
        elif joins_next:
            begins[place] -= 1
        else:
            begins.insert(place, number)
            ends.insert(place, number + 1)
        return True


@at_end
def surveys_return(evidence: Evidence, slack_s: float = 0.1) -> Verdict:
    """Considers callers whose process could run until then.

    A client waits longer if its broker does not report the end of the time, as a broker may that leaves, left
    or was struck. A busy broker reads the question when it is free, and reports the end of the time when it
    is free again.
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
        AnswersCountOnce,
        default=True,
        occasional=True,  # logs may hold summaries of heartbeats, and perhaps nobody asked
        needs=Evidence.had_several,
    ),
    Check(
        "D10",
        "surveys_return",
        "always",
        "The asker has the result by the deadline.",
        surveys_return,
        (Parameter("slack_s", "number", 0.1, "seconds beyond the deadline"),),
        default=True,
        occasional=True,
    ),
)
