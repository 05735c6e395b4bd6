"""Invariants of the programs and of the simulator itself: X1 to X5 of the study."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life, Row, Sample, View
from simulations.faults.ongoing import Span
from simulations.invariants.bounds import detection_s
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import LIES, STRANGERS, Circumstances, raised
from simulations.invariants.verdict import Verdict, verdict

AFTER_S: Final = 2.0
"""Seconds after such bytes in which their effect would show."""
ACCUSED: Final = ("suspect", "dead")
RESOURCES: Final = ("sockets", "tasks", "timers")


@at_end
def sound(evidence: Evidence) -> Verdict:
    wrong = [*evidence.failures, *evidence.escapes]
    return verdict("sound", len(evidence.lives), "li(fe|ves) of processes", wrong)


class NoLeaks(Judge):
    """Sockets, tasks and timers in proportion to the other members, compared with the last look before the
    safety phase.

    Only some looks at each broker count them, since that takes long.
    """

    def __init__(self, evidence: Evidence, slack: float = 4) -> None:
        super().__init__(evidence)
        self._slack = slack
        self._safety_s = evidence.phases.get("safety_s", 0.0)
        self._before: dict[str, View] = {}
        self._after: dict[str, View] = {}

    def on_look(self, sample: Sample) -> None:
        deep = {name: view for name, view in sample.views.items() if "tasks" in view.sizes}
        if sample.at_s <= self._safety_s:
            self._before |= deep
        if self.evidence.is_rest(sample.at_s):
            self._after |= deep

    def finish(self) -> Verdict:
        wrong: list[str] = []
        both = [name for name in self._after if name in self._before]
        for name in both:
            usual, view = self._before[name], self._after[name]
            growth = max(1.0, (len(view.in_view) - 1) / max(1, len(usual.in_view) - 1))
            for what in RESOURCES:
                most = math.ceil(usual.sizes.get(what, 0) * growth) + self._slack
                if view.sizes.get(what, 0) > most:
                    wrong.append(
                        f"{name} has {view.sizes[what]} {what} at rest, and had {usual.sizes.get(what, 0)} "
                        "before anything was done"
                    )
        return verdict("no_leaks", len(both), "broker(s) before and after", wrong)


@at_end
def repeatable(evidence: Evidence) -> Verdict:
    """Compares the hashes of the run and of its repetitions."""
    hashes = evidence.hashes
    wrong = [
        f"{where} has history {digest}, and {hashes[0][0]} has {hashes[0][1]}"
        for where, digest in hashes[1:]
        if digest != hashes[0][1]
    ]
    return verdict("repeatable", max(0, len(hashes) - 1), "repetition(s)", wrong)


@at_end
def bytes_conserved(evidence: Evidence) -> Verdict:
    """All bytes that were neither lost with a broken connection nor are on their way have arrived, and
    nothing else.
    """
    wrong: list[str] = []
    for stream in evidence.streams:
        if stream.received > stream.sent:
            wrong.append(
                f"on connection {stream.name} {stream.received} bytes arrived, but {stream.sent} were sent"
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


@at_end
def foreign_input_is_harmless(evidence: Evidence, counted: float = 1) -> Verdict:
    """After bytes from a stranger, the broker counted them, kept its links, and changed no table. After a lie
    about it, it is alive again in every table.

    A change with another cause does not count: shortly before, a fault struck the broker, the member of that
    link or record, or that member's accuser.
    """
    causes = _Causes(Circumstances(evidence))
    wrong: list[str] = []
    looked = 0
    for span in evidence.faults:
        if span.fault.kind not in (*STRANGERS, *LIES):
            continue
        for name in span.fault.a:
            if not causes.lives_through(name, span.start_s, _after(span)):
                continue
            looked += 1
            if span.fault.kind in LIES:
                wrong += _lied_about(evidence, causes, span, name)
            else:
                wrong += _reached_by_strangers(evidence, causes, span, name, int(counted))
    return verdict("foreign_input_is_harmless", looked, "foreign input(s)", wrong)


class _Causes:
    """Other possible causes for lost links, or for changes in others' views."""

    def __init__(self, circumstances: Circumstances) -> None:
        self._circumstances = circumstances
        self._evidence = circumstances.evidence
        self._lies = [span for span in self._evidence.faults if span.fault.kind in LIES]

    def lives_through(self, name: str, from_s: float, until_s: float) -> bool:
        """True for a broker that was up all that time, and was not asked to end."""
        life = self._evidence.up(name, from_s, until_s)
        return life is not None and self._circumstances.asked_to_end_s(life) > until_s

    def may_miss_a_stranger(self, name: str, from_s: float, until_s: float) -> bool:
        """True if it heard nobody for a while, or not in time."""
        circumstances, host = self._circumstances, self._evidence.host_of(name)
        return (
            circumstances.away(name, from_s, until_s)
            or circumstances.struck(name, from_s, until_s, but=LIES)
            or any(
                each.from_s <= until_s and 2 * each.until_s - each.from_s >= from_s and each.touches(host)
                for each in circumstances.impairments
            )
        )

    def met(self, name: str, at_s: float, *, but: Span | None = None) -> bool:
        """True if a change at that time may be an effect of a recent event at the broker; ``but``: this lie
        does not count.
        """
        circumstances, evidence = self._circumstances, self._evidence
        from_s = self._since_s(at_s)
        return (
            self.may_miss_a_stranger(name, from_s, at_s)
            or any(
                from_s < moment_s <= at_s
                for life in evidence.brokers.get(name, ())
                for moment_s in (life.started_s, life.ended_s or 0.0, circumstances.asked_to_end_s(life))
            )
            or any(self._tells(span, name, from_s, at_s) for span in self._lies if span is not but)
            or any(holder != name for id in self._ids(name) for holder in evidence.holders(id, from_s, at_s))
        )

    def _since_s(self, at_s: float) -> float:
        """A death is noticed in the time from then on."""
        return at_s - detection_s(self._evidence) - self._evidence.period_s

    def of(self, row: Row) -> bool:
        """True if a change of a link or of a record in a log has a cause."""
        evidence, at_s = self._evidence, row["at_s"]
        about = row["peer"] if row["kind"] == "link" else row["subject"]
        if self.met(evidence.name_of(int(about, 16)), at_s) or self.met(evidence.writer(row), at_s):
            return True
        if row["kind"] != "mem":
            return False
        if self._meets(row):
            return True
        if row["to_state"] in ACCUSED:
            return self._missed_a_round(row) if raised(row) else self._of_accusation(row)
        accused = self._accused(row)
        return accused is not None and self.of(accused)

    def _meets(self, row: Row) -> bool:
        """True if the writer learns of a broker that runs. They may have started long before: a broker that
        has a link dials the addresses of its last run as rarely as dead members."""
        subject = (row["subject"], row["subject_boot"])
        return row["from_state"] == "unknown" and subject in self._evidence.by_writer

    def _missed_a_round(self, row: Row) -> bool:
        """True for a suspicion over a link that loses packets, if too few to end it."""
        evidence, at_s = self._evidence, row["at_s"]
        between = evidence.writer(row), evidence.name_of(int(row["subject"], 16))
        return row["to_state"] == "suspect" and self._circumstances.may_miss_a_round(
            *between, self._since_s(at_s), at_s
        )

    def _of_accusation(self, row: Row) -> bool:
        """True if a reported accusation has the cause of the one that was raised first."""
        if (first := self._raised.get(_record(row))) is not None and first["at_s"] <= row["at_s"]:
            return self.of(first)
        at_s = row["at_s"]
        return any(self.met(name, at_s) for name in self._circumstances.mute(self._since_s(at_s), at_s))

    def _accused(self, row: Row) -> Row | None:
        """The accusation that the writer now takes back."""
        for before in reversed(self._evidence.by_writer[row["node"], row["boot"]]):
            if before["seq"] < row["seq"] and before["kind"] == "mem" and before["subject"] == row["subject"]:
                return before if before["to_state"] in ACCUSED else None
        return None

    @cached_property
    def _raised(self) -> dict[tuple[str, str, int, str], Row]:
        """The first accusation of each kind."""
        found: dict[tuple[str, str, int, str], Row] = {}
        for row in self._evidence.member_rows:
            if row["to_state"] in ACCUSED and raised(row):
                found.setdefault(_record(row), row)
        return found

    def _tells(self, span: Span, name: str, from_s: float, at_s: float) -> bool:
        """True if the lie tells this: old news, told again to one broker, spreads; any other lie is about
        those whom it names.
        """
        if span.fault.kind == "replayed_news":
            return from_s - span.fault.amount < span.start_s <= at_s
        return name in span.fault.a and from_s < span.start_s <= at_s

    def _ids(self, name: str) -> list[int | None]:
        return [life.id for life in self._evidence.brokers.get(name, ())]


