"""Invariants of the brokers' own logs: no row is missing, and the logs of two brokers agree.

A log may be incomplete in three cases: its disk was struck, its broker was killed before its last rows
reached the file, or questions were answered before READY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from mesh.broker.identity import format_id
from simulations.evidence import EVERY, Change, Evidence, Life, Row, Sample, View
from simulations.invariants.bounds import admission_s
from simulations.invariants.check import Check, Judge
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.verdict import Verdict, verdict

CLOCKS_S: Final = 0.05
"""The most by which the clocks of two logs may differ, in seconds."""
AT_ONCE_S: Final = 0.001
"""A look and a row that are closer together than this may be in either order."""
REPEATED_S: Final = 3.0
"""A second answer so much later than the first has no question."""
LOOKS_S: Final = 1.0
"""Seconds from one look at the brokers to the next."""
LATE_PERIODS: Final = 15
"""A broker that stood still is patient with its links for so many periods after that, about
(`mesh.cluster.pace`)."""

Times = tuple[float, float]
"""Begin and end."""
Pair = tuple[str, str]
"""The ids of the writer and of the member."""
Writer = tuple[str, str]
"""Node and boot."""
Question = tuple[str, str, int]
"""The ids of the hearer and of the asker, and the round."""


class AnswersAreTraced(Judge):
    """Traces each answer to the question in the answerer's log, where that must have it. `genuine` traces
    data.

    A question is kept until its answer has come and `REPEATED_S` have passed.
    """

    kinds = EVERY

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._last_s: dict[Writer, float] = {}
        """When each broker wrote its last row."""
        circumstances = Circumstances(evidence)
        self._gaps = _gaps(circumstances)
        self._patient = _patient(circumstances)
        self._ups_s = _ups(evidence)
        self._admitted_s = admission_s(evidence)
        self._questions: dict[Question, tuple[float, ...]] = {}
        """When the questions were heard."""
        self._answered: deque[tuple[float, Question, tuple[float, ...]]] = deque()
        """Until when questions are kept, and when they were heard."""
        self._answers: deque[Row] = deque()
        """Answers whose questions may still be read, from a log whose clock is behind."""
        self._unlinked: list[tuple[Row, bool]] = []
        """Answers over a link that was new to the asker, and whether there was such a question."""
        self._wrong: list[str] = []
        self._looked = 0

    def on_row(self, row: Row) -> None:
        at_s = self._last_s[row["node"], row["boot"]] = row["at_s"]
        if row["kind"] != "hb":
            return
        while self._answers and self._answers[0]["at_s"] + CLOCKS_S < at_s:
            self._judge(self._answers.popleft())
        while self._answered and self._answered[0][0] < at_s:
            self._forget(*self._answered.popleft()[1:])
        if row["msg"] == "answer":
            self._answers.append(row)
        else:
            question = (row["node"], row["src"], row["hb_seq"])
            self._questions[question] = (*self._questions.get(question, ()), at_s)

    def _judge(self, row: Row) -> None:
        asker, answerer, heard = row["node"], row["src"], _when_heard(row)
        question = (answerer, asker, row["hb_seq"])
        moments_s = self._questions.get(question, ())
        found = _is_within(moments_s, heard)
        if found:
            self._answered.append((row["at_s"] + REPEATED_S, question, _those_within(moments_s, heard)))
        if _may_be_missing(self._gaps.get(answerer, ()), heard):
            return
        new_s = self._admitted_within_s(asker, answerer, heard[0])
        if _is_within(self._ups_s.get((asker, answerer), ()), (heard[0] - new_s, heard[1])):
            self._unlinked.append((row, found))
            return
        self._count(row, found)

    def _admitted_within_s(self, asker: str, answerer: str, at_s: float) -> float:
        """How old a link is at most that one of the two may not know yet. A broker that stood still just
        before has more patience with its dials, and any link since then counts."""
        late_s = [
            at_s - from_s
            for id in (asker, answerer)
            for from_s, until_s in self._patient.get(id, ())
            if from_s <= at_s <= until_s
        ]
        return max([self._admitted_s, *late_s])

    def _count(self, row: Row, found: bool) -> None:
        self._looked += 1
        if not found:
            peer = self.evidence.name_of(int(row["src"], 16))
            self._wrong.append(
                f"{self.evidence.writer(row)} heard {peer} answer round {row['hb_seq']} at "
                f"{row['at_s']:.3f} s, but {peer} heard no such question"
            )

    def _forget(self, question: Question, moments_s: tuple[float, ...]) -> None:
        left = tuple(at_s for at_s in self._questions.get(question, ()) if at_s not in moments_s)
        if left:
            self._questions[question] = left
        else:
            self._questions.pop(question, None)

    def finish(self) -> Verdict:
        for row in self._answers:
            self._judge(row)
        links = _links(self.evidence, self._last_s)
        for row, found in self._unlinked:
            asker, answerer, heard = row["node"], row["src"], _when_heard(row)
            if not _may_be_unwritten(
                links.get((asker, answerer), ()),
                links.get((answerer, asker), ()),
                heard,
                self._admitted_within_s(asker, answerer, heard[0]),
            ):
                self._count(row, found)
        return verdict("answers_are_traced", self._looked, "answer(s)", self._wrong)


def _when_heard(answer: Row) -> Times:
    """When the question was heard, between its way there and the answer's way back."""
    return answer["at_s"] - answer["rtt_us"] / 1e6 - CLOCKS_S, answer["at_s"] + CLOCKS_S


