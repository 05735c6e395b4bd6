"""What must hold of the programs and of the simulator itself: X1 to X5 of the study."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from mesh.cluster.membership import State
from simulations.evidence import Evidence, Sample, View
from simulations.faults.ongoing import Span
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import LIES, STRANGERS, Circumstances
from simulations.invariants.verdict import Verdict, verdict

BEFORE_S: Final = 10.0
AFTER_S: Final = 2.0
"""So long after such bytes their effect would show."""
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
)
