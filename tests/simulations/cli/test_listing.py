"""The lists: every scenario with a status from its file, every fault with its numbers."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from simulations.cli import listing
from simulations.cli.listing import Status
from simulations.cli.showing import scenario_table
from simulations.faults import KINDS
from simulations.scenario import Expectation, Scenario


@pytest.mark.parametrize(
    ("scenario", "status", "because"),
    [
        (Scenario("a"), Status.PASSES, ""),
        (Scenario("a", known_failure="they part"), Status.KNOWN_FAILURE, "they part"),
        (
            Scenario("a", known_failure="they part", waiting_for="an overlay"),
            Status.KNOWN_FAILURE,
            "they part; the full size waits for an overlay",
        ),
        (Scenario("a", waiting_for="an overlay"), Status.WAITS, "the full size waits for an overlay"),
    ],
)
def test_a_status_follows_the_file(scenario: Scenario, status: Status, because: str) -> None:
    row = listing._row(scenario)
    assert row.status is status and because in row.because
    assert bool(because) == bool(row.because)


def test_numbered_scenarios_come_first_and_in_their_order() -> None:
    numbers = [row.scenario.number or 1000 for row in listing.rows()]
    assert numbers == sorted(numbers)


def test_a_table_has_the_sizes_the_expectations_and_why_it_does_not_pass() -> None:
    expect = (Expectation("converged"),)
    scenario = Scenario("a", number=3, known_failure="they part", full=(("brokers", 50),), expect=expect)
    console = Console(file=io.StringIO(), width=160, _environ={})
    scenario_table([listing._row(scenario)], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "5 / 50" in shown and "=> converged" in shown and "known failure: they part" in shown


def test_faults_have_limits_that_json_can_hold() -> None:
    rows = [listing.fault_as_json(kind) for kind in listing.kinds()]
    assert {row["kind"] for row in rows} == set(KINDS)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
