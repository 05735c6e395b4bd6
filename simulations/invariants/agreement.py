"""Agreement of the tables of all brokers: at rest, after a fault of the network, and in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.cluster.full_mesh import neighbours_of
from mesh.cluster.membership import State
from simulations.evidence import VIEW_STATES, Change, Evidence, Row, Sample, View
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.lasting import Lasting
from simulations.invariants.subjects import at_most, within
from simulations.invariants.verdict import Verdict, verdict


class Converged(Judge):
    """Judged at each moment of rest. If the mesh never was whole, it reports what was missing at the end."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._tables = Tables()
        self._loses = evidence.scenario.network.loss > 0
        healed_s = evidence.phases.get("healed_s", 0.0)
        self._until_s = evidence.phases.get("quiet_from_s", healed_s + evidence.scenario.bound_s)
        self._healed_s = healed_s
        self._never: list[str] = []
        self._wrong: list[str] = []
        self._looked = 0
        self._brokers = 0

    def on_change(self, change: Change) -> None:
        self._tables.change(change)

    def on_look(self, sample: Sample) -> None:
        evidence = self.evidence
        self._tables.look(sample)
        if evidence.is_rest(sample.at_s):
            # If packets are lost, a suspect counts as alive except at the first moment.
            self._wrong += self._differences(sample, strict=not self._loses or not self._looked)
            self._looked += 1
            self._brokers = len(sample.views)
        elif not self._looked and self._healed_s <= sample.at_s <= self._until_s:
            self._never = self._differences(sample, strict=True)

    def _differences(self, sample: Sample, *, strict: bool) -> list[str]:
        """The errors in the tables of all brokers that were started."""
        at_s, views = sample.at_s, self._tables.views
        wrong = [
            f"{name} is not up at {at_s:.1f} s"
            for name in _expected(self.evidence, sample)
            if name not in views
        ]
        for name in views:
            unseen, gone = self._tables.wrong(name, strict=strict)
            wrong += [f"{name} does not see {other} alive at {at_s:.1f} s" for other in unseen]
            wrong += [
                f"{name} sees {self.evidence.name_of(id)} alive at {at_s:.1f} s, but it is not" for id in gone
            ]
        return wrong if views else [*wrong, f"no broker is live at {at_s:.1f} s"]

    def finish(self) -> Verdict:
        wrong = self._wrong if self._looked else self._never or ["the mesh was never whole"]
        detail = f"each of {self._brokers} brokers by its table" if self._brokers else ""
        return verdict("converged", self._looked, "moment(s) of rest", wrong, detail=detail)


Seen = tuple[list[str], list[int]]
"""Live brokers that are not seen alive, and brokers that are seen alive and are not live."""


class Tables:
    """Tables of brokers that do not leave, each compared with the live brokers when either has changed."""

    def __init__(self) -> None:
        self.views: dict[str, View] = {}
        self._live: dict[int, str] = {}
        self._known: dict[tuple[str, bool], Seen] = {}

    def change(self, change: Change) -> None:
        for strict in (True, False):
            self._known.pop((change.view.name, strict), None)

    def look(self, sample: Sample) -> None:
        self.views = {name: view for name, view in sample.views.items() if view.state != "leaving"}
        live = {view.id: name for name, view in self.views.items()}
        if live != self._live:
            self._live = live
            self._known.clear()

    def wrong(self, name: str, *, strict: bool) -> Seen:
        """Without ``strict`` a suspect counts as alive."""
        found = self._known.get((name, strict))
        if found is None:
            states = (State.ALIVE,) if strict else (State.ALIVE, State.SUSPECT)
            seen = [record.id for record in self.views[name].table if record.state in states]
            held = set(seen)
            found = self._known[name, strict] = (
                [other for id, other in self._live.items() if id not in held],
                [id for id in seen if id not in self._live],
            )
        return found


def _expected(evidence: Evidence, sample: Sample) -> Iterator[str]:
    """The scenario's brokers, and those of its spares that were started; a twin need not stay."""
    yield from evidence.scenario.broker_names
    for name in evidence.scenario.spare_names:
        if name in evidence.brokers and evidence.brokers[name][0].started_s < sample.at_s:
            yield name


class OneDigest(Judge):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._lasting: Lasting[str] = Lasting()

    def on_look(self, sample: Sample) -> None:
        if not self.evidence.is_rest(sample.at_s):
            return
        digests = {view.digest.hex(): name for name, view in sample.views.items()}
        told = ", ".join(f"{digest} at {name}" for digest, name in digests.items())
        differ = {"digests": f"at {sample.at_s:.1f} s the digests differ: {told}"}
        self._lasting.look(differ if len(digests) > 1 else {})

    def finish(self) -> Verdict:
        return verdict("one_digest", self._lasting.moments, "moment(s) of rest", self._lasting.said())


