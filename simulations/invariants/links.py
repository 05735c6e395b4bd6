"""Links between brokers: none too many or too few, back after a fault, given up when dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.cluster.full_mesh import neighbours_of, ought_to_link
from simulations.evidence import Change, Evidence, Row, Sample
from simulations.invariants.bounds import (
    detection_s,
)
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.lasting import Lasting
from simulations.invariants.subjects import WHOM, named, within
from simulations.invariants.verdict import Verdict, verdict


class Degree(Judge):
    """``least`` and ``most`` of 0: as `mesh.cluster.full_mesh` has it."""

    def __init__(self, evidence: Evidence, least: float = 0, most: float = 0) -> None:
        super().__init__(evidence)
        self._least, self._most = least, most
        self._bounds: dict[str, float] = {}
        self._wrong: list[str] = []
        self._looked = 0
        self._odd: list[str] | None = None
        self._up: list[str] = []
        self._lasting: Lasting[str] = Lasting()

    def on_change(self, change: Change) -> None:
        view = change.view
        links = set(view.links)
        known = [record.id for record in view.table[1:] if record.in_view or record.id in links]
        self._bounds[view.name] = self._most or len(neighbours_of(view.id, known))
        self._odd = None

    def on_look(self, sample: Sample) -> None:
        self._looked += len(sample.views)
        self._wrong += [
            f"{name} has {len(view.links)} links at {sample.at_s:.1f} s, more than {self._bounds[name]:g}"
            for name, view in sample.views.items()
            if len(view.links) > self._bounds[name]
        ]
        if self.evidence.is_rest(sample.at_s):
            if self._odd is None or self._up != list(sample.views):
                self._odd, self._up = list(_odd_links(sample, self._least)), list(sample.views)
            self._lasting.look({each: f"{each} at {sample.at_s:.1f} s" for each in self._odd})

    def finish(self) -> Verdict:
        wrong = self._wrong + self._lasting.said()
        return verdict("degree", self._looked, "broker(s) at a moment", wrong)


def _odd_links(sample: Sample, least: float) -> Iterator[str]:
    views = {view.id: view for view in sample.views.values()}
    linked = {id: set(view.links) for id, view in views.items()}
    for view in views.values():
        neighbours = len(neighbours_of(view.id, views))
        wanted = min(least, neighbours) if least else neighbours
        if len(view.links) < wanted:
            yield f"{view.name} has {len(view.links)} links, fewer than {wanted:g}"
        for id in view.links:
            if id in views and view.id not in linked[id]:
                yield f"{view.name} has a link to {views[id].name}, which has none to it"


class Connected(Judge):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._unreached: list[str] | None = None
        self._up: list[str] = []
        self._lasting: Lasting[str] = Lasting()

    def on_change(self, change: Change) -> None:
        self._unreached = None

    def on_look(self, sample: Sample) -> None:
        if not self.evidence.is_rest(sample.at_s):
            return
        if self._unreached is None or self._up != list(sample.views):
            self._unreached, self._up = _unreached(sample), list(sample.views)
        parted = {
            "parted": f"no way of links leads from {next(iter(sample.views), '')} to "
            f"{', '.join(self._unreached)} at {sample.at_s:.1f} s"
        }
        self._lasting.look(parted if self._unreached else {})

    def finish(self) -> Verdict:
        return verdict("connected", self._lasting.moments, "moment(s) of rest", self._lasting.said())


def _unreached(sample: Sample) -> list[str]:
    views = {view.id: view for view in sample.views.values()}
    ways: dict[int, list[int]] = {id: [] for id in views}
    for view in views.values():
        for id in view.links:
            if id in views:
                ways[view.id].append(id)
                ways[id].append(view.id)
    todo = list(views)[:1]
    reached = dict.fromkeys(todo)
    while todo:
        for id in ways[todo.pop()]:
            if id not in reached:
                reached[id] = None
                todo.append(id)
    return [view.name for id, view in views.items() if id not in reached]


@at_end
def links_back_within(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 5.0) -> Verdict:
    """From the end of each network fault that touches them, to a link with every live broker."""
    names = named(evidence, whom)
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        end_s = each.until_s + within_s
        later = evidence.look_from(end_s)
        if later is None:
            continue
        for name in names:
            if not each.touches(evidence.host_of(name)) or name not in later.views:
                continue
            if any(
                other is not each and other.from_s <= end_s <= other.until_s
                for other in circumstances.impairments
            ):
                continue
            looked += 1
            wrong += [
                f"{missing} {within_s:g} s after the {each.kind} ended" for missing in _unlinked(later, name)
            ]
    return verdict("links_back_within", looked, "broker(s) joined again", wrong)


def _unlinked(sample: Sample, name: str) -> Iterator[str]:
    view = sample.views[name]
    for other in sample.views.values():
        if ought_to_link(view.id, other.id) and other.id not in view.links:
            yield f"{name} has no link to {other.name}"


@at_end
def link_given_up(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """Each link between the named brokers that the network impairs for so long is closed at one end at
    least.
    """
    within_s = within_s or detection_s(evidence)
    circumstances = Circumstances(evidence)
    names = named(evidence, whom)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        if each.until_s < each.from_s + within_s:
            continue
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                if each.parts(evidence.host_of(one), evidence.host_of(other)):
                    looked += 1
                    down = [row for row in _link_downs(evidence, one, other) if row["at_s"] >= each.from_s]
                    if not down or down[0]["at_s"] > each.from_s + within_s:
                        wrong.append(
                            f"the link of {one} and {other} was not given up within {within_s:g} s of "
                            f"{each.from_s:.3f} s"
                        )
    return verdict("link_given_up", looked, "link(s) impaired", wrong)


def _link_downs(evidence: Evidence, one: str, other: str) -> list[Row]:
    ids = {life.id: name for name in (one, other) for life in evidence.brokers[name]}
    return [
        row
        for row in evidence.changes
        if row["kind"] == "link"
        and row["state"] == "down"
        and evidence.writer(row) in (one, other)
        and ids.get(int(row["peer"], 16)) not in (None, evidence.writer(row))
    ]


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M16",
        "degree",
        "always",
        "No broker has too many links, at rest none has too few, and links have two ends.",
        Degree,
        (
            Parameter("least", "whole number", 0, "links at rest; 0 is one to every live broker"),
            Parameter("most", "whole number", 0, "links ever; 0 is one to every known broker"),
        ),
        default=True,
    ),
    Check(
        "M17",
        "connected",
        "eventually",
        "At rest the links connect all live brokers.",
        Connected,
        needs=Evidence.was_whole,
        default=True,
    ),
    Check(
        "S15",
        "links_back_within",
        "eventually",
        "Once the network lets them, they have links to all again in time.",
        links_back_within,
        (WHOM, within("seconds from the end of the fault", 5.0)),
    ),
    Check(
        "S16",
        "link_given_up",
        "eventually",
        "A link between them that delivers nothing is closed in time.",
        link_given_up,
        (WHOM, within("seconds from the fault; 0 is four periods and a deadline")),
    ),
)
