"""Mutation testing: ``python -m tests.mutants clients --sample 60 --seed 1``.

Each mutant is one small bug in one module; the module's tests run with it in a child, and have to fail. The
survivors are shown. Mutants without a noticeable effect are listed in ``equivalent.toml`` with the
reason, and count for nothing. The exit status is 1 if fewer than ``--at-least`` percent of a module's group
are killed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutants.mutating import Mutant, mutants_of
from tests.mutants.running import Outcome, limit_of, run
from tests.mutants.targets import GROUPS, ROOT, Target, chosen

EQUIVALENT: Final = Path(__file__).parent / "equivalent.toml"

EVERY: Final = 10
"""Mutants between two lines that tell how far it is."""

TRIES: Final = 2


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"groups ({', '.join(GROUPS)}) or modules; default: all")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each group or module named; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--at-least", type=float, default=90.0, help="percent killed for exit status 0")
    parser.add_argument("--only", help="mutants whose id contains this")
    parser.add_argument(
        "--again", type=Path, help="run only what survived in this report, and tell all of it"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--json", type=Path, help="write every mutant and what killed it to this file")
    return parser.parse_args(argv)


def equivalent() -> dict[str, dict[str, str]]:
    """Reasons of the mutants that nobody could notice, by module and id."""
    listed: dict[str, dict[str, str]] = {}
    for entry in tomllib.loads(EQUIVALENT.read_text())["mutant"]:
        listed.setdefault(entry["module"], {})[entry["id"]] = entry["reason"]
    return listed


def sampled(targets: Sequence[Target], size: int, seed: int, only: str | None) -> list[tuple[Target, Mutant]]:
    """The mutants to be run, by module and line. A larger sample of the same seed contains a smaller one."""
    known = equivalent()
    found = [
        (target, mutant)
        for target in targets
        for mutant in mutants_of((ROOT / target.module).read_text())
        if mutant.id not in known.get(target.module, ()) and (only is None or only in mutant.id)
    ]
    if not size or size >= len(found):
        return found
    rng = random.Random(seed)
    drawn = sorted(found, key=lambda each: (each[0].module, each[1].id))
    rng.shuffle(drawn)
    return sorted(drawn[:size], key=lambda each: (each[0].module, each[1].line, each[1].id))


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if options.again is not None:
        return _again(options.again, options.json or options.again, options.at_least)
    groups = options.targets or list(GROUPS)
    rows: list[dict[str, Any]] = []
    try:
        work = {word: sampled(chosen([word]), options.sample, options.seed, options.only) for word in groups}
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 64
    if options.list:
        for target, mutant in [each for found in work.values() for each in found]:
            print(f"{target.module}:{mutant.line}: {mutant.id}")
        return 0
    enough = True
    for word, found in work.items():
        rows += _play(word, found)
        enough = _tell(word, [row for row in rows if row["group"] == word], options.at_least) and enough
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if enough else 1


def _again(report: Path, to: Path, at_least: float) -> int:
    """Run the survivors of a report again, after tests were added. Mutants that are now called equivalent, or
    are no longer in the code, leave the report."""
    known = equivalent()
    rows: list[dict[str, Any]] = []
    found: dict[str, list[tuple[Target, Mutant]]] = {}
    for row in json.loads(report.read_text()):
        (target,) = chosen([row["module"]])
        here = {mutant.id: mutant for mutant in mutants_of((ROOT / target.module).read_text())}
        if row["id"] not in here or row["id"] in known.get(target.module, ()):
            continue
        if row["killed"]:
            rows.append(row)
        else:
            found.setdefault(row["group"], []).append((target, here[row["id"]]))
    for word, survivors in found.items():
        rows += _play(word, survivors)
    to.write_text(json.dumps(rows, indent=1) + "\n")
    words = dict.fromkeys(row["group"] for row in rows)
    enough = [_tell(word, [row for row in rows if row["group"] == word], at_least) for word in words]
    return 0 if all(enough) else 1


def _play(word: str, found: Sequence[tuple[Target, Mutant]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    limits: dict[Target, float] = {}
    survived = 0
    for number, (target, mutant) in enumerate(found, 1):
        if target not in limits:
            limits[target] = limit_of(_unchanged(target))
        outcome = run(target, mutant.id, limits[target])
        survived += outcome.passed
        rows.append(
            {
                "group": word,
                "module": target.module,
                "line": mutant.line,
                "id": mutant.id,
                "killed": not outcome.passed,
                "killed_by": outcome.killed_by,
                "seconds": round(outcome.seconds, 2),
            }
        )
        if outcome.passed:
            print(f"SURVIVED {target.module}:{mutant.line}: {mutant.id}", flush=True)
        if number % EVERY == 0 or number == len(found):
            print(f"{word}: {number} of {len(found)} run, {survived} survived", file=sys.stderr, flush=True)
    return rows


def _unchanged(target: Target) -> Outcome:
    """The tests of the module as it is. Those of real processes may be late once on a busy machine."""
    for _ in range(TRIES):
        outcome = run(target, None, None)
        if outcome.passed:
            return outcome
    raise SystemExit(f"the tests of {target.module} fail as it is: {outcome.killed_by}")


def _tell(word: str, rows: Sequence[dict[str, Any]], at_least: float) -> bool:
    """A table by module; whether enough were killed."""
    known = equivalent()
    for module in dict.fromkeys(row["module"] for row in rows):
        of_it = [row for row in rows if row["module"] == module]
        killed = sum(row["killed"] for row in of_it)
        seconds = sum(row["seconds"] for row in of_it)
        aside = len(known.get(module, ()))
        print(f"{module:44} {killed:4} of {len(of_it):4} killed, {aside:3} equivalent, {seconds:7.0f} s")
    killed = sum(row["killed"] for row in rows)
    percent = 100 * killed / len(rows) if rows else 100.0
    print(f"{word}: {killed} of {len(rows)} killed, {percent:.1f} %", flush=True)
    return percent >= at_least


if __name__ == "__main__":
    sys.exit(main())