@at_end
def healed(evidence: Evidence, within_s: float = 0.0) -> Verdict:
    """After each fault of the network, judge the pairs that nothing else affected until then."""
    within_s = within_s or evidence.scenario.bound_s
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        end_s = each.until_s + within_s
        present = [
            life
            for name in evidence.brokers
            if (life := evidence.up(name, each.from_s, end_s))
            and not circumstances.touched(name, each.until_s + 1e-6, end_s)
        ]
        later = evidence.look_from(end_s)
        if later is None:
            continue
        for one in present:
            for other in present:
                if each.parts(one.host, other.host) and one.name in later.views:
                    looked += 1
                    if other.id not in later.views[one.name].in_view:
                        wrong.append(
                            f"{one.name} does not see {other.name} {within_s:g} s after the {each.kind} "
                            f"ended at {each.until_s:.1f} s"
                        )
    return verdict("healed", looked, "pair(s) that w(as|ere) parted and joined again", wrong)


@at_end
def members_within(
    evidence: Evidence, number: float = 0, within_s: float = 15.0, after: str = "", linked: str = "no"
) -> Verdict:
    """All brokers see ``number`` members in time; 0 means all that are up then.

    The time counts from the last fault of the kind ``after``, or from the start of the first broker. With
    ``linked`` they have links to all of them, too.
    """
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
    """Brokers that lack a link to one that is up, and how many links they have."""
    ids = [view.id for view in sample.views.values()]
    for view in sample.views.values():
        if len(view.links) < len(neighbours_of(view.id, ids)):
            yield view.name, len(view.links)


class ViewSizesAtMost(Judge):
    """How many different numbers of members were seen in the safety phase, by the logs and at looks."""

    kinds = ("mem",)

    def __init__(self, evidence: Evidence, most: float = 10) -> None:
        super().__init__(evidence)
        self._most = most
        self._since_s, self._until_s = evidence.phase("safety")
        self._counts: dict[tuple[str, str], int] = {}
        self._after: dict[tuple[str, str], tuple[float, int]] = {}
        """When each view last changed, and its new size: changes of one instant are one step."""
        self._in_view: dict[str, int] = {}
        self._sizes: dict[int, None] = {}

    def on_row(self, row: Row) -> None:
        if row["node"] == row["subject"]:
            return
        writer = (row["node"], row["boot"])
        came, went = row["to_state"] in VIEW_STATES, row["from_state"] in VIEW_STATES
        self._counts[writer] = self._counts.get(writer, 1) + came - went
        before = self._after.get(writer)
        if before is not None and before[0] != row["at_s"]:
            self._step(*before)
        self._after[writer] = (row["at_s"], self._counts[writer])

    def _step(self, at_s: float, size: int) -> None:
        if self._since_s <= at_s <= self._until_s:
            self._sizes[size] = None

    def on_change(self, change: Change) -> None:
        self._in_view[change.view.name] = len(change.view.in_view)

    def on_look(self, sample: Sample) -> None:
        if self._since_s <= sample.at_s <= self._until_s:
            self._sizes |= {self._in_view[name]: None for name in sample.views}

    def finish(self) -> Verdict:
        for step in self._after.values():
            self._step(*step)
        sizes = self._sizes
        wrong = []
        if len(sizes) > self._most:
            wrong = [f"{len(sizes)} numbers of members were seen, more than {self._most:g}"]
        detail = ", ".join(map(str, sorted(sizes)))
        return verdict("view_sizes_at_most", len(sizes), "number(s) of members seen", wrong, detail=detail)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M1",
        "converged",
        "eventually",
        "Within the bound after the heal, every broker that was started is up and sees exactly the live "
        "ones, and this lasts.",
        Converged,
        default=True,
    ),
    Check(
        "M2",
        "one_digest",
        "eventually",
        "After that, the digests of all brokers' tables are equal.",
        OneDigest,
        needs=Evidence.was_whole,
        default=True,
    ),
    Check(
        "M15",
        "healed",
        "eventually",
        "Brokers that the network parted and joined again see each other within the bound.",
        healed,
        (within("seconds from the end of the fault; 0 is the scenario's bound"),),
    ),
    Check(
        "S13",
        "members_within",
        "eventually",
        "All brokers see that many members in time.",
        members_within,
        (
            Parameter("number", "whole number", 0, "of members; 0 is all that are up"),
            within("seconds", 15.0),
            Parameter(
                "after",
                "text",
                "",
                "the kind of fault; time counts from the last one; empty means the start",
            ),
            Parameter("linked", "text", "no", "whether all must have links to all, too", ("no", "yes")),
        ),
    ),
    Check(
        "S14",
        "view_sizes_at_most",
        "always",
        "Only a few different numbers of members are seen in between.",
        ViewSizesAtMost,
        (at_most("numbers", 10),),
    ),
)
