"""Brokers that are cut off, down or silent, and their return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import Evidence, Life
from simulations.invariants.bounds import (
    detection_s,
)
from simulations.invariants.check import Check, at_end
from simulations.invariants.circumstances import Circumstances, raised
from simulations.invariants.subjects import WHOM, named, within
from simulations.invariants.verdict import Verdict, verdict


@at_end
def isolated(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """A broker that the network cut off finds that out and declares nobody dead."""
    within_s = within_s or detection_s(evidence)
    names = named(evidence, whom)
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in names:
        for each in circumstances.impairments:
            if name not in (*each.a, *each.b) or each.until_s < each.from_s + within_s:
                continue
            looked += 1
            views = [
                sample.views[name].state
                # Looks are a second apart.
                for sample in evidence.samples_between(each.from_s, each.from_s + within_s + 1.0)
                if name in sample.views
            ]
            if "isolated" not in views:
                wrong.append(
                    f"{name} was cut off at {each.from_s:.3f} s and {within_s:g} s later it was still "
                    f"{views[-1] if views else 'not up'}"
                )
            wrong += [
                f"{name} called {row['subject_name']} dead at {row['at_s']:.3f} s, while it was cut off "
                "itself"
                for row in evidence.deaths
                if evidence.writer(row) == name and raised(row) and each.from_s <= row["at_s"] <= each.until_s
            ]
    return verdict("isolated", looked, "broker(s) cut off", wrong)


@at_end
def back_within(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 10.0) -> Verdict:
    """From the end of each broker's fault, in its own view and in those of all that were up all the time."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    slowest = 0.0
    for name, end_s in _returns(evidence, circumstances, named(evidence, whom)):
        life = evidence.up(name, end_s, end_s + within_s)
        if life is None or circumstances.away(name, end_s + 1e-6, end_s + within_s):
            continue  # another fault struck it
        for observer in circumstances.up_through(end_s, end_s + within_s):
            if observer.name == name:
                continue
            for one, other in ((observer, life), (life, observer)):
                looked += 1
                since_s = _alive_since(circumstances, one, other, end_s, end_s + within_s)
                if since_s is None:
                    held = circumstances.belief(one, other.id or 0, end_s + within_s)
                    wrong.append(
                        f"{one.name} holds {other.name} {held.state if held else 'for unknown'} "
                        f"{within_s:g} s after {name} could return at {end_s:.3f} s"
                    )
                else:
                    slowest = max(slowest, since_s - end_s)
    detail = f"the last after {slowest:.2f} s" if looked else ""
    return verdict("back_within", looked, "return(s) seen by another", wrong, detail=detail)


def _returns(
    evidence: Evidence, circumstances: Circumstances, names: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Brokers that could return, and since when: started, woken or joined again."""
    for name in names:
        ends = [each.until_s for each in circumstances.outages if each.broker == name]
        host = evidence.host_of(name)
        ends += [each.until_s for each in circumstances.impairments if host in (*each.a, *each.b)]
        ends += [
            following.started_s
            for life, following in zip(evidence.brokers[name], evidence.brokers[name][1:], strict=False)
            if life.how == "left"
        ]
        for end_s in sorted(dict.fromkeys(ends)):
            if end_s <= evidence.end_s:
                yield name, end_s


def _alive_since(
    circumstances: Circumstances, observer: Life, subject: Life, from_s: float, until_s: float
) -> float | None:
    """Since when it has been seen alive, in its present run, at the end of that time."""
    since_s: float | None = None
    for belief in circumstances.beliefs(observer, subject.id or 0):
        if belief.at_s > until_s:
            break
        good = belief.state == "alive" and (subject.boot is None or int(belief.boot, 16) == subject.boot)
        since_s = (max(from_s, belief.at_s) if since_s is None else since_s) if good else None
    return since_s


CHECKS: Final[Sequence[Check]] = (
    Check(
        "S10",
        "isolated",
        "always",
        "A broker that is cut off knows itself isolated in time, and declares nobody dead.",
        isolated,
        (WHOM, within("seconds from the cut; 0 is four periods and a deadline")),
    ),
    Check(
        "S11",
        "back_within",
        "eventually",
        "Once they can, they are seen alive by all again in time, and see all alive.",
        back_within,
        (WHOM, within("seconds from the start, the waking or the end of the cut", 10.0)),
    ),
)
