"""What the tables of all brokers say together: at rest, after a fault of the network, on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import VIEW_STATES, Evidence, Sample
from simulations.invariants.check import Check, Parameter, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.subjects import at_most, within
from simulations.invariants.verdict import Verdict, verdict


@at_end
def converged(evidence: Evidence) -> Verdict:
    rest = evidence.rest
    wrong: list[str] = []
    if not rest:
        wrong = _never_whole(evidence)
    strict = evidence.scenario.network.loss == 0
    for number, sample in enumerate(rest):
        wrong += differences(evidence, sample, strict=strict or not number)
    brokers = len(rest[-1].views) if rest else 0
    detail = f"each of {brokers} brokers by its table" if brokers else ""
    return verdict("converged", len(rest), "moment(s) of rest", wrong, detail=detail)


def _never_whole(evidence: Evidence) -> list[str]:
    healed_s = evidence.phases.get("healed_s", 0.0)
    until_s = evidence.phases.get("quiet_from_s", healed_s + evidence.scenario.bound_s)
    last = evidence.samples_between(healed_s, until_s)[-1:]
    wrong = [each for sample in last for each in differences(evidence, sample)]
    return wrong or ["the mesh was never whole"]


def differences(evidence: Evidence, sample: Sample, *, strict: bool = True) -> list[str]:
    """What the tables of all brokers that were started say wrongly; unless ``strict`` a suspect counts as
    alive."""
    views = {name: view for name, view in sample.views.items() if view.state != "leaving"}
    wrong = [
        f"{name} is not up at {sample.at_s:.1f} s"
        for name in _expected(evidence, sample)
        if name not in views
    ]
    live = {view.id: name for name, view in views.items()}
    for name, view in views.items():
        seen = [
            id for id, state in view.states.items() if state == "alive" or (not strict and state == "suspect")
        ]
        wrong += [
            f"{name} does not see {other} alive at {sample.at_s:.1f} s"
            for id, other in live.items()
            if id not in seen
        ]
        wrong += [
            f"{name} sees {evidence.name_of(id)} alive at {sample.at_s:.1f} s, which is not"
            for id in seen
            if id not in live
        ]
    return wrong if views else [*wrong, f"no broker is live at {sample.at_s:.1f} s"]


def _expected(evidence: Evidence, sample: Sample) -> Iterator[str]:
    """The scenario's brokers, and those of its spares that were started; a twin need not stay."""
    yield from evidence.scenario.broker_names
    for name in evidence.scenario.spare_names:
        if name in evidence.brokers and evidence.brokers[name][0].started_s < sample.at_s:
            yield name


@at_end
def one_digest(evidence: Evidence) -> Verdict:
    """A change of a moment ago may not have reached everybody, so one difference is none yet."""
    rest = evidence.rest
    wrong: list[str] = []
    before = False
    for number, sample in enumerate(rest):
        digests = {view.digest.hex(): name for name, view in sample.views.items()}
        differ = len(digests) > 1
        if differ and (before or number == len(rest) - 1):
            told = ", ".join(f"{digest} at {name}" for digest, name in digests.items())
            wrong.append(f"at {sample.at_s:.1f} s the digests differ: {told}")
        before = differ
    return verdict("one_digest", len(rest), "moment(s) of rest", wrong)


@at_end
def healed(evidence: Evidence, within_s: float = 0.0) -> Verdict:
    """After each fault of the network, of pairs to which nothing else was done until then."""
    within_s = within_s or evidence.scenario.bound_s
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        end_s = each.until_s + within_s
        names = [
            name
            for name in evidence.brokers
            if evidence.up(name, each.from_s, end_s)
            and not circumstances.touched(name, each.until_s + 1e-6, end_s)
        ]
        later = [sample for sample in evidence.samples if sample.at_s >= end_s]
        if not later:
            continue
        for one in names:
            for other in names:
                if each.parts(evidence.host_of(one), evidence.host_of(other)) and one in later[0].views:
                    looked += 1
                    view, id = later[0].views[one], evidence.brokers[other][-1].id
                    if id not in view.in_view:
                        wrong.append(
                            f"{one} does not see {other} {within_s:g} s after the {each.kind} ended at "
                            f"{each.until_s:.1f} s"
                        )
    return verdict("healed", looked, "pair(s) that w(as|ere) parted and joined again", wrong)


