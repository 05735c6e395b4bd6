"""The results of playing the shipped scenarios, kept for their page: ``python -m simulations.pages.figures``.

``mesh simulate`` plays each in a separate process, whose time and memory are measured as well. The figures
replace those kept before, and belong to the code of that commit. In virtual time they are exactly repeatable,
except for the processor's time and the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulations.cores import KINDS
from simulations.cores.running import NODES_MAX
from simulations.runs.playing import BROKERS_MAX
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / "docs" / "results" / "scenarios.json"
SEED: Final = 1
CPU_MAX_S: Final = 600


@dataclass(frozen=True, slots=True)
class Figures:
    """One scenario at one size, played with seed 1. Sizes are ``ci``, ``full``, and ``cores``: the full one
    by the cores alone.
    """

    name: str
    size: str
    commit: str
    date: str
    """The date of the commit."""
    brokers: int
    failed: tuple[str, ...]
    """The checks that failed."""
    ours: str
    """The figures that the scenario compares with a paper's, as text."""
    virtual_s: float
    cpu_s: float
    memory_mb: int
    broke: str = ""
    """Why there is no result, if there is none."""


def kept() -> dict[tuple[str, str], Figures]:
    """The kept figures by name and size."""
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    found = [Figures(**{**row, "failed": tuple(row["failed"])}) for row in rows]
    return {(each.name, each.size): each for each in found}


def keep(measured: Iterable[Figures]) -> None:
    """Replace the kept figures of the same scenario and size, in the order of the names."""
    rows = kept() | {(each.name, each.size): each for each in measured}
    text = json.dumps([asdict(rows[key]) for key in sorted(rows)], indent=1)
    KEPT.write_text(text + "\n")


def measured(scenario: Scenario, size: str, cpu_max_s: int) -> Figures:
    """Play it in a separate process, which is stopped after so many seconds of processor time."""
    sized = scenario.at_size("ci" if size == "ci" else "full")
    brokers = sized.brokers + sized.spares
    command = [sys.executable, "-m", "mesh", "simulate", scenario.name, "--seed", str(SEED), "--json"]
    command += ["--full"] if size != "ci" else []
    command += ["--fidelity", "cores"] if size == "cores" else []
    playing = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (cpu_max_s, cpu_max_s)),
    )
    assert playing.stdout is not None
    with playing.stdout:
        shown = playing.stdout.read()
    _, status, usage = os.wait4(playing.pid, 0)
    playing.returncode = os.waitstatus_to_exitcode(status)
    result = json.loads(shown) if shown else {}
    commit, date = _commit()
    return Figures(
        name=scenario.name,
        size=size,
        commit=commit,
        date=date,
        brokers=brokers,
        failed=tuple(check["check"] for check in result.get("checks", ()) if not check["ok"]),
        ours=_of_cores(result) if size == "cores" and result else result.get("ours", ""),
        virtual_s=round(result.get("virtual_s", 0.0), 1),
        cpu_s=round(usage.ru_utime + usage.ru_stime, 1),
        memory_mb=usage.ru_maxrss // 1024,
        broke="" if result else _broke(playing.returncode, cpu_max_s),
    )


def _of_cores(result: dict[str, Any]) -> str:
    whole = "whole at the end" if result["ok"] else f"not whole at the end: {result['wrong'][0]}"
    return f"{whole}; {result['deaths_seen']} deaths seen, {result['messages']} messages"


def _broke(code: int, cpu_max_s: int) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"not done in {cpu_max_s} s"
    return f"ended with exit code {code}"


def _commit() -> tuple[str, str]:
    """The commit of the code, and its date."""
    command = ["git", "log", "-1", "--format=%h %cs"]
    commit, _, day = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.partition(" ")
    return commit, day.strip()


def _chosen(names: Sequence[str], size: str) -> list[Scenario]:
    """All numbered scenarios, unless some are named; for the full size, those that can be played today."""
    found = [scenario_file.load(name) for name in names or scenario_file.shipped()]
    can_be_played = {"ci": lambda each: True, "full": _by_brokers, "cores": _by_cores}[size]
    return [each for each in found if each.number is not None and can_be_played(each)]


def _by_brokers(scenario: Scenario) -> bool:
    full = scenario.at_size("full")
    return bool(scenario.full) and full.brokers + full.spares <= BROKERS_MAX


def _by_cores(scenario: Scenario) -> bool:
    """True if the cores alone know all its kinds of faults; they may not know some of their numbers."""
    full = scenario.at_size("full")
    fits = full.brokers <= NODES_MAX and not full.spares
    return bool(scenario.full) and fits and all(fault.kind in KINDS for fault in full.faults)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, keep and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.pages.figures", description="Measure scenarios."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all, if none is named")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="at their full sizes")
    sizes.add_argument("--cores", action="store_true", help="at their full sizes, by the cores alone")
    parser.add_argument(
        "--cpu-max", type=int, default=CPU_MAX_S, metavar="S", help="seconds of processor time for each"
    )
    given = parser.parse_args(arguments)
    size = "full" if given.full else "cores" if given.cores else "ci"
    try:
        chosen = _chosen(given.names, size)
    except scenario_file.UnknownScenario as unknown:
        parser.error(str(unknown))
    for scenario in chosen:
        figures = measured(scenario, size, given.cpu_max)
        if size != "cores" or not figures.broke:  # a scenario that the cores do not support has no figure
            keep([figures])
        said = figures.broke or ", ".join(figures.failed) or "passed"
        print(f"{figures.name} {size}: {said}; {figures.ours} ({figures.cpu_s} s, {figures.memory_mb} MB)")


if __name__ == "__main__":
    main()
