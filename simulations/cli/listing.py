"""What there is to be played and done, in rows: the scenarios with how they fare, the kinds of faults.

A scenario's status is what its file says of it, to which the tests hold it: it passes, or it is a known
failure and what happens instead is told, or it waits for something that there is not yet.
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
    """Its full size does; at the CI size it may well be played."""


@dataclass(frozen=True, slots=True)
class Row:
    """A shipped scenario."""

    scenario: Scenario
    status: Status
    because: str
    """The failure that is known, or the reason to wait; empty if it passes."""

    @property
    def sizes(self) -> str:
        """How many brokers it has, at the CI size and at the full one."""
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
    """All that are shipped: the numbered ones in their order, then the others by name."""
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
    """What JSON has no number for is left out."""
    limits = {"least": parameter.least, "most": parameter.most}
    return {name: limit for name, limit in limits.items() if abs(limit) != float("inf")}


def kinds() -> list[Kind]:
    """In the order of whom they strike."""
    order = ("processes", "hosts", "links", "nobody")
    return sorted(KINDS.values(), key=lambda kind: order.index(kind.of))
