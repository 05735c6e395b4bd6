"""What must hold of the brokers' own logs: no row is missing, and the logs of two agree.

A log says less than all where its disk was struck, where its broker was killed before its last rows reached
the file, and of questions that were answered before READY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from mesh.broker.identity import format_id
from simulations.evidence import Evidence, Life, Row
from simulations.invariants.bounds import admission_s
from simulations.invariants.check import Check
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.verdict import Verdict, verdict

CLOCKS_S: Final = 0.05
"""So far apart the clocks of two logs may be read."""
AT_ONCE_S: Final = 0.001
"""A look and a row that are no further apart may be in either order."""
LOOKS_S: Final = 1.0
"""From one look at the brokers to the next."""

Times = tuple[float, float]
"""From when to when."""
Pair = tuple[str, str]
"""Of ids: who writes, and of whom."""


def answers_are_traced(evidence: Evidence) -> Verdict:
    """Each to the question in the log of who answered, where that must have it. `genuine` traces data."""
    questions, gaps = _questions(evidence), _gaps(Circumstances(evidence))
    links, admitted_s = _links(evidence), admission_s(evidence)
    wrong: list[str] = []
    looked = 0
    for row in evidence.rows:
        if row["kind"] != "hb" or row["msg"] != "answer":
            continue
        asker, answerer, heard = row["node"], row["src"], _when_heard(row)
        if _may_be_missing(gaps.get(answerer, ()), heard):
            continue
        if _may_be_unwritten(
            links.get((asker, answerer), ()), links.get((answerer, asker), ()), heard, admitted_s
        ):
            continue
        looked += 1
        if not _is_within(questions.get((answerer, asker, row["hb_seq"]), ()), heard):
            peer = evidence.name_of(int(answerer, 16))
            wrong.append(
                f"{evidence.writer(row)} heard {peer} answer round {row['hb_seq']} at {row['at_s']:.3f} s, "
                f"and {peer} heard no such question"
            )
    return verdict("answers_are_traced", looked, "answer(s)", wrong)


def _when_heard(answer: Row) -> Times:
    """The question was, between its way there and the answer's way back."""
    return answer["at_s"] - answer["rtt_us"] / 1e6 - CLOCKS_S, answer["at_s"] + CLOCKS_S


def _is_within(moments_s: Iterable[float], times: Times) -> bool:
    return any(times[0] <= at_s <= times[1] for at_s in moments_s)


def _questions(evidence: Evidence) -> dict[tuple[str, str, int], list[float]]:
    """When they were heard, by the ids of who heard and who asked, and the round."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for row in evidence.rows:
        if row["kind"] == "hb" and row["msg"] == "survey":
            found.setdefault((row["node"], row["src"], row["hb_seq"]), []).append(row["at_s"])
    return found


def _may_be_unwritten(
    asker: Sequence[Times], answerer: Sequence[Times], heard: Times, admitted_s: float
) -> bool:
    """A question that comes before READY is answered unwritten (`mesh.cluster.heartbeat`). So it was if the
    link was new
    to the asker, and there was none yet to the answerer, or one on its way, each by its own log.
    """
    since_s, until_s = heard
    if not _is_within((up_s for up_s, _ in asker), (since_s - admitted_s, until_s)):
        return False
    had_one = any(up_s < since_s <= down_s for up_s, down_s in answerer)
    return not had_one or _is_within((up_s for up_s, _ in answerer), (since_s, until_s + admitted_s))


def _links(evidence: Evidence) -> dict[Pair, list[Times]]:
    """From when to when there was one, by the first one's log."""
    found: dict[Pair, list[Times]] = {}
    for (node, _), rows in evidence.by_writer.items():
        since_s: dict[str, float] = {}
        for row in rows:
            if row["kind"] != "link":
                continue
            if row["peer"] in since_s:
                found.setdefault((node, row["peer"]), []).append((since_s.pop(row["peer"]), row["at_s"]))
            if row["state"] == "up":
                since_s[row["peer"]] = row["at_s"]
        for peer, up_s in since_s.items():
            found.setdefault((node, peer), []).append((up_s, rows[-1]["at_s"]))
    return found


def _may_be_missing(gaps: Iterable[Times], heard: Times) -> bool:
    return any(from_s <= heard[1] and until_s >= heard[0] for from_s, until_s in gaps)


def _gaps(circumstances: Circumstances) -> dict[str, list[Times]]:
    """By the ids of brokers: from when to when rows of their logs may be missing."""
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


def logs_are_whole(evidence: Evidence) -> Verdict:
    """Of brokers whose disks worked: no row that they numbered is missing, and what they were seen to hold of
    others is what they had written last.
    """
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for life in evidence.lives:
        rows = evidence.by_writer.get((format_id(life.id or 0), format_id(life.boot or 0)), [])
        if not rows or life.log_lost or circumstances.disk_was_struck(life):
            continue
        looked += 1
        numbers = [0, *(row["seq"] for row in rows)]
        wrong += [
            f"the log of {life.name} has no row {before + 1}"
            for before, number in pairwise(numbers)
            if number != before + 1
        ]
        wrong += _untold(circumstances, life, rows)
    return verdict("logs_are_whole", looked, "log(s)", wrong)


def _untold(circumstances: Circumstances, life: Life, rows: Sequence[Row]) -> Iterator[str]:
    evidence = circumstances.evidence
    changes = [row for row in rows if row["kind"] == "mem" and row["node"] != row["subject"]]
    until_s = circumstances.written_until_s(life)
    told: dict[str, str] = {}
    written = 0
    for sample in evidence.samples:
        view = sample.views.get(life.name)
        if view is None or view.boot != life.boot or sample.at_s > until_s:
            continue
        while written < len(changes) and changes[written]["at_s"] <= sample.at_s - AT_ONCE_S:
            told[changes[written]["subject"]] = changes[written]["to_state"]
            written += 1
        news = [each["subject"] for each in changes[written:] if each["at_s"] <= sample.at_s + AT_ONCE_S]
        for record in view.table[1:]:
            subject = format_id(record.id)
            if told.get(subject) != record.state and subject not in news:
                yield (
                    f"{life.name} holds {evidence.name_of(record.id)} {record.state} at {sample.at_s:.1f} s, "
                    f"and its log says {told.get(subject, 'nothing of it')}"
                )


CHECKS: Final[Sequence[Check]] = (
    Check(
        "X6",
        "logs_are_whole",
        "end",
        "No row is missing from a log whose disk worked, and what a broker is seen to hold is what it wrote.",
        logs_are_whole,
        default=True,
        occasional=True,
    ),
    Check(
        "X7",
        "answers_are_traced",
        "end",
        "Each heartbeat answer that came is one to a question that its sender had heard.",
        answers_are_traced,
        default=True,
        occasional=True,
    ),
)
