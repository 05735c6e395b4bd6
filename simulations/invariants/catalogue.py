"""Every check by its id and by its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simulations.evidence import Evidence, Reader, read
from simulations.invariants import (
    accusation,
    agreement,
    conservation,
    deaths,
    delivery,
    detection,
    durability,
    identity,
    interest,
    isolation,
    leaving,
    links,
    load,
    logs,
    outboxes,
    queueing,
    records,
    refutation,
    silence,
    soundness,
    surveys,
)
from simulations.invariants.check import Check
from simulations.invariants.verdict import Verdict
from simulations.scenario import Expectation

SUBJECTS: Final = (
    *(
        agreement,
        records,
        refutation,
        detection,
        deaths,
        accusation,
        leaving,
        identity,
        isolation,
        links,
        load,
        silence,
    ),
    *(delivery, conservation, durability, outboxes, interest, queueing, surveys, soundness, logs),
)
GROUPS: Final = "MDXS"
"""Groups: membership, delivery, soundness, expectations of scenarios."""


def _place(check: Check) -> tuple[int, int]:
    return GROUPS.index(check.id[0]), int(check.id[1:])


ALL: Final[tuple[Check, ...]] = tuple(
    sorted((check for subject in SUBJECTS for check in subject.CHECKS), key=_place)
)
"""Each once, in the order of their ids."""
CHECKS: Final[dict[str, Check]] = {
    key: check for key_of in ("id", "name") for check in ALL for key in [getattr(check, key_of)]
}


def judge(
    evidence: Evidence, expect: Iterable[Expectation] = (), also: Iterable[Reader] = ()
) -> list[Verdict]:
    """The verdicts on the invariants of every run, and on the expectations of this one. ``also`` are further
    readers.

    An expectation replaces the invariant of the same check. An invariant whose subject did not occur is left
    out; an expectation fails then.
    """
    expect = list(expect)
    asked = [CHECKS[each.check] for each in expect]
    always = [check for check in ALL if check.default and check not in asked and check.needs(evidence)]
    judges = [check.judge_of(evidence) for check in always]
    judges += [
        check.judge_of(evidence, **dict(each.parameters)) for check, each in zip(asked, expect, strict=True)
    ]
    read(evidence, [*judges, *also])
    verdicts = [judge.finish() for judge in judges]
    found = [
        verdict
        for check, verdict in zip(always, verdicts, strict=False)
        if not (verdict.empty and check.occasional)
    ]
    return found + verdicts[len(always) :]
