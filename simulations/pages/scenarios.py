"""The reference page of the numbered scenarios: ``python -m simulations.pages.scenarios > FILE``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from simulations.pages import figures
from simulations.pages.figures import Figures
from simulations.scenario import Expectation, Scenario
from simulations.scenarios import scenario_file

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenarios.md"
HEAD: Final = """# Scenarios

Made from the files by `python -m simulations.pages.scenarios > docs/reference/scenarios.md`; a test
compares them.

`mesh simulate NAME --seed N` plays these scenarios. The numbered ones come from a study of membership
protocols. Each is a file of the [scenario format](scenario-format.md) in `simulations/scenarios/shipped/`.
Each run is also held to [what must hold in every run](invariants.md). The column "brokers" has the CI size
and the full one. `--full` plays the full size: up to 128 brokers, and up to 500 with `--fidelity cores`.

A **known failure** must fail, and only in the checks that it names, until brokers can do better. Its
figures are of the CI size.

The tests play each at its CI size with seed 1. Seeds 2 to 5 gave the same outcomes; `pytest
tests/simulations/scenarios/test_shipped.py -k does_what --simulation-seed 2` plays one of them.

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

Our figures are of seed 1, from `python -m simulations.pages.figures` on the date named. `mesh simulate
NAME` prints them, too. They are of the CI size and, where it was played to its end, of the [full
one](#full-sizes). The key `compared` in a scenario's file says which figures of a run these are. Papers
measured hundreds of members or more, so compare the kind of figure and not its last digit.

| number | name | theirs | ours | ours at full size | measured on |
|---|---|---|---|---|---|
"""
WAITING: Final = """
## What waits

Today every broker has a link to every other one. Meshes of more than 100 brokers need an overlay of bounded
degree: {names}. Their CI sizes are played.
"""
FULL: Final = """
## Full sizes

They are played on demand only: `mesh simulate NAME --full`. `python -m simulations.pages.figures --full`
played these with seed 1. Each had a process of its own and {cpu_max_s} s of processor time. Time and memory
are those of the machine that played it.

| number | name | brokers | what came | virtual s | processor s | MB | played on |
|---|---|---|---|---|---|---|---|
"""
UNPLAYED: Final = """
These have not been played by whole brokers at their full size: a hundred brokers take one and a half to two
seconds of processor time for each virtual second: {names}.
"""
CORES: Final = """
### By the cores alone

A virtual second of a hundred whole brokers costs up to two seconds of a processor. The [cores
alone](simulation-cores.md) take a tenth of one. They know no clients, and judge only whether the mesh is
whole at the end. So a row here is no substitute for a played scenario, and a known failure does not show.
`python -m simulations.pages.figures --cores` played these with seed 1. Scenarios are missing that have more
than 500 brokers, need faults that the cores do not know, or were not played yet. A row shows the outcome on
the date named; later code may give other figures.

| number | name | brokers | what came | virtual s | processor s | MB | played on |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    found = [scenario_file.load(name) for name in scenario_file.shipped()]
    numbered = sorted((each for each in found if each.number is not None), key=lambda each: each.number or 0)
    failing = [each for each in numbered if each.known_failure]
    parts = [HEAD, *map(_row, numbered), FAILURES]
    parts += [_cells(each, _marked(each.known_failure)) for each in failing]
    measured = figures.kept()
    parts += [PAPERS]
    parts += [
        _compared(each, measured.get((each.name, "ci")), measured.get((each.name, "full")))
        for each in numbered
        if each.paper
    ]
    parts += [FULL.format(cpu_max_s=figures.CPU_MAX_S)]
    full = [(each, measured.get((each.name, "full"))) for each in numbered]
    parts += [_at_full_size(each, found) for each, found in full if found is not None]
    unplayed = [each for each, found in full if found is None and each.full and not each.waiting_for]
    parts += [UNPLAYED.format(names=_names(unplayed))] if unplayed else []
    cores = [(each, measured.get((each.name, "cores"))) for each in numbered]
    parts += [CORES, *(_by_the_cores(each, found) for each, found in cores if found is not None)]
    waiting = [each for each in numbered if each.waiting_for]
    return "".join([*parts, WAITING.format(names=_names(waiting))])


def _names(scenarios: Iterable[Scenario]) -> str:
    return ", ".join(f"{each.number} (`{each.name}`)" for each in scenarios)


def _compared(scenario: Scenario, small: Figures | None, full: Figures | None) -> str:
    if not scenario.compared:
        return _cells(scenario, scenario.paper, "", "", "")
    found = [each for each in (small, full) if each is not None and each.ours]
    ours = ["" if each is None else each.ours for each in (small, full)]
    dates = dict.fromkeys(each.date for each in found)
    return _cells(scenario, scenario.paper, *ours, "; ".join(dates))


def _by_the_cores(scenario: Scenario, found: Figures) -> str:
    return _cells(scenario, str(found.brokers), found.ours, *_took(found))


def _at_full_size(scenario: Scenario, found: Figures) -> str:
    came = found.broke or (
        f"fails: {', '.join(map('`{}`'.format, found.failed))}" if found.failed else "passes"
    )
    return _cells(scenario, str(found.brokers), came, *_took(found))


def _took(found: Figures) -> tuple[str, ...]:
    return f"{found.virtual_s:g}", f"{found.cpu_s:g}", str(found.memory_mb), found.date


def _row(scenario: Scenario) -> str:
    small, full = (scenario.at_size(size) for size in ("ci", "full"))
    counts = dict.fromkeys(each.brokers + each.spares for each in (small, full))
    mark = " (known failure)" if scenario.known_failure else ""
    expected = ", ".join(dict.fromkeys(map(_expected, scenario.expect)))
    return _cells(scenario, scenario.summary + mark, ", ".join(map(str, counts)), expected)


def _expected(expectation: Expectation) -> str:
    """The text without its subjects, which are in the file."""
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
