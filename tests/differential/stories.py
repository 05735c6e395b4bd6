"""The brokers' views of each other after a fault, state by state, in a form that makes two runs comparable.

* **The writer does not matter, only its side of the fault**: struck or other. So the stories of all pairs of
  one kind are taken together, and each must be one that some seed told.
* **If chance strikes again and again** (losses), an accusation that is answered is left out, since its time
  is random. One that is not answered stays in the story.
* **Times lie within the range of the simulation's seeds**, widened by the possible lateness of a busy
  machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EARLY_S: Final = 0.5
LATE_S: Final = 1.5
"""Seconds by which a busy machine may be early, if it was late to apply a fault, and late."""

Changes = list[tuple[str, float]]
"""States and when they were entered, in seconds since the fault."""
Pair = tuple[str, str]
"""The writer and the subject."""
Sides = tuple[str, str]
"""Each one's side of the fault: ``struck`` or ``other``."""


def story(rows: Iterable[Mapping[str, Any]], since_s: float, until_s: float) -> dict[Pair, Changes]:
    """The brokers' views of each other from the first time to the second."""
    rows = list(rows)
    names = {row["node"]: row["name"] for row in rows if row["kind"] == "meta"}
    told: dict[Pair, Changes] = {}
    for row in rows:
        if row["kind"] == "mem" and row["node"] != row["subject"] and since_s <= row["at_s"] <= until_s:
            pair = names[row["node"]], row["subject_name"]
            told.setdefault(pair, []).append((row["to_state"], row["at_s"] - since_s))
    return told


def folded(changes: Changes) -> Changes:
    """Without the accusations that were answered."""
    kept: Changes = []
    open_ones: Changes = []
    for state, at_s in changes:
        if state != "alive":
            open_ones.append((state, at_s))
        elif open_ones:
            open_ones = []
        else:
            kept.append((state, at_s))
    return kept + open_ones


@dataclass(slots=True)
class Expected:
    """The stories of a simulation's seeds, by the sides of a pair."""

    struck: tuple[str, ...]
    names: tuple[str, ...]
    silent: tuple[str, ...] = ()
    """Brokers whose view is ignored: they are dead."""
    by_chance: bool = False
    """Accusations that were answered are left out."""
    spans: dict[Sides, dict[tuple[str, ...], list[tuple[float, float]]]] = field(default_factory=dict)
    """For each list of states the earliest and the latest time of each."""

    def add(self, told: Mapping[Pair, Changes]) -> None:
        """One more run of the simulation."""
        for sides, changes in self._folded(told):
            states = tuple(state for state, _ in changes)
            times = [at_s for _, at_s in changes]
            known = self.spans.setdefault(sides, {}).get(states, [(at_s, at_s) for at_s in times])
            self.spans[sides][states] = [
                (min(low_s, at_s), max(high_s, at_s))
                for (low_s, high_s), at_s in zip(known, times, strict=True)
            ]

    def differences(self, told: Mapping[Pair, Changes]) -> list[str]:
        """Sentences on the differences of a run."""
        found: list[str] = []
        for sides, changes in self._folded(told):
            known = self.spans[sides]
            states = tuple(state for state, _ in changes)
            who = f"one of the {sides[0]} of one of the {sides[1]}"
            if states not in known:
                found.append(f"{who} told {changes}, and the simulation {known}")
                continue
            found += [
                f"{who} told {state} after {at_s:.2f} s, the simulation after {low_s:.2f} to {high_s:.2f} s"
                for (state, at_s), (low_s, high_s) in zip(changes, known[states], strict=True)
                if not low_s - EARLY_S <= at_s <= high_s + LATE_S
            ]
        return found

    def states(self, sides: Sides) -> set[tuple[str, ...]]:
        return set(self.spans[sides])

    def _folded(self, told: Mapping[Pair, Changes]) -> Iterable[tuple[Sides, Changes]]:
        """The stories of every pair, including empty ones."""
        for observer in self.names:
            for subject in self.names:
                if observer != subject and observer not in self.silent:
                    changes = told.get((observer, subject), [])
                    if self.by_chance:
                        changes = folded(changes)
                    yield (self._side(observer), self._side(subject)), changes

    def _side(self, name: str) -> str:
        return "struck" if name in self.struck else "other"
