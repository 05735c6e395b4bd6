"""Silence: a broker that hears nothing accuses nobody, knows itself isolated, and ends links that deliver
nothing.

The real faults decide, not the broker's own account of its rounds: a broker that mistakes a silent round for
a good one would not report it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.broker.identity import format_id
from simulations.evidence import Evidence, View
from simulations.invariants.bounds import detection_s
from simulations.invariants.check import Check, at_end
from simulations.invariants.circumstances import CUTS, Circumstances, Impairment, raised
from simulations.invariants.verdict import Verdict, verdict

OTHERS_MIN: Final = 2
"""With only one other broker, nobody can know which of the two is cut off."""
ROUNDS_BEFORE: Final = 2
"""The round in which the silence begins has answers; the check begins after the next one."""


@at_end
def deaf_accuse_nobody(evidence: Evidence) -> Verdict:
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in evidence.brokers:
        for from_s, until_s in _alone(evidence, circumstances, name):
            begin_s = from_s + ROUNDS_BEFORE * evidence.period_s + evidence.deadline_s
            boot = _boot_with_others(evidence, name, from_s, begin_s)
            if until_s <= begin_s or boot is None:
                continue
            looked += 1
            wrong += [
                f"{name} called {row['subject_name']} {row['to_state']} at {row['at_s']:.3f} s "
                f"({row['reason']}), and heard nobody from {from_s:.3f} s on"
                for row in evidence.member_rows
                if begin_s <= row["at_s"] <= until_s
                and row["to_state"] in ("suspect", "dead")
                and raised(row)
                and (evidence.writer(row), row["boot"]) == (name, boot)
            ]
    return verdict("deaf_accuse_nobody", looked, "broker(s) that heard nobody", wrong)


@at_end
def deaf_know_it(evidence: Evidence) -> Verdict:
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in evidence.brokers:
        for from_s, until_s in _alone(evidence, circumstances, name):
            look = evidence.look_from(from_s + detection_s(evidence) + evidence.period_s)
            if look is None or look.at_s > until_s or name not in look.views:
                continue
            if _boot_with_others(evidence, name, from_s, look.at_s) is None:
                continue
            if not circumstances.is_well(name, from_s - evidence.period_s, look.at_s):
                continue
            looked += 1
            state = look.views[name].state
            if state != "isolated":
                wrong.append(
                    f"{name} is {state} at {look.at_s:.1f} s and heard nobody from {from_s:.3f} s on"
                )
    return verdict("deaf_know_it", looked, "broker(s) that heard nobody", wrong)


def _alone(evidence: Evidence, circumstances: Circumstances, name: str) -> Iterator[tuple[float, float]]:
    """When nothing could come to it from any other broker, until a host comes that the cut does not
    affect.
    """
    for outage in circumstances.outages:
        if outage.broker == name and outage.how == "block_io":
            yield outage.from_s, outage.until_s
    host = evidence.host_of(name)
    others = [evidence.host_of(each) for each in evidence.brokers if each != name]
    for impairment in _cuts(circumstances):
        if all(impairment.parts(host, other) for other in others):
            later_s = [came_s for came_s in circumstances.came_s.values() if came_s > impairment.from_s]
            yield impairment.from_s, min([impairment.until_s, *later_s])


def _cuts(circumstances: Circumstances) -> list[Impairment]:
    return [each for each in circumstances.impairments if each.kind in CUTS]


def _boot_with_others(evidence: Evidence, name: str, from_s: float, until_s: float) -> str | None:
    """The broker's boot, if it had links to enough others before, and counted so many of these as living
    until then.

    Other members that it holds alive may be gone for long: it never heard them itself.
    """
    before = _last_look(evidence, name, from_s)
    if before is None:
        return None
    heard = frozenset(before.links)
    views = [before]
    views += [
        sample.views[name] for sample in evidence.samples_between(from_s, until_s) if name in sample.views
    ]
    enough = all(len(heard & set(view.in_view)) >= OTHERS_MIN and view.boot == before.boot for view in views)
    return format_id(before.boot) if enough else None


def _last_look(evidence: Evidence, name: str, at_s: float) -> View | None:
    """The last look at that broker by that time, if it was up at the last of all looks."""
    look = evidence.look_until(at_s)
    return None if look is None else look.views.get(name)


@at_end
def dead_links_end(evidence: Evidence) -> Verdict:
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for cut in _cuts(circumstances):
        gone_s = cut.from_s + detection_s(evidence) + evidence.period_s
        later = evidence.look_from(gone_s)
        if later is None or later.at_s > cut.until_s:
            continue
        for view in later.views.values():
            before = _last_look(evidence, view.name, cut.from_s)
            since_s = cut.from_s - evidence.period_s
            if before is None or before.boot != view.boot:
                continue
            if not circumstances.is_well(view.name, since_s, later.at_s):
                continue
            parted = [id for id in before.links if _is_parted(circumstances, cut, view.name, id, later.at_s)]
            looked += len(parted)
            wrong += [
                f"{view.name} still has its link to {evidence.name_of(id)} at {later.at_s:.1f} s, over which "
                f"nothing has passed since {cut.from_s:.3f} s"
                for id in parted
                if id in view.links
            ]
    return verdict("dead_links_end", looked, "link(s) on which nothing passed", wrong)


def _is_parted(circumstances: Circumstances, cut: Impairment, name: str, other: int, until_s: float) -> bool:
    """If two brokers had that id during the cut, the link may be to either."""
    evidence = circumstances.evidence
    holders = set(evidence.holders(other, cut.from_s, until_s))
    if len(holders) > 1:
        return False
    holder = holders.pop() if holders else evidence.name_of(other)
    return holder in evidence.brokers and circumstances.comes_between(cut, name, holder)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M24",
        "deaf_accuse_nobody",
        "always",
        "A broker that hears none of at least two others accuses nobody after the second period and a "
        "deadline.",
        deaf_accuse_nobody,
        default=True,
        occasional=True,
    ),
    Check(
        "M26",
        "deaf_know_it",
        "always",
        "A healthy broker that hears none of at least two others knows itself isolated after five periods "
        "and a deadline.",
        deaf_know_it,
        default=True,
        occasional=True,
    ),
    Check(
        "M25",
        "dead_links_end",
        "always",
        "A healthy broker keeps no link on which nothing passed for five periods and a deadline.",
        dead_links_end,
        default=True,
        occasional=True,
    ),
)
