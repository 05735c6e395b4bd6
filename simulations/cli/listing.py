"""Rows for the lists: the scenarios with their status, and the kinds of faults.

A scenario's status comes from its file, and the tests enforce it. It passes, or it is a known failure (the
row says what happens instead), or it waits for a missing feature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simulations.faults import KINDS
from simulations.faults.kind import Kind, Parameter
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file


class Status(StrEnum):
    PASSES = "passes"
    KNOWN_FAILURE = "known failure"
    WAITS = "waits"
    """Only the full size waits; the CI size may well be playable."""


@dataclass(frozen=True, slots=True)
class Row:
    """A shipped scenario."""

    scenario: Scenario
    status: Status
    because: str
    """The known failure, or the reason to wait; empty if it passes."""

    @property
    def sizes(self) -> str:
        """The number of brokers at the CI size and at the full one."""
        small, full = (self.scenario.at_size(size) for size in ("ci", "full"))
        counts = [each.brokers + each.spares for each in (small, full)]
        return " / ".join(map(str, dict.fromkeys(counts)))

    @property
    def expected(self) -> str:
        return "; ".join(map(str, self.scenario.expect))

    def as_json(self) -> dict[str, Any]:
        scenario = self.scenario
        return {
            "scenario": scenario.name,
            "number": scenario.number,
            "summary": scenario.summary,
            "brokers": scenario.at_size("ci").brokers,
            "brokers_full": scenario.at_size("full").brokers,
            "expected": [str(each) for each in scenario.expect],
            "status": str(self.status),
            "because": self.because,
            "paper": scenario.paper,
        }


def rows() -> list[Row]:
    """All shipped scenarios: the numbered ones in their order, then the others by name."""
    found = [_row(scenario_file.load(name)) for name in scenario_file.shipped()]
    return sorted(found, key=lambda row: (row.scenario.number or math.inf, row.scenario.name))


def _row(scenario: Scenario) -> Row:
    waits = f"the full size waits for {scenario.waiting_for}" if scenario.waiting_for else ""
    if scenario.known_failure:
        because = "; ".join(filter(None, (scenario.known_failure, waits)))
        return Row(scenario, Status.KNOWN_FAILURE, because)
    return Row(scenario, Status.WAITS if waits else Status.PASSES, waits)


def fault_as_json(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "sentence": kind.sentence,
        "of": kind.of,
        "lasting": kind.lasting,
        "parameters": [
            {
                "name": each.name,
                "sentence": each.sentence,
                "default": each.default,
                **({"choices": list(each.choices)} if each.choices else _limits(each)),
            }
            for each in kind.parameters
        ],
    }


def _limits(parameter: Parameter) -> dict[str, float]:
    """Limits without those that JSON has no number for."""
    limits = {"least": parameter.least, "most": parameter.most}
    return {name: limit for name, limit in limits.items() if abs(limit) != float("inf")}


def kinds() -> list[Kind]:
    """The kinds of faults, ordered by what they strike."""
    order = ("processes", "hosts", "links", "nobody")
    return sorted(KINDS.values(), key=lambda kind: order.index(kind.of))
