"""Detection of lost brokers: which brokers had to notice, and how soon.

A broker is lost if it is down or silent, or cut off from a majority. A broker that was not healthy itself, or
reached no majority, need not notice anything. A scenario that names the lost broker asks all that were there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import VIEW_STATES, Evidence, Life
from simulations.invariants.bounds import detection_at_rest_s, detection_s
from simulations.invariants.check import Check, Parameter, at_end
from simulations.invariants.circumstances import CUTS, Belief, Circumstances, quantile
from simulations.invariants.passage import LOOK_S
from simulations.invariants.subjects import within
from simulations.invariants.verdict import Verdict, verdict

Loss = tuple[str, int, float, list[Life]]
"""The name of the lost broker, its id, the time, and the lives that had to notice."""


@at_end
def detected(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    within_s: float = 0.0,
    p50_s: float = 0.0,
    p99_s: float = 0.0,
    mean_s: float = 0.0,
) -> Verdict:
    """Considers losses that lasted that long, and brokers that were well all that time.

    With ``by`` it judges brokers that were cut off, from the beginning of the fault that parted them.
    """
    within_s = within_s or (detection_s if whom or by else detection_at_rest_s)(evidence)
    circumstances = Circumstances(evidence)
    took_s: list[float] = []
    wrong: list[str] = []
    for name, id, from_s, observers in _losses(evidence, circumstances, whom, by, within_s):
        for observer in observers:
            held = circumstances.belief(observer, id, from_s)
            if held is None or held.state not in VIEW_STATES:
                continue  # it did not know the broker, or thought it gone already
            noticed = [
                each.at_s
                for each in circumstances.beliefs(observer, id)
                if each.state == "dead" and each.at_s >= from_s
            ]
            late_s = _heard_again_s(circumstances, observer, id, held, from_s, within_s) + within_s
            if noticed and noticed[0] <= late_s:
                took_s.append(noticed[0] - from_s)
            elif not _may_be_unseen(evidence, observer, id, held, late_s):
                when = f"only after {noticed[0] - from_s:.2f} s" if noticed else "at all"
                wrong.append(
                    f"{observer.name} did not call {name} dead within {within_s:g} s; it was gone "
                    f"from {from_s:.3f} s on, {'but ' if noticed else 'nor '}{when}"
                )
    for bound_s, what, found in (
        (p50_s, "median", quantile(took_s, 0.5) if took_s else 0.0),
        (p99_s, "99th percentile", quantile(took_s, 0.99) if took_s else 0.0),
        (mean_s, "mean", sum(took_s) / len(took_s) if took_s else 0.0),
    ):
        if bound_s and found > bound_s:
            wrong.append(
                f"the {what} of {len(took_s)} times to notice is {found:.2f} s, more than {bound_s:g} s"
            )
    detail = (
        f"noticed in {min(took_s):.2f} to {max(took_s):.2f} s, median {quantile(took_s, 0.5):.2f} s, p99 "
        f"{quantile(took_s, 0.99):.2f} s"
        if took_s
        else ""
    )
    return verdict("detected", len(took_s), "death(s) noticed", wrong, detail=detail)


def _heard_again_s(
    circumstances: Circumstances, observer: Life, id: int, held: Belief, from_s: float, within_s: float
) -> float:
    """When the observer last received what the lost broker had sent before: it may take as long from then as
    from the loss.

    An impairment that was there at the loss held that back.
    """
    impaired = any(each.from_s <= from_s <= each.until_s for each in circumstances.impairments)
    heard = (
        each.at_s
        for each in circumstances.beliefs(observer, id)
        if impaired
        and from_s < each.at_s <= from_s + within_s
        and each.state == "alive"
        and each.boot == held.boot
        and each.incarnation > held.incarnation
    )
    return max(heard, default=from_s)


def _may_be_unseen(evidence: Evidence, observer: Life, id: int, held: Belief, late_s: float) -> bool:
    """True if the death may have been declared between two looks.

    If the observer's log is lost, only looks show its view: at the first late look the lost broker was back,
    or the observer was gone.
    """
    if not observer.log_lost:
        return False
    for sample in evidence.samples_between(late_s, math.inf):
        view = sample.views.get(observer.name)
        if view is not None and view.life == observer.number:
            return any(each.id == id and each.incarnation > held.incarnation for each in view.table)
    return True


def _losses(
    evidence: Evidence,
    circumstances: Circumstances,
    whom: tuple[str, ...],
    by: tuple[str, ...],
    within_s: float,
) -> Iterator[Loss]:
    if by:
        yield from _cut_off_from(evidence, circumstances, whom, by, within_s)
    elif whom:
        for name, id, from_s in _gone(evidence, circumstances, within_s):
            if name in whom:
                present = _watching(circumstances, from_s, from_s + within_s)
                yield name, id, from_s, [each for each in present if each.name != name]
    else:
        for name, id, from_s in _gone(evidence, circumstances, within_s):
            if not evidence.twin_between(name, id, from_s, from_s + within_s):
                able = _able(evidence, circumstances, name, id, from_s, within_s)
                yield name, id, from_s, list(_majorities(evidence, circumstances, able, from_s, within_s))
        yield from _cut_off(evidence, circumstances, within_s)


def _gone(
    evidence: Evidence, circumstances: Circumstances, within_s: float
) -> Iterator[tuple[str, int, float]]:
    """Brokers that were lost for so long: name, id, and time.

    A broker that lost its state comes back with another id. The old id stays lost, and is not lost a second
    time with the new one. Without its log, a broker may have been back since the look before it was seen.
    """
    for absence in circumstances.absences:
        id = _id(evidence, absence.broker, absence.from_s)
        if id is None:
            continue
        back_s = min(
            (
                max(absence.until_s, life.started_s) - (LOOK_S if life.log_lost else 0.0)
                for life in evidence.brokers[absence.broker]
                if life.id == id and (life.ended_s is None or life.ended_s >= absence.until_s)
            ),
            default=math.inf,
        )
        if back_s - absence.from_s >= within_s:
            yield absence.broker, id, absence.from_s


def _id(evidence: Evidence, name: str, at_s: float) -> int | None:
    """The id that it had then, or last before."""
    ids = [life.id for life in evidence.brokers[name] if life.started_s <= at_s]
    return ids[-1] if ids else None


def _cut_off_from(
    evidence: Evidence,
    circumstances: Circumstances,
    whom: tuple[str, ...],
    by: tuple[str, ...],
    within_s: float,
) -> Iterator[Loss]:
    """The brokers that some network fault kept from it for so long."""
    for each in circumstances.impairments:
        if each.until_s < each.from_s + within_s:
            continue
        for name in whom:
            observers = [
                life
                for life in _watching(circumstances, each.from_s, each.from_s + within_s)
                if life.name in by and each.parts(evidence.host_of(life.name), evidence.host_of(name))
            ]
            id = _id(evidence, name, each.from_s)
            if observers and id is not None:
                yield name, id, each.from_s, observers


def _cut_off(evidence: Evidence, circumstances: Circumstances, within_s: float) -> Iterator[Loss]:
    """True if it was cut off from a majority, and nobody can tell that majority that it lives."""
    starts = dict.fromkeys(
        each.from_s
        for each in circumstances.impairments
        if each.kind in CUTS and each.until_s - each.from_s >= within_s
    )
    for from_s in starts:
        until_s = from_s + within_s
        for name in evidence.brokers:
            lost = evidence.up(name, from_s, until_s)
            if lost is None or lost.id is None or evidence.twin_between(name, lost.id, from_s, until_s):
                continue
            able = [
                each
                for each in _able(evidence, circumstances, name, lost.id, from_s, within_s)
                if circumstances.cut_throughout(each.name, name, from_s, until_s)
            ]
            found = list(_majorities(evidence, circumstances, able, from_s, within_s))
            reached = _reached(evidence, circumstances, name, from_s, until_s)
            if not any(each.name in reached for each in found):
                yield name, lost.id, from_s, found


def _reached(
    evidence: Evidence, circumstances: Circumstances, name: str, from_s: float, until_s: float
) -> list[str]:
    """The brokers that its messages may reach in that time through others, which need to be up only for a
    moment.
    """
    reached = [name]
    left = [
        other
        for other, lives in evidence.brokers.items()
        if other != name
        and any(
            life.started_s <= until_s and (life.ended_s is None or life.ended_s > from_s) for life in lives
        )
    ]
    for one in reached:
        near = [each for each in left if not circumstances.cut_throughout(one, each, from_s, until_s)]
        reached += near
        left = [each for each in left if each not in near]
    return reached


def _watching(circumstances: Circumstances, from_s: float, until_s: float) -> list[Life]:
    """The brokers that were there and judged all that time. One that leaves no longer judges, though leaving
    may take a second.
    """
    lives = circumstances.up_through(from_s, until_s)
    return [life for life in lives if circumstances.asked_to_end_s(life) >= until_s]


def _able(
    evidence: Evidence, circumstances: Circumstances, gone: str, id: int, from_s: float, within_s: float
) -> list[Life]:
    """Lives that were well up to the loss, and linked to the lost broker by that id some time before it."""
    since_s = from_s - _settled_s(evidence)
    return [
        life
        for life in _watching(circumstances, from_s, from_s + within_s)
        if life.name != gone
        and not evidence.twin_between(life.name, life.id, since_s, from_s + within_s)
        and circumstances.is_well(life.name, since_s, from_s + within_s)
        and _was_linked(evidence, life, id, since_s, from_s)
    ]


def _majorities(
    evidence: Evidence, circumstances: Circumstances, able: list[Life], from_s: float, within_s: float
) -> Iterator[Life]:
    """Those of these brokers that form a majority over healthy links, directly or through others.

    A single broker is no majority: it must consider itself cut off.
    """
    since_s, until_s = from_s - _settled_s(evidence), from_s + within_s
    present = len(circumstances.up_through(from_s, until_s))
    left = list(able)
    while left:
        piece = [left.pop(0)]
        for one in piece:
            near = [
                each
                for each in left
                if not circumstances.parted(one.name, each.name, since_s, until_s)
                and _was_linked(evidence, one, each.id, since_s, from_s)
            ]
            piece += near
            left = [each for each in left if each not in near]
        if len(piece) > 1 and 2 * len(piece) > present:
            yield from piece


def _settled_s(evidence: Evidence) -> float:
    """Seconds without faults before a loss: a broker that voided a round judges again once it has had an
    answer.
    """
    return evidence.period_s + evidence.deadline_s


def _was_linked(evidence: Evidence, life: Life, id: int | None, from_s: float, until_s: float) -> bool:
    """True if the link existed at every look in that time, before its end."""
    looks = [each for each in evidence.samples_between(from_s, until_s) if each.at_s < until_s]
    views = [sample.views.get(life.name) for sample in looks]
    return bool(views) and all(
        view is not None and view.boot == life.boot and id in view.links for view in views
    )


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M7",
        "detected",
        "eventually",
        "A broker that is gone for long enough is declared dead by all others in time.",
        detected,
        (
            Parameter(
                "whom",
                "names",
                (),
                "these lost brokers, judged by all that were up, cut off or not; none named means all",
            ),
            Parameter("by", "names", (), "who must notice; the loss is then being cut off from them"),
            within(
                "seconds from the loss to the last death; 0 is four periods and a deadline, or three periods "
                "and one and a half deadlines if nobody is named"
            ),
            Parameter("p50_s", "number", 0.0, "bound of the median; 0 is none"),
            Parameter("p99_s", "number", 0.0, "bound of the 99th percentile; 0 is none"),
            Parameter("mean_s", "number", 0.0, "bound of the mean; 0 is none"),
        ),
        default=True,
        occasional=True,
    ),
)
