"""What must hold of the programs and of the simulator itself: X1 to X5 of the study, and their logs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from mesh.identity import format_id
from mesh.membership import State
from simulations.evidence import FLUSH_S, Evidence, Life, Row, Sample, View
from simulations.faults.ongoing import Span
from simulations.invariants.bounds import admission_s
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import DISKS, LIES, STRANGERS, Circumstances
from simulations.invariants.verdict import Verdict, verdict

BEFORE_S: Final = 10.0
AFTER_S: Final = 2.0
"""So long after such bytes their effect would show."""
CLOCKS_S: Final = 0.05
"""So far apart the clocks of two logs may be read."""
AT_ONCE_S: Final = 0.001
"""A look and a row that are no further apart may be in either order."""
LOOKS_S: Final = 1.0
"""From one look at the brokers to the next."""
RESOURCES: Final = ("sockets", "tasks", "timers")


def sound(evidence: Evidence) -> Verdict:
    wrong = [*evidence.failures, *evidence.escapes]
    return verdict("sound", len(evidence.lives), "li(fe|ves) of processes", wrong)


def no_leaks(evidence: Evidence, slack: float = 4) -> Verdict:
    """In proportion to the members, against the last look before the safety phase."""
    safety_s = evidence.phases.get("safety_s", 0.0)
    before = _resources([sample for sample in evidence.samples if sample.at_s <= safety_s])
    after = _resources(evidence.rest)
    wrong: list[str] = []
    looked = 0
    for name, view in after.items():
        usual = before.get(name)
        if usual is None:
            continue
        looked += 1
        growth = max(1.0, len(view.in_view) / max(1, len(usual.in_view)))
        for what in RESOURCES:
            most = math.ceil(usual.sizes.get(what, 0) * growth) + slack
            if view.sizes.get(what, 0) > most:
                wrong.append(
                    f"{name} has {view.sizes[what]} {what} at rest, and had {usual.sizes.get(what, 0)} "
                    "before anything "
                    "was done"
                )
    return verdict("no_leaks", looked, "broker(s) before and after", wrong)


def _resources(samples: Sequence[Sample]) -> dict[str, View]:
    """Of each broker the last deep look."""
    found: dict[str, View] = {}
    for sample in samples:
        found |= {name: view for name, view in sample.views.items() if "tasks" in view.sizes}
    return found


def repeatable(evidence: Evidence) -> Verdict:
    """Looks at the hashes of the run and of its repetitions."""
    hashes = evidence.hashes
    wrong = [
        f"{where} has history {digest}, and {hashes[0][0]} has {hashes[0][1]}"
        for where, digest in hashes[1:]
        if digest != hashes[0][1]
    ]
    return verdict("repeatable", max(0, len(hashes) - 1), "repetition(s)", wrong)


def bytes_conserved(evidence: Evidence) -> Verdict:
    """What was not lost with a broken connection and is not on its way has arrived, and nothing else has."""
    wrong: list[str] = []
    for stream in evidence.streams:
        if stream.received > stream.sent:
            wrong.append(
                f"on connection {stream.name} {stream.received} bytes came of {stream.sent} that were sent"
            )
        elif stream.received < stream.sent and not stream.waiting and not stream.cut_short:
            wrong.append(
                f"on connection {stream.name} {stream.sent - stream.received} of {stream.sent} bytes "
                "vanished, though "
                "it did not break"
            )
    detail = f"{sum(stream.sent for stream in evidence.streams)} bytes"
    return verdict(
        "bytes_conserved", len(evidence.streams), "direction(s) of a connection", wrong, detail=detail
    )


def answers_are_traced(evidence: Evidence) -> Verdict:
    """To the question in the log of who answered, where that log is whole. A question that comes before READY
    is answered unwritten (`mesh.rounds`). `genuine` traces data.
    """
    asked: dict[tuple[str, str, int], list[float]] = {}
    for row in evidence.rows:
        if row["kind"] == "hb" and row["msg"] == "survey":
            asked.setdefault((row["node"], row["src"], row["hb_seq"]), []).append(row["at_s"])
    gaps, links = _gaps(evidence), _links(evidence)
    wrong: list[str] = []
    looked = 0
    for row in evidence.rows:
        if row["kind"] != "hb" or row["msg"] != "answer":
            continue
        since_s, until_s = row["at_s"] - row["rtt_us"] / 1e6 - CLOCKS_S, row["at_s"] + CLOCKS_S
        ups = links.get((row["src"], row["node"]), ())
        own = links.get((row["node"], row["src"]), ())
        fresh = any(since_s - admission_s(evidence) <= up_s <= until_s for up_s, _ in own)
        if fresh and _may_admit(ups, since_s, until_s, admission_s(evidence)):
            continue
        if any(from_s <= until_s and to_s >= since_s for from_s, to_s in gaps.get(row["src"], ())):
            continue
        looked += 1
        questions = asked.get((row["src"], row["node"], row["hb_seq"]), ())
        if not any(since_s <= at_s <= until_s for at_s in questions):
            peer = evidence.name_of(int(row["src"], 16))
            wrong.append(
                f"{evidence.writer(row)} heard {peer} answer round {row['hb_seq']} at {row['at_s']:.3f} s, "
                f"and {peer} heard no such question"
            )
    return verdict("answers_are_traced", looked, "answer(s)", wrong)


def _links(evidence: Evidence) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By the ids of a broker and its peer: from when to when there was a link, by the first one's log."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
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


def _may_admit(
    ups: Sequence[tuple[float, float]], since_s: float, until_s: float, admission_s: float
) -> bool:
    """There was no link, or one was on its way."""
    if not any(up_s < since_s <= down_s for up_s, down_s in ups):
        return True
    return any(since_s <= up_s <= until_s + admission_s for up_s, _ in ups)


def _gaps(evidence: Evidence) -> dict[str, list[tuple[float, float]]]:
    """By the ids of brokers: from when to when rows of their logs may be missing."""
    found: dict[str, list[tuple[float, float]]] = {}
    for life in evidence.lives:
        if life.id is None:
            continue
        ended_s = evidence.end_s if life.ended_s is None else life.ended_s
        gap = (ended_s - FLUSH_S, ended_s) if life.how != "left" else (math.inf, math.inf)
        if life.log_lost or _disk_was_struck(evidence, life):
            gap = (life.started_s - LOOKS_S, ended_s)  # its first row may be lost, and it was seen later
        found.setdefault(format_id(life.id), []).append(gap)
    return found


def logs_are_whole(evidence: Evidence) -> Verdict:
    """Of brokers whose disks worked: no row that they numbered is missing, and what they were seen to hold of
    others is what they had written last.
    """
    wrong: list[str] = []
    looked = 0
    for life in evidence.lives:
        rows = evidence.by_writer.get((format_id(life.id or 0), format_id(life.boot or 0)), [])
        if not rows or life.log_lost or _disk_was_struck(evidence, life):
            continue
        looked += 1
        numbers = [0, *(row["seq"] for row in rows)]
        wrong += [
            f"the log of {life.name} has no row {before + 1}"
            for before, number in pairwise(numbers)
            if number != before + 1
        ]
        wrong += _untold(evidence, life, rows)
    return verdict("logs_are_whole", looked, "log(s)", wrong)


def _disk_was_struck(evidence: Evidence, life: Life) -> bool:
    """In its time, or from before until then."""
    ended_s = math.inf if life.ended_s is None else life.ended_s
    return any(
        span.fault.kind in DISKS
        and life.host in span.fault.a
        and span.start_s <= ended_s
        and (span.end_s or span.start_s) >= life.started_s
        for span in evidence.faults
    )


def _untold(evidence: Evidence, life: Life, rows: Sequence[Row]) -> Iterator[str]:
    changes = [row for row in rows if row["kind"] == "mem" and row["node"] != row["subject"]]
    ended_s = evidence.end_s if life.ended_s is None else life.ended_s
    until_s = ended_s if life.how == "left" else ended_s - FLUSH_S
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


def foreign_input_is_harmless(evidence: Evidence, counted: float = 1) -> Verdict:
    """After bytes from a stranger: the broker counted them, kept its links, and changed no table. After a lie
    about it: it is alive again in every table.
    """
    wrong: list[str] = []
    looked = 0
    for span in evidence.faults:
        for name in span.fault.a:
            if name in evidence.brokers and span.fault.kind in (*STRANGERS, *LIES):
                judge = _lied_about if span.fault.kind in LIES else _reached_by_strangers
                if not _disturbed(evidence, span):
                    looked += 1
                    wrong += judge(evidence, span, name, int(counted))
    return verdict("foreign_input_is_harmless", looked, "foreign input(s)", wrong)


def _disturbed(evidence: Evidence, span: Span) -> bool:
    """What happens now may be the doing of something else."""
    circumstances = Circumstances(evidence)
    from_s, until_s = span.start_s - BEFORE_S, _after(span)
    for lives in evidence.brokers.values():
        for life in lives:
            if from_s < life.started_s < until_s or from_s < (life.ended_s or 0.0) < until_s:
                return True
    return any(each.overlaps(from_s, until_s) for each in circumstances.outages) or any(
        each.from_s < until_s and each.until_s > from_s for each in circumstances.impairments
    )


def _after(span: Span) -> float:
    return (span.end_s or span.start_s) + AFTER_S


def _reached_by_strangers(evidence: Evidence, span: Span, name: str, counted: int) -> Iterator[str]:
    what = f"{span.fault.kind} at {name} from {span.start_s:.3f} s on"
    if counted and _refused(evidence, name, _after(span)) <= _refused(evidence, name, span.start_s):
        yield f"{what} was not counted"
    for row in evidence.rows:
        if not span.start_s < row["at_s"] <= _after(span) or evidence.writer(row) != name:
            continue
        if row["kind"] == "link" and row["state"] == "down":
            peer = evidence.name_of(int(row["peer"], 16))
            yield f"{what}: the link to {peer} went down ({row['reason']})"
        if row["kind"] == "mem" and row["node"] != row["subject"]:
            yield f"{what}: {row['subject_name']} became {row['to_state']}"


def _lied_about(evidence: Evidence, span: Span, name: str, counted: int) -> Iterator[str]:
    samples = [sample for sample in evidence.samples if sample.at_s >= _after(span) and name in sample.views]
    for sample in samples[:1]:
        for view in sample.views.values():
            held = view.record(sample.views[name].id)
            if held is None or held.state is not State.ALIVE:
                shown = "not at all" if held is None else held.state
                lie = f"{span.fault.kind} about {name} at {span.start_s:.3f} s"
                yield f"{lie}: {view.name} holds it {shown} later"


def _refused(evidence: Evidence, name: str, at_s: float) -> int:
    """What the broker had counted at the last look before that time, or at the first after it."""
    counts = [
        (
            sample.at_s,
            sample.views[name].counters.get("refused", 0)
            + sample.views[name].counters.get("refused_records", 0),
        )
        for sample in evidence.samples
        if name in sample.views
    ]
    before = [count for seen_s, count in counts if seen_s <= at_s]
    return before[-1] if before else 0


CHECKS: Final[Sequence[Check]] = (
    Check(
        "X1",
        "sound",
        "always",
        "No process failed, no task died unseen or was left behind, nothing reached for the real world.",
        sound,
        default=True,
    ),
    Check(
        "X2",
        "no_leaks",
        "eventually",
        "At rest every broker has as many sockets, tasks and timers as before anything was done.",
        no_leaks,
        (Parameter("slack", "whole number", 4, "so many more of each are none"),),
        default=True,
        occasional=True,
    ),
    Check(
        "X3",
        "repeatable",
        "end",
        "Repetitions of the run have the same history, event for event.",
        repeatable,
        elsewhere="who has played it again; `mesh simulate diff --twice` does both",
    ),
    Check(
        "X4",
        "bytes_conserved",
        "end",
        "Bytes that were sent arrived, are on their way, or were lost with a connection that broke.",
        bytes_conserved,
        default=True,
    ),
    Check(
        "X5",
        "foreign_input_is_harmless",
        "always",
        "Malformed or foreign bytes cost only their own connection, are counted, and change no table.",
        foreign_input_is_harmless,
        (Parameter("counted", "whole number", 1, "0: it need not be counted"),),
        default=True,
        occasional=True,
    ),
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