def _record(row: Row) -> tuple[str, str, int, str]:
    """The record that spreads."""
    return row["subject"], row["subject_boot"], row["subject_inc"], row["to_state"]


def _after(span: Span) -> float:
    return (span.end_s or span.start_s) + AFTER_S


def _reached_by_strangers(
    evidence: Evidence, causes: _Causes, span: Span, name: str, counted: int
) -> Iterator[str]:
    what = f"{span.fault.kind} at {name} from {span.start_s:.3f} s on"
    life = evidence.up(name, span.start_s, _after(span))
    if (
        counted
        and life is not None
        and _seen(evidence, life, span.start_s)
        and not causes.may_miss_a_stranger(name, span.start_s, _after(span))
    ):
        before, after = (_refused(evidence, name, life.number, at_s) for at_s in (span.start_s, _after(span)))
        if after <= before:
            yield f"{what} was not counted"
    for row in evidence.changes:
        if not span.start_s < row["at_s"] <= _after(span) or evidence.writer(row) != name:
            continue
        if row["kind"] == "link" and row["state"] == "down":
            about, said = row["peer"], f"the link to %s went down ({row['reason']})"
        elif row["kind"] == "mem" and row["node"] != row["subject"]:
            about, said = row["subject"], f"%s became {row['to_state']}"
        else:
            continue
        if not causes.of(row):
            yield f"{what}: {said % evidence.name_of(int(about, 16))}"