def _is_within(moments_s: Iterable[float], times: Times) -> bool:
    return any(times[0] <= at_s <= times[1] for at_s in moments_s)


def _those_within(moments_s: Iterable[float], times: Times) -> tuple[float, ...]:
    return tuple(at_s for at_s in moments_s if times[0] <= at_s <= times[1])


def _may_be_unwritten(
    asker: Sequence[Times], answerer: Sequence[Times], heard: Times, admitted_s: float
) -> bool:
    """True if the question may not be in the answerer's log.

    A question that comes before READY is answered without a row (`mesh.cluster.heartbeat`). That is so if the
    link was new to the asker, and the answerer had none yet or one on its way, each by its own log. It is
    also so if the asker's link was closed in favour of one that the answerer had before and kept.
    """
    since_s, until_s = heard
    if not _is_within((up_s for up_s, _ in asker), (since_s - admitted_s, until_s)):
        return False
    had = [down_s for up_s, down_s in answerer if up_s < since_s <= down_s]
    if not had or _is_within((up_s for up_s, _ in answerer), (since_s, until_s + admitted_s)):
        return True
    asked_s = since_s + CLOCKS_S
    return any(
        up_s - AT_ONCE_S <= asked_s <= gone_s and gone_s == next_s and gone_s + admitted_s < max(had)
        for (up_s, gone_s), (next_s, _) in pairwise(asker)
    )


def _ups(evidence: Evidence) -> dict[Pair, list[float]]:
    """When a link came up, by the first one's log."""
    found: dict[Pair, list[float]] = {}
    for row in evidence.changes:
        if row["kind"] == "link" and row["state"] == "up":
            found.setdefault((row["node"], row["peer"]), []).append(row["at_s"])
    return found


def _links(evidence: Evidence, last_s: Mapping[Writer, float]) -> dict[Pair, list[Times]]:
    """Begin and end of each link, by the first one's log."""
    found: dict[Pair, list[Times]] = {}
    for (node, boot), rows in evidence.by_writer.items():
        since_s: dict[str, float] = {}
        for row in rows:
            if row["kind"] != "link":
                continue
            if row["peer"] in since_s:
                found.setdefault((node, row["peer"]), []).append((since_s.pop(row["peer"]), row["at_s"]))
            if row["state"] == "up":
                since_s[row["peer"]] = row["at_s"]
        for peer, up_s in since_s.items():
            found.setdefault((node, peer), []).append((up_s, last_s[node, boot]))
    return found


def _may_be_missing(gaps: Iterable[Times], heard: Times) -> bool:
    return any(from_s <= heard[1] and until_s >= heard[0] for from_s, until_s in gaps)


def _patient(circumstances: Circumstances) -> dict[str, list[Times]]:
    """By broker id: begin and end of the times in which it had stood still shortly before."""
    evidence = circumstances.evidence
    late_s = LATE_PERIODS * evidence.period_s
    found: dict[str, list[Times]] = {}
    for name, lives in evidence.brokers.items():
        times = [(each.until_s, each.until_s + late_s) for each in circumstances.silences((name,))]
        found |= {format_id(life.id): times for life in lives if life.id is not None}
    return found


def _gaps(circumstances: Circumstances) -> dict[str, list[Times]]:
    """By broker id: begin and end of gaps in which rows of its log may be missing."""
    evidence = circumstances.evidence
    found: dict[str, list[Times]] = {}
    for life in evidence.lives:
        if life.id is not None and (gap := _gap(circumstances, life)) is not None:
            found.setdefault(format_id(life.id), []).append(gap)
    return found


