"""Deaths: no broker is declared dead without an excuse, or too often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Evidence, Row, Sample
from simulations.invariants.bounds import grace_s
from simulations.invariants.check import Check, Parameter, at_end
from simulations.invariants.circumstances import Circumstances, raised
from simulations.invariants.subjects import BY, WHOM, at_most, named, pairs_watched
from simulations.invariants.verdict import Verdict, verdict


@at_end
def no_false_deaths(evidence: Evidence, observers: str = "all") -> Verdict:
    """``observers``: ``healthy`` considers only deaths declared by brokers that no fault affected either."""
    circumstances = Circumstances(evidence)
    before_s = grace_s(evidence)
    wrong: list[str] = []
    for row in _raised_deaths(evidence):
        writer, at_s = evidence.writer(row), row["at_s"]
        since_s = at_s - before_s
        holders = evidence.holders(int(row["subject"], 16), at_s, at_s)
        if not holders:
            continue  # it is dead in this form: a broker that loses its state comes back as another
        subject = holders[0]
        if any(
            evidence.twin_between(name, int(id, 16), since_s, at_s)
            for name, id in ((writer, row["node"]), (subject, row["subject"]))
        ):
            continue
        excused = (
            circumstances.struck(subject, since_s, at_s)
            or any(
                circumstances.parted(accuser, subject, since_s, at_s)
                or circumstances.unheard(subject, accuser, since_s, at_s)
                for accuser in _accusers(circumstances, row, since_s)
            )
            # It is deaf at that moment. If it was deaf before and judges then, it is to blame.
            or circumstances.away(writer, at_s, at_s + 1e-6)
        )
        if excused and not (raised(row) and _could_be_heard(evidence, circumstances, writer, subject, at_s)):
            continue
        if observers == "healthy" and circumstances.touched(writer, at_s - before_s, at_s):
            continue
        wrong.append(
            f"{writer} called {subject} dead at {at_s:.3f} s ({row['reason']}), though no fault affected it"
        )
    detail = f"{len(evidence.deaths)} of them deaths"
    return verdict(
        "no_false_deaths", len(evidence.member_rows), "change(s) of a member", wrong, detail=detail
    )


def _accusers(circumstances: Circumstances, row: Row, since_s: float) -> list[str]:
    """The possible accusers of that death. If no log has one, it was a broker whose log is lost, or that was
    killed before its last rows were written.
    """
    writer = circumstances.evidence.writer(row)
    return [writer] if raised(row) else [writer, *circumstances.mute(since_s, row["at_s"])]


def _could_be_heard(
    evidence: Evidence, circumstances: Circumstances, writer: str, subject: str, at_s: float
) -> bool:
    """True if the two had a link for as long as a death takes, and no trouble in that time lasted two rounds.

    Earlier faults do not matter.
    """
    since_s = at_s - 3 * evidence.period_s - evidence.deadline_s
    looks = evidence.samples_between(since_s, at_s)
    return (
        len(looks) >= 3
        and all(_are_linked(look, writer, subject) for look in looks)
        and circumstances.longest_trouble_s(writer, subject, since_s, at_s)
        < 2 * circumstances.period_s(writer, since_s, at_s)
    )


def _are_linked(look: Sample, one: str, other: str) -> bool:
    """True if both ends have the link."""
    here, there = look.views.get(one), look.views.get(other)
    return here is not None and there is not None and there.id in here.links and here.id in there.links


def _raised_deaths(evidence: Evidence) -> list[Row]:
    """The deaths by their first accuser; where no log has it any more, by those that learned of them."""
    deaths: dict[tuple[str, int], list[Row]] = {}
    for row in evidence.deaths:
        deaths.setdefault((row["subject"], row["subject_inc"]), []).append(row)
    return [row for rows in deaths.values() for row in ([each for each in rows if raised(each)] or rows)]


def _called_dead(evidence: Evidence, names: Sequence[str], by: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{evidence.writer(row)} called {row['subject_name']} dead at {row['at_s']:.3f} s ({row['reason']})"
        for row in evidence.deaths
        if row["subject_name"] in names and (not by or evidence.writer(row) in by)
    ]


@at_end
def nobody_dead(evidence: Evidence, whom: tuple[str, ...] = (), by: tuple[str, ...] = ()) -> Verdict:
    names = named(evidence, whom)
    wrong = _called_dead(evidence, names, by)
    return verdict("nobody_dead", pairs_watched(evidence, names), "member(s) seen by another", wrong)


@at_end
def deaths_at_most(
    evidence: Evidence, most: float = 1, whom: tuple[str, ...] = (), by: tuple[str, ...] = ()
) -> Verdict:
    """Count the deaths of each member at each observer."""
    names = named(evidence, whom)
    counts: dict[tuple[str, str], int] = {}
    for row in evidence.deaths:
        key = (evidence.writer(row), row["subject_name"])
        if row["subject_name"] in names and (not by or key[0] in by):
            counts[key] = counts.get(key, 0) + 1
    wrong = [
        f"{observer} called {subject} dead {count} times, more than {most:g}"
        for (observer, subject), count in counts.items()
        if count > most
    ]
    worst = max(counts.values(), default=0)
    detail = f"{sum(counts.values())} deaths, at most {worst} of one member at one observer"
    return verdict(
        "deaths_at_most", pairs_watched(evidence, names), "member(s) seen by another", wrong, detail=detail
    )


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M8",
        "no_false_deaths",
        "always",
        "Nobody declares a broker dead unless a fault excuses it.",
        no_false_deaths,
        (
            Parameter(
                "observers",
                "text",
                "all",
                "healthy: only deaths declared by a broker that no fault affected either",
                ("all", "healthy"),
            ),
        ),
        needs=Evidence.had_several,
        default=True,
    ),
    Check("S3", "nobody_dead", "always", "None of them is ever declared dead.", nobody_dead, (WHOM, BY)),
    Check(
        "S4",
        "deaths_at_most",
        "always",
        "No observer declares one of them dead more often than that.",
        deaths_at_most,
        (at_most("deaths of one member at one observer", 1), WHOM, BY),
    ),
)
