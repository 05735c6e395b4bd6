"""The reference page of the numbered scenarios: ``python -m simulations.scenario_reference > FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from simulations import scenario_file
from simulations.scenario import Expectation, Scenario

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "scenarios.md"
HEAD: Final = """# Scenarios

Made from the files by `python -m simulations.scenario_reference > docs/reference/scenarios.md`; a test
compares them.

What `mesh simulate NAME --seed N` plays: the numbered ones of the study of membership protocols, each in a
file of the [scenario format](scenario-format.md) in `simulations/scenarios/`. What must hold in
[every run](invariants.md) is checked in each of them too. Brokers are those of the CI size, then of the full
one, which `--full` plays.

A **known failure** must fail, and in nothing but the checks it names, until the membership is up to it: these
are the work order for the membership to come. Its figures are of the CI size.

| number | name | what is done | brokers | expected |
|---|---|---|---|---|
"""
FAILURES: Final = """
## Known failures

| number | name | what happens instead |
|---|---|---|
"""
PAPERS: Final = """
## What papers and other tools say of them

Ours is what was measured at the CI size with seed 1, of some with seeds 2 and 3 as well; papers measured
hundreds of members or more, so what bears comparing is the kind of figure and not its last digit.

| number | name | theirs | ours |
|---|---|---|---|
"""
WAITING: Final = """
## What waits

Today every broker has a link to every other one, so more than 100 of them are left to an overlay of bounded
degree: {names}. Their CI sizes are played.
"""
OURS: Final = {
    1: "2.5 to 2.7 s, nobody else called dead",
    3: "one step from 10 to 8, after 2.5 to 2.6 s",
    4: "found 2.5 s after it was blocked",
    5: "no false death of a member that is never blocked; one of a partly blocked one with seed 3",
    6: "no false death",
    7: "removed once, within 3.3 s, and kept out for the minute",
    9: "5 deaths, one in each of 5 cuts",
    10: "dead at all others after 2.9 s; it accuses nobody itself",
    11: "86 to 94% of what was published arrives",
    14: "whole at once after the split",
    15: "back within 0.6 s of the end of the cut",
    16: "whole 2.3 s after a split of ten minutes",
    22: "no death at 20%",
    23: "no death and no suspicion at a round trip of 600 ms",
    30: "all of what was published 4 s or more from a crash arrives",
    31: "all of what was published 3 s or more from a crash arrives",
    32: "0.8 s for 11 joiners, 12 sizes seen",
    46: "18 messages a second, of 10 brokers",
}
"""What was measured, by number; as text, since it is of one machine's code at one time and no check."""


def page() -> str:
    """All of it, as Markdown."""
    found = [scenario_file.load(name) for name in scenario_file.shipped()]
    numbered = sorted((each for each in found if each.number is not None), key=lambda each: each.number or 0)
    failing = [each for each in numbered if each.known_failure]
    waiting = ", ".join(f"{each.number} (`{each.name}`)" for each in numbered if each.waiting_for)
    parts = [HEAD, *map(_row, numbered), FAILURES]
    parts += [_cells(each, _marked(each.known_failure)) for each in failing]
    parts += [PAPERS]
    parts += [_cells(each, each.paper, OURS.get(each.number or 0, "")) for each in numbered if each.paper]
    return "".join([*parts, WAITING.format(names=waiting)])


def _row(scenario: Scenario) -> str:
    small, full = (scenario.at_size(size) for size in ("ci", "full"))
    counts = dict.fromkeys(each.brokers + each.spares for each in (small, full))
    mark = " (known failure)" if scenario.known_failure else ""
    expected = ", ".join(dict.fromkeys(map(_expected, scenario.expect)))
    return _cells(scenario, scenario.summary + mark, ", ".join(map(str, counts)), expected)


def _expected(expectation: Expectation) -> str:
    """Whom it is about is said in the file."""
    numbers = [
        f"{name} {value:g}" for name, value in expectation.parameters if isinstance(value, int | float)
    ]
    return " ".join([f"`{expectation.check}`", *numbers])


def _marked(known_failure: str) -> str:
    parts = [part.partition(": ") for part in known_failure.split("; ")]
    return "; ".join(f"`{check}`: {instead}" for check, _, instead in parts)


def _cells(scenario: Scenario, *cells: str) -> str:
    return " | ".join([f"| {scenario.number}", f"`{scenario.name}`", *cells]) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
