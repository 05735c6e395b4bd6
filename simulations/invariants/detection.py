"""Who is gone is noticed: who had to notice it, and how soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import VIEW_STATES, Evidence, Life
from simulations.invariants.bounds import (
    detection_s,
)
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import Circumstances, Outage, quantile
from simulations.invariants.subjects import WHOM, within
from simulations.invariants.verdict import Verdict, verdict


def detected(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    within_s: float = 0.0,
    p50_s: float = 0.0,
    p99_s: float = 0.0,
    mean_s: float = 0.0,
) -> Verdict:
    """Looks at outages that lasted that long, and at brokers that were well all that time.

    With ``by`` it is about being cut off: from the beginning of whatever parted them.
    """
    within_s = within_s or detection_s(evidence)
    circumstances = Circumstances(evidence)
    took_s: list[float] = []
    wrong: list[str] = []
    for name, from_s, observers in _losses(evidence, circumstances, whom, by, within_s):
        for observer in observers:
            for id in dict.fromkeys(life.id for life in evidence.brokers[name] if life.started_s <= from_s):
                held = circumstances.belief(observer, id or 0, from_s)
                if held is None or held.state not in VIEW_STATES:
                    continue  # it had not heard of it, or thought it gone already
                noticed = [
                    each.at_s
                    for each in circumstances.beliefs(observer, id or 0)
                    if each.state == "dead" and each.at_s >= from_s
                ]
                if noticed and noticed[0] <= from_s + within_s:
                    took_s.append(noticed[0] - from_s)
                else:
                    when = f"only after {noticed[0] - from_s:.2f} s" if noticed else "at all"
                    wrong.append(
                        f"{observer.name} did not call {name} dead within {within_s:g} s, which was gone "
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


def _losses(
    evidence: Evidence,
    circumstances: Circumstances,
    whom: tuple[str, ...],
    by: tuple[str, ...],
    within_s: float,
) -> Iterator[tuple[str, float, list[Life]]]:
    """Who was lost, when, and who had to notice."""
    if by:
        for each in circumstances.impairments:
            if each.until_s < each.from_s + within_s:
                continue
            for name in whom:
                observers = [
                    life
                    for life in circumstances.up_through(each.from_s, each.from_s + within_s)
                    if life.name in by and each.parts(evidence.host_of(life.name), evidence.host_of(name))
                ]
                if observers:
                    yield name, each.from_s, observers
        return
    for outage in circumstances.outages:
        end_s = outage.from_s + within_s
        if outage.until_s < end_s or (whom and outage.broker not in whom):
            continue
        if not whom and 2 * circumstances.present(outage.from_s, end_s) < len(evidence.brokers):
            continue  # so few are left that they must take themselves for cut off
        yield (
            outage.broker,
            outage.from_s,
            list(_witnesses(evidence, circumstances, outage, within_s, asked=bool(whom))),
        )


def _witnesses(
    evidence: Evidence, circumstances: Circumstances, outage: Outage, within_s: float, *, asked: bool
) -> Iterator[Life]:
    """Who was well, had had a link to the lost one, and could reach a majority of those who were left."""
    from_s, until_s = outage.from_s, outage.from_s + within_s
    present = circumstances.up_through(from_s, until_s)
    for life in present:
        if life.name == outage.broker:
            continue
        clear = [
            other
            for other in present
            if other is life or not circumstances.parted(life.name, other.name, from_s - within_s, until_s)
        ]
        well = not circumstances.struck(life.name, from_s - within_s, until_s)
        if asked or (well and 2 * len(clear) > len(present) and _was_linked(evidence, life, outage)):
            yield life


def _was_linked(evidence: Evidence, life: Life, outage: Outage) -> bool:
    ids = [each.id for each in evidence.brokers[outage.broker]]
    return any(
        id in view.links
        for sample in evidence.samples_between(life.started_s, outage.from_s)
        if (view := sample.views.get(life.name)) is not None
        for id in ids
    )


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M7",
        "detected",
        "eventually",
        "Whoever is gone for long enough is called dead by everyone else in time.",
        detected,
        (
            WHOM,
            Parameter("by", "names", (), "who must notice; then it is about who was cut off from them"),
            within("seconds from the loss to the last death; 0 is four periods and a deadline"),
            Parameter("p50_s", "number", 0.0, "bound of the median; 0 is none"),
            Parameter("p99_s", "number", 0.0, "bound of the 99th percentile; 0 is none"),
            Parameter("mean_s", "number", 0.0, "bound of the mean; 0 is none"),
        ),
        default=True,
        occasional=True,
    ),
)
