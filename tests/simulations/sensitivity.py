"""Which bugs the swarm finds, and how many seeds it takes: ``python -m tests.simulations.sensitivity``.

A seed finds a bug if a check fails in it that passes in the same seed without the bug. Prints a table in
Markdown, a row a bug as soon as it is known.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from simulations.swarming import hush, play_seed
from tests.simulations.bugs import EVERYWHERE, Bug, with_bug

HEAD = "| bug | what is broken | found by | checks that found it, and in how many seeds |\n|---|---|---|---|"


def found_by(bug: Bug, right: dict[int, tuple[str, ...]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each seed of ``right``, which says what fails without the bug, and what fails with it beyond that."""
    for seed, failing in right.items():
        with with_bug(bug.put_in):
            outcome = play_seed(seed)
        failed = ("a crash",) if outcome.broke else outcome.failed
        yield seed, tuple(check for check in failed if check not in failing)


def row(name: str, bug: Bug, found: Sequence[tuple[str, ...]]) -> str:
    seeds = sum(bool(checks) for checks in found)
    counts = Counter(check for checks in found for check in checks)
    shown = ", ".join(f"{check} {count}" for check, count in counts.most_common(4))
    return f"| {name} | {bug.sentence} | {seeds} of {len(found)} | {shown or 'none'} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulations.sensitivity")
    parser.add_argument("--seeds", type=int, default=12, help="how many seeds are played for each bug")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--bug", nargs="*", choices=EVERYWHERE, default=list(EVERYWHERE))
    given = parser.parse_args()
    hush()
    began = time.monotonic()
    right = {seed: play_seed(seed).failed for seed in range(given.first, given.first + given.seeds)}
    print(HEAD, flush=True)
    for name in given.bug:
        found = [checks for _, checks in found_by(EVERYWHERE[name], right)]
        print(row(name, EVERYWHERE[name], found), flush=True)
    failing = [seed for seed, checks in right.items() if checks]
    print(
        f"\nWithout a bug {len(failing)} of these {len(right)} seeds fail{':' if failing else '.'}", *failing
    )
    print(f"It took {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