def _gap(circumstances: Circumstances, life: Life) -> Times | None:
    evidence = circumstances.evidence
    ended_s = evidence.end_s if life.ended_s is None else life.ended_s
    if life.log_lost or circumstances.disk_was_struck(life):
        return life.started_s - LOOKS_S, ended_s  # its first row may be lost, and it was seen later
    return None if life.how == "left" else (circumstances.written_until_s(life), ended_s)


class LogsAreWhole(Judge):
    """For brokers with working disks: no numbered row is missing, and each look agrees with the last written
    rows.

    A look is judged when all rows written until just after it are read. It is judged for members that were
    seen to change or written about since the look before, or that differed then.
    """

    kinds = EVERY

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        circumstances = Circumstances(evidence)
        self._logs = {
            (format_id(life.id), format_id(life.boot)): _Log(life, circumstances.written_until_s(life))
            for life in evidence.lives
            if life.id is not None and life.boot is not None
            if not (life.log_lost or circumstances.disk_was_struck(life))
        }
        self._of_boot = {(log.life.name, log.life.boot): log for log in self._logs.values()}
        self._due: Sample | None = None

    def on_row(self, row: Row) -> None:
        if self._due is not None and row["at_s"] > self._due.at_s + AT_ONCE_S:
            self._judge()
        log = self._logs.get((row["node"], row["boot"]))
        if log is None:
            return
        if row["seq"] != log.seq + 1:
            log.missing.append(log.seq + 1)
        log.seq = row["seq"]
        if row["kind"] == "mem" and row["node"] != row["subject"]:
            log.changes.append(row)

    def on_change(self, change: Change) -> None:
        if self._due is not None:
            self._judge()
        log = self._of_boot.get((change.view.name, change.view.boot))
        if log is not None:
            log.doubtful |= {format_id(record.id): None for record in change.records}

    def on_look(self, sample: Sample) -> None:
        if self._due is not None:
            self._judge()
        self._due = sample

    def _judge(self) -> None:
        sample, self._due = self._due, None
        assert sample is not None
        for view in sample.views.values():
            log = self._of_boot.get((view.name, view.boot))
            if log is not None and sample.at_s <= log.until_s:
                log.compare(self.evidence, sample.at_s, view)

    def finish(self) -> Verdict:
        if self._due is not None:
            self._judge()
        logs = [log for log in self._logs.values() if log.seq]
        wrong = [
            each
            for log in logs
            for each in (*(f"the log of {log.life.name} has no row {n}" for n in log.missing), *log.wrong)
        ]
        return verdict("logs_are_whole", len(logs), "log(s)", wrong)


class _Log:
    """The log of one life, as far as it was read."""

    def __init__(self, life: Life, until_s: float) -> None:
        self.life = life
        self.until_s = until_s
        self.seq = 0
        self.missing: list[int] = []
        """Numbers of missing rows."""
        self.changes: deque[Row] = deque()
        """Rows about members since the last look that was judged."""
        self.doubtful: dict[str, None] = {}
        """The ids of members to be checked."""
        self.wrong: list[str] = []
        self._told: dict[str, str] = {}
        """The last written state of each member."""

    def compare(self, evidence: Evidence, at_s: float, view: View) -> None:
        while self.changes and self.changes[0]["at_s"] <= at_s - AT_ONCE_S:
            row = self.changes.popleft()
            self._told[row["subject"]] = row["to_state"]
            self.doubtful[row["subject"]] = None
        if not self.doubtful:
            return
        news = {row["subject"] for row in self.changes if row["at_s"] <= at_s + AT_ONCE_S}
        doubtful, self.doubtful = self.doubtful, {}
        for record in view.table[1:]:
            subject = format_id(record.id)
            if subject in doubtful and self._told.get(subject) != record.state:
                self.doubtful[subject] = None
                if subject not in news:
                    self.wrong.append(
                        f"{self.life.name} holds {evidence.name_of(record.id)} {record.state} at "
                        f"{at_s:.1f} s, but its log says {self._told.get(subject, 'nothing of it')}"
                    )


CHECKS: Final[Sequence[Check]] = (
    Check(
        "X6",
        "logs_are_whole",
        "end",
        "No row is missing from a log whose disk worked, and each view of a broker agrees with its log.",
        LogsAreWhole,
        default=True,
        occasional=True,
    ),
    Check(
        "X7",
        "answers_are_traced",
        "end",
        "Each heartbeat answer that arrived belongs to a question that its sender had heard.",
        AnswersAreTraced,
        default=True,
        occasional=True,
    ),
)
