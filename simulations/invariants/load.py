"""The cost of membership: frames at rest, kept items, and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Evidence, Sample, View
from simulations.invariants.bounds import (
    SEEN_MAX,
    STRANGERS_MAX,
)
from simulations.invariants.check import Check, Judge, Parameter
from simulations.invariants.subjects import WHOM, named
from simulations.invariants.verdict import Verdict, verdict


class NoStorm(Judge):
    """Frames without data, by each broker, from ``after_s`` after the heal on.

    If the rest is shorter, all of it counts. ``most_per_s`` of 0: three for each link and period.
    """

    def __init__(self, evidence: Evidence, most_per_s: float = 0.0, after_s: float = 10.0) -> None:
        super().__init__(evidence)
        self._most_per_s = most_per_s
        since_s = evidence.phases.get("held_s", evidence.end_s) + after_s
        last = evidence.last_rest
        self._since_s = since_s if last is not None and last.at_s >= since_s else 0.0
        self._before: Sample | None = None
        self._most = 0.0
        self._looked = 0
        self._wrong: list[str] = []

    def on_look(self, sample: Sample) -> None:
        if sample.at_s < self._since_s or not self.evidence.is_rest(sample.at_s):
            return
        before, self._before = self._before, sample
        if before is None or sample.at_s - before.at_s < self.evidence.period_s / 2:
            return
        for name, view in sample.views.items():
            earlier = before.views.get(name)
            if earlier is not None and earlier.boot == view.boot:
                self._compare(before.at_s, earlier, sample.at_s, view)

    def _compare(self, from_s: float, earlier: View, until_s: float, view: View) -> None:
        seconds = until_s - from_s
        rate = (_spoken(self.evidence, view) - _spoken(self.evidence, earlier)) / seconds
        bound = self._most_per_s or 3 * max(1, len(view.links)) / self.evidence.period_s
        # One round more or less may fall into so short a time.
        bound += 2 * len(view.links) / seconds if not self._most_per_s else 0
        self._looked += 1
        self._most = max(rate, self._most)
        if rate > bound:
            self._wrong.append(
                f"{view.name} said {rate:.0f} things a second from {from_s:.1f} to {until_s:.1f} s, "
                f"more than {bound:.0f}"
            )

    def finish(self) -> Verdict:
        detail = f"at most {self._most:.0f} a second" if self._looked else ""
        what = "second(s) of a broker at rest"
        return verdict("no_storm", self._looked, what, self._wrong, detail=detail)


def _spoken(evidence: Evidence, view: View) -> int:
    """All frames on links if nobody publishes or asks; otherwise the heartbeats."""
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
            f"{view.name} still holds {view.sizes[what]} {what} when all is well"
            for view in (last.views.values() if last is not None else ())
            for what in ("strangers", "barriers", "questions")
            if view.sizes.get(what, 0)
        ]
        return verdict("memory_bounded", self._looked, "broker(s) at a moment", wrong)


class Counted(Judge):
    """The increase of a counter of each of them in one run, from the safety phase on."""

    def __init__(
        self,
        evidence: Evidence,
        whom: tuple[str, ...] = (),
        counter: str = "refused",
        least: float = 1,
        most: float = -1,
    ) -> None:
        super().__init__(evidence)
        self._names = named(evidence, whom)
        self._counter, self._least, self._most = counter, least, most
        self._since_s = evidence.phases.get("safety_s", 0.0)
        self._last: dict[str, tuple[int, int]] = {}
        """By broker: in which run of it how much was counted."""
        self._risen: dict[str, int] = {}

    def on_look(self, sample: Sample) -> None:
        for name in self._names if sample.at_s >= self._since_s else ():
            view = sample.views.get(name)
            if view is None:
                continue
            count = view.counters.get(self._counter, 0)
            boot, before = self._last.get(name, (view.boot, count))
            self._last[name] = (view.boot, count)
            risen = count - (before if boot == view.boot else 0)
            self._risen[name] = self._risen.get(name, 0) + max(0, risen)

    def finish(self) -> Verdict:
        bounds = f"at least {self._least:g}" + (f" and at most {self._most:g}" if self._most >= 0 else "")
        wrong = [
            f"{self._counter} of {name} rose by {risen}; {bounds} was expected"
            for name, risen in self._risen.items()
            if risen < self._least or 0 <= self._most < risen
        ]
        return verdict("counted", len(self._risen), "broker(s)", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M20",
        "no_storm",
        "always",
        "At rest no broker sends more than its rounds need.",
        NoStorm,
        (
            Parameter(
                "most_per_s", "number", 0.0, "frames a second by one broker; 0 is three a link and period"
            ),
            Parameter("after_s", "number", 10.0, "seconds after the heal that are ignored"),
        ),
        needs=Evidence.was_whole,
        default=True,
        occasional=True,
    ),
    Check(
        "M21",
        "memory_bounded",
        "always",
        "Tables and windows stay within their bounds, and at rest nothing is left that waits.",
        MemoryBounded,
        default=True,
    ),
    Check(
        "S17",
        "counted",
        "always",
        "A counter of each of them increases by that much.",
        Counted,
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
            Parameter("least", "whole number", 1, "the least increase"),
            Parameter("most", "whole number", -1, "the greatest increase; -1 is no bound"),
        ),
    ),
)