def _lied_about(evidence: Evidence, causes: _Causes, span: Span, name: str) -> Iterator[str]:
    later = evidence.samples_between(_after(span), math.inf)
    for sample in [sample for sample in later if name in sample.views][:1]:
        for view in sample.views.values():
            id = sample.views[name].id
            held = view.record(id)
            if held is not None and held.state is State.ALIVE:
                continue
            if held is None and not _may_know(sample, view, id):
                continue
            if any(causes.met(each, sample.at_s, but=span) for each in (name, view.name)):
                continue
            shown = "not at all" if held is None else held.state
            lie = f"{span.fault.kind} about {name} at {span.start_s:.3f} s"
            yield f"{lie}: {view.name} holds it {shown} later"


def _may_know(sample: Sample, view: View, id: int) -> bool:
    """True if the broker has a link to the member or to one that knows it.

    A broker that joins by an address at which nobody answers has no link, and heard neither the member nor
    the lie.
    """
    return any(each.id in view.links and each.record(id) is not None for each in sample.views.values())


def _seen(evidence: Evidence, life: Life, at_s: float) -> bool:
    """True if a look saw a broker before that time in this life. If none did, it may not have listened."""
    for sample in reversed(evidence.samples_between(life.started_s, at_s)):
        view = sample.views.get(life.name)
        if view is not None:
            return view.life == life.number
    return False


def _refused(evidence: Evidence, name: str, life: int, at_s: float) -> int:
    """The refusals that the broker had counted at the last look before that time; each life begins at 0."""
    for sample in reversed(evidence.samples_between(0.0, at_s)):
        view = sample.views.get(name)
        if view is not None:
            counters = view.counters if view.life == life else {}
            return counters.get("refused", 0) + counters.get("refused_records", 0)
    return 0


CHECKS: Final[Sequence[Check]] = (
    Check(
        "X1",
        "sound",
        "always",
        "No process failed, no task died unnoticed or was left behind, nothing touched the real world.",
        sound,
        default=True,
    ),
    Check(
        "X2",
        "no_leaks",
        "eventually",
        "At rest every broker has as many sockets, tasks and timers as before the faults.",
        NoLeaks,
        (Parameter("slack", "whole number", 4, "up to so many more of each count as none"),),
        default=True,
        occasional=True,
    ),
    Check(
        "X3",
        "repeatable",
        "end",
        "Repetitions of the run have the same history, event for event.",
        repeatable,
        elsewhere="a program that plays it again; `mesh simulate diff --twice` does both",
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