@at_end
def members_within(
    evidence: Evidence, number: float = 0, within_s: float = 15.0, after: str = "", linked: str = "no"
) -> Verdict:
    """Of ``number`` 0: of all that are up then. Counted from the last fault of the kind ``after``, or from
    the start of the first broker. ``linked``: they have links to all of them, too."""
    began = [span.start_s for span in evidence.faults if span.fault.kind == after]
    if after and not began:
        return verdict("members_within", 0, f"fault of kind {after}", [])
    from_s = began[-1] if began else min((life.started_s for life in evidence.lives), default=0.0)
    samples = evidence.samples_between(from_s, from_s + within_s + 1.0)
    for sample in samples:
        wanted = int(number) or len(sample.views)
        seen = len(sample.views) >= wanted and all(
            len(view.in_view) == wanted for view in sample.views.values()
        )
        if seen and (linked == "no" or not any(_unlinked(sample))):
            detail = f"all saw {wanted} members after {sample.at_s - from_s:.1f} s"
            return verdict("members_within", len(sample.views), "table(s)", [], detail=detail)
    last = samples[-1].views if samples else {}
    wrong = [
        f"{name} sees {len(view.in_view)} members {within_s:g} s after {from_s:.1f} s, not "
        f"{int(number) or len(last)}"
        for name, view in last.items()
        if len(view.in_view) != (int(number) or len(last))
    ]
    wrong += [f"{len(last)} brokers are up, not {number:g}"] if number and len(last) < number else []
    if linked == "yes" and samples:
        wrong += [f"{name} has links to {count} of {len(last) - 1}" for name, count in _unlinked(samples[-1])]
    return verdict("members_within", len(last), "table(s)", wrong or ["the tables never agreed"])


def _unlinked(sample: Sample) -> Iterator[tuple[str, int]]:
    """Who lacks a link to anybody that is up, and how many it has."""
    for view in sample.views.values():
        if len(view.links) < len(sample.views) - 1:
            yield view.name, len(view.links)


@at_end
def view_sizes_at_most(evidence: Evidence, most: float = 10) -> Verdict:
    """How many different numbers of members were seen, in the safety phase."""
    since_s, until_s = evidence.phase("safety")
    counts: dict[tuple[str, str], int] = {}
    after: dict[tuple[tuple[str, str], float], int] = {}
    for row in evidence.member_rows:
        key = (row["node"], row["boot"])
        came, went = row["to_state"] in VIEW_STATES, row["from_state"] in VIEW_STATES
        counts[key] = counts.get(key, 1) + came - went
        # Changes of one instant are one step.
        after[key, row["at_s"]] = counts[key]
    sizes = {size: None for (_, at_s), size in after.items() if since_s <= at_s <= until_s}
    for sample in evidence.samples_between(since_s, until_s):
        for view in sample.views.values():
            sizes[len(view.in_view)] = None
    wrong = [f"{len(sizes)} numbers of members were seen, more than {most:g}"] if len(sizes) > most else []
    detail = ", ".join(map(str, sorted(sizes)))
    return verdict("view_sizes_at_most", len(sizes), "number(s) of members seen", wrong, detail=detail)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M1",
        "converged",
        "eventually",
        "Within the bound after the heal every broker that was started is up and sees exactly the live "
        "ones, and so it stays.",
        converged,
        default=True,
    ),
    Check(
        "M2",
        "one_digest",
        "eventually",
        "After that all brokers' digests of their tables are equal.",
        one_digest,
        needs=Evidence.was_whole,
        default=True,
    ),
    Check(
        "M15",
        "healed",
        "eventually",
        "Whom the network parted and joined again see each other within the bound.",
        healed,
        (within("seconds from the end of the fault; 0 is the scenario's bound"),),
    ),
    Check(
        "S13",
        "members_within",
        "eventually",
        "All brokers see as many members in time.",
        members_within,
        (
            Parameter("number", "whole number", 0, "of members; 0 is all that are up"),
            within("seconds", 15.0),
            Parameter(
                "after",
                "text",
                "",
                "the kind of fault whose last one they are counted from; nothing is the start",
            ),
            Parameter("linked", "text", "no", "whether all must have links to all, too", ("no", "yes")),
        ),
    ),
    Check(
        "S14",
        "view_sizes_at_most",
        "always",
        "Few different numbers of members are seen on the way.",
        view_sizes_at_most,
        (at_most("numbers", 10),),
    ),
)
