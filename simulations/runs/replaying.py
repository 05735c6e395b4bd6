"""Failures as files: the scenario as it was played, its seed, and the violation, so that it can be repeated.

A failure file is a scenario file in which every name and number is concrete, with a table ``[failure]`` about
the run. The same Python and code give the same history to the last event, and its hash confirms that. With
others the run may be different: it is still played, but only the failed check is compared.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mesh.spelling import nearest
from simulations.invariants import CHECKS, Verdict
from simulations.runs import playing
from simulations.runs.playing import OF_THE_RUN, Result, Say
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file
from simulations.scenarios.scenario_file import FAILURE, ScenarioFileError, line_of

FORMAT: Final = 1
"""The format of the table; a file of another one is refused."""
SOURCES: Final = ("protocols", "mesh", "simulations")
ROOT: Final = Path(__file__).resolve().parents[2]
FIELDS: Final[dict[str, type]] = {
    "format": int,
    "seed": int,
    "check": str,
    "violation": str,
    "history_hash": str,
    "python": str,
    "code": str,
}

PlayIt = Callable[..., Result]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed."""

    scenario: Scenario
    seed: int
    check: str
    """The first check that found a violation."""
    violation: str
    """Its first violation."""
    history_hash: str
    python: str
    """The version of Python that played it."""
    code: str
    """The fingerprint of the code that played it."""

    @property
    def strangers(self) -> str:
        """The differences from the program that wrote it, in words; empty if there are none."""
        parts = []
        if self.python != platform.python_version():
            parts.append(f"Python {self.python} and not {platform.python_version()}")
        if self.code != fingerprint():
            parts.append(f"other code ({self.code} and not {fingerprint()})")
        return " and ".join(parts)


@functools.cache
def fingerprint() -> str:
    """A hash of the code that determines a run, as it is on the disk."""
    digest = hashlib.blake2b(digest_size=6)
    for package in SOURCES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def failing(verdicts: tuple[Verdict, ...], check: str | None = None) -> Verdict | None:
    """The first verdict with a violation, or that of one check if it has one.

    A check that found nothing to judge comes after one with a violation: it says more about the run than
    about the brokers.
    """
    failed = [each for each in verdicts if not each.ok and check in (None, each.check)]
    return next((each for each in failed if not each.empty), failed[0] if failed else None)


def failure_of(result: Result) -> Failure:
    """The record of a run that failed."""
    first = failing(result.verdicts)
    assert first is not None, "the run passed"
    return Failure(
        result.scenario,
        result.seed,
        first.check,
        first.violations[0],
        result.history_hash,
        platform.python_version(),
        fingerprint(),
    )


# --- files


def write(failure: Failure, remark: str = "") -> str:
    """The text of its file; ``remark`` becomes the comment at the beginning."""
    table: dict[str, Any] = {"format": FORMAT}
    table |= {name: getattr(failure, name) for name in FIELDS if name != "format"}
    lines = [f"{name} = {scenario_file.spelt(value)}" for name, value in table.items()]
    head = [f"# {_printable(line)}" for line in remark.splitlines()]
    return "\n".join([*head, scenario_file.write(failure.scenario), f"[{FAILURE}]", *lines, ""])


def _printable(line: str) -> str:
    """TOML allows no control characters in a comment, and a violation may quote an exception."""
    return "".join(each if each.isprintable() else "?" for each in line)


def read(path: Path) -> Failure:
    """Raises `ScenarioFileError`: it cannot be read, is no failure file, or is one of another version."""
    scenario = scenario_file.read(path)
    text = path.read_text(encoding="utf-8")
    table = tomllib.loads(text).get(FAILURE)
    if not isinstance(table, dict):
        raise ScenarioFileError(f"{path}: there is no [failure] in it; play it by mesh simulate {path}")
    where = f"{path}:{line_of(text, (FAILURE,))}"
    if table.get("format") != FORMAT:
        raise ScenarioFileError(
            f"{where}: its format is {table.get('format', 'missing')}, and this program reads {FORMAT}: "
            f"replay it by the version that wrote it"
        )
    known = (*CHECKS, *OF_THE_RUN)
    for name, type_ in FIELDS.items():
        if type(table.get(name)) is not type_:
            what = "missing" if name not in table else f"{table[name]!r}"
            raise ScenarioFileError(
                f"{where}: {name} of the failure is {what}; take the file as it was written, or play the "
                f"scenario again with --keep"
            )
    if table["check"] not in known:
        at = f"{path}:{line_of(text, (FAILURE, 'check'))}"
        raise ScenarioFileError(f"{at}: there is no check {table['check']!r}{nearest(table['check'], known)}")
    return Failure(scenario, **{name: table[name] for name in FIELDS if name != "format"})


# --- playing it again


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of the second run."""

    failure: Failure
    result: Result

    @property
    def again(self) -> Verdict | None:
        """The verdict of the failed check, if it fails again."""
        return failing(self.result.verdicts, self.failure.check)

    @property
    def exact(self) -> bool:
        return self.result.history_hash == self.failure.history_hash

    @property
    def broken(self) -> bool:
        """True if the same program gave another history: it does not repeat itself."""
        return not self.exact and not self.failure.strangers

    def __str__(self) -> str:
        failure, result = self.failure, self.result
        hashes = f"history {result.history_hash}"
        if self.broken:
            return (
                f"NOT THE SAME RUN: {hashes}, and {failure.history_hash} is expected of the same code; "
                f"unless the file was changed by hand, look for the difference by mesh simulate diff --twice"
            )
        same = "reproduced exactly" if self.exact else "another run, by other code"
        if self.again is None:
            return f"{same}, {hashes}: {failure.check} does not fail any more"
        return f"{same}, {hashes}: {failure.check} fails: {self.again.violations[0]}"


def replay(failure: Failure, *, say: Say | None = None, play: PlayIt = playing.play) -> Replay:
    """Play it again."""
    return Replay(failure, play(failure.scenario, seed=failure.seed, say=say))
