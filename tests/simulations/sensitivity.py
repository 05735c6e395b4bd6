"""Which bugs the swarm finds, and how many seeds it takes: ``python -m tests.simulations.sensitivity``.

A seed finds a bug if a check fails in it that passes in the same seed without the bug. ``--scenario`` plays
shipped scenarios instead of seeds, each with seed 1. It prints a table in Markdown, each row as soon as it is
known.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from simulations.runs import playing
from simulations.runs.swarming import hush, play_seed
from simulations.scenarios import scenario_file
from tests.simulations.bugs import EVERYWHERE, Bug, with_bug
from tests.simulations.durable_bugs import OF_HOMES

KNOWN = {**EVERYWHERE, **OF_HOMES}
HEAD = "| bug | what is broken | found by | checks that found it, and how often |\n|---|---|---|---|"


def failing(played: str) -> tuple[str, ...]:
    """The checks that fail: in a seed of the swarm for a number, otherwise in the scenario of that name."""
    if not played.isdigit():
        return playing.play(scenario_file.load(played), seed=1).failed
    outcome = play_seed(int(played))
    return ("a crash",) if outcome.broke else outcome.failed


def found_by(bug: Bug, right: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each one played: the checks that fail with the bug, except those in ``right``, without it."""
    found = {}
    for played, known in right.items():
        with with_bug(bug.put_in):
            found[played] = tuple(check for check in failing(played) if check not in known)
    return found


def row(name: str, bug: Bug, found: Mapping[str, tuple[str, ...]], *, named: bool) -> str:
    finders = [played for played, checks in found.items() if checks]
    counts = Counter(check for checks in found.values() for check in checks)
    shown = ", ".join(f"{check} {count}" for check, count in counts.most_common(4))
    which = f": {', '.join(finders)}" if named and finders else ""
    return f"| {name} | {bug.sentence} | {len(finders)} of {len(found)}{which} | {shown or 'none'} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulations.sensitivity")
    parser.add_argument("--seeds", type=int, default=12, help="how many seeds are played for each bug")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--scenario", nargs="*", metavar="NAME", help="play these instead of seeds")
    parser.add_argument("--bug", nargs="*", choices=KNOWN, default=list(EVERYWHERE))
    given = parser.parse_args(arguments)
    hush()
    began = time.monotonic()
    seeds = map(str, range(given.first, given.first + given.seeds))
    right = {played: failing(played) for played in given.scenario or seeds}
    print(HEAD, flush=True)
    for name in given.bug:
        found = found_by(KNOWN[name], right)
        print(row(name, KNOWN[name], found, named=bool(given.scenario)), flush=True)
    wrong = [played for played, checks in right.items() if checks]
    print(f"\nWithout a bug {len(wrong)} of these {len(right)} fail{':' if wrong else '.'}", *wrong)
    print(f"It took {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
