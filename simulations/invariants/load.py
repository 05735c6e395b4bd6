"""What it costs to be a member: what is said at rest, what is kept, what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from simulations.evidence import Evidence, Sample, View
from simulations.invariants.bounds import (
    SEEN_MAX,
    STRANGERS_MAX,
)
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.subjects import WHOM, named
from simulations.invariants.verdict import Verdict, verdict


@at_end
def no_storm(evidence: Evidence, most_per_s: float = 0.0, after_s: float = 10.0) -> Verdict:
    """Frames that are no data, by each broker, from ``after_s`` after the heal on. ``most_per_s`` of 0: three
    for each link and period."""
    since_s = evidence.phases.get("held_s", evidence.end_s) + after_s
    rest = evidence.rest
    samples = [sample for sample in rest if sample.at_s >= since_s] or rest
    wrong: list[str] = []
    rates: list[float] = []
    for before, sample in pairwise(samples):
        for name, view in sample.views.items():
            earlier = before.views.get(name)
            seconds = sample.at_s - before.at_s
            if earlier is None or earlier.boot != view.boot or seconds < evidence.period_s / 2:
                continue
            rate = (_spoken(evidence, view) - _spoken(evidence, earlier)) / seconds
            bound = most_per_s or 3 * max(1, len(view.links)) / evidence.period_s
            # One round more or less may fall into so short a time.
            bound += 2 * len(view.links) / seconds if not most_per_s else 0
            rates.append(rate)
            if rate > bound:
                wrong.append(
                    f"{name} said {rate:.0f} things a second from {before.at_s:.1f} to {sample.at_s:.1f} s, "
                    f"more than {bound:.0f}"
                )
    detail = f"at most {max(rates):.0f} a second" if rates else ""
    return verdict("no_storm", len(rates), "second(s) of a broker at rest", wrong, detail=detail)


def _spoken(evidence: Evidence, view: View) -> int:
    """All that goes over links where nobody publishes or asks; else the heartbeats."""
    workload = evidence.scenario.workload
    quiet = not workload.publishers and not workload.askers
    return view.counters.get("control_out", 0) + (view.counters.get("bus_out", 0) if quiet else 0)


class MemoryBounded(Judge):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        known = dict.fromkeys(life.id for life in evidence.lives if life.id is not None)
        self._bounds = {"members": max(1, len(known)), "strangers": STRANGERS_MAX, "seen": SEEN_MAX}
        self._wrong: list[str] = []
        self._looked = 0

    def on_look(self, sample: Sample) -> None:
        self._looked += len(sample.views)
        self._wrong += [
            f"{view.name} holds {view.sizes[what]} {what} at {sample.at_s:.1f} s, more than {most}"
            for view in sample.views.values()
            for what, most in self._bounds.items()
            if view.sizes.get(what, 0) > most
        ]

    def finish(self) -> Verdict:
        last = self.evidence.last_rest
        wrong = self._wrong + [
            f"{view.name} still holds {view.sizes[what]} {what} after all is well"
            for view in (last.views.values() if last is not None else ())
            for what in ("strangers", "barriers", "questions")
            if view.sizes.get(what, 0)
        ]
        return verdict("memory_bounded", self._looked, "broker(s) at a moment", wrong)


@at_end
def counted(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    counter: str = "refused",
    least: float = 1,
    most: float = -1,
) -> Verdict:
    """How far a counter of each of them rose in one run of its, from the safety phase on."""
    names = named(evidence, whom)
    since_s = evidence.phases.get("safety_s", 0.0)
    wrong: list[str] = []
    looked = 0
    for name in names:
        views = [
            sample.views[name]
            for sample in evidence.samples
            if sample.at_s >= since_s and name in sample.views
        ]
        if not views:
            continue
        looked += 1
        risen = sum(
            max(
                0,
                later.counters.get(counter, 0)
                - (view.counters.get(counter, 0) if view.boot == later.boot else 0),
            )
            for view, later in pairwise(views)
        )
        if risen < least or (0 <= most < risen):
            bounds = f"at least {least:g}" + (f" and at most {most:g}" if most >= 0 else "")
            wrong.append(f"{counter} of {name} rose by {risen}; {bounds} was expected")
    return verdict("counted", looked, "broker(s)", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M20",
        "no_storm",
        "always",
        "At rest no broker says more than its rounds need.",
        no_storm,
        (
            Parameter(
                "most_per_s", "number", 0.0, "frames a second by one broker; 0 is three a link and period"
            ),
            Parameter("after_s", "number", 10.0, "seconds from the heal on that are not looked at"),
        ),
        needs=Evidence.was_whole,
        default=True,
        occasional=True,
    ),
    Check(
        "M21",
        "memory_bounded",
        "always",
        "Tables and windows keep within their bounds, and nothing is left to wait for at rest.",
        MemoryBounded,
        default=True,
    ),
    Check(
        "S17",
        "counted",
        "always",
        "A counter of each of them rises that far.",
        counted,
        (
            WHOM,
            Parameter(
                "counter",
                "text",
                "refused",
                "which",
                (
                    "refused",
                    "refused_records",
                    "refutations",
                    "late_rounds",
                    "silent_rounds",
                    "late_answers",
                    "syncs",
                ),
            ),
            Parameter("least", "whole number", 1, "how far at least"),
            Parameter("most", "whole number", -1, "how far at most; -1 is no bound"),
        ),
    ),
)
