"""``docs/reference/conformance.md``: the outcome of each item, from the suite's declarations and its results.

    python -m tests.conformance.table            run the suite, write the page, fail if something failed
    python -m tests.conformance.table --declared write it as if all went as declared

A case that fails, or that was not run, is shown as such. A case that is declared to fail must fail (strict
xfail). So a page without failures means that all went as declared; a test enforces this.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import pytest

from .checklist import ITEMS, SECTIONS
from .declaring import REGISTER, TRANSPORTS, Case, Declaration

ROOT: Final = Path(__file__).resolve().parents[2]
SUITES: Final = ("tests/conformance", "tests/protocols/interop")
PAGE: Final = ROOT / "docs" / "reference" / "conformance.md"

NOT_APPLICABLE: Final[Mapping[int, str]] = {
    25: "queues have the length they were made with; options cannot be changed under a running socket",
    87: "as 25",
    112: "as 25",
    142: "a dialer is made by `dial()` and dials from then on; there is no second call that could collide",
}

INTRODUCTION: Final = """\
# Conformance

180 requirements for an implementation of the Scalability Protocols, and the verdict on each here. They come
from the test suites of mangos, NNG and nanomsg and from their users' complaints.
`python -m tests.conformance.table` makes this page from the declarations and the results of
`tests/conformance` and `tests/protocols/interop`: do not edit it. `pytest tests/conformance -k 043` runs
item 43.

*Engines*: `ours` is one of our sockets with a peer that is scripted byte by byte, or with none; `pynng` is
the same for NNG 1.11 through `protocols.nng`. The first of a pair plays the first role of the item and
listens. NNG shares no inproc names with us. Its wss ends the process in about one of fifty closings (a defect
of NNG 1.11), so there it runs in a separate process, for item 176. The item was proven over each transport
that a cell names; `-` means that none is involved. *Runs* counts test cases. "(ours)" marks an item that no
other implementation meets.

Items that do not apply: {absent}. Known failures: {failing}.
"""


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    EXPECTED = "fails as declared"
    NOT_RUN = "not run"


Results = Mapping[tuple[str, str], Outcome]
"""The outcome by test function and id of a case; with further parameters, the worst of them."""
WORSE: Final = (Outcome.PASSED, Outcome.EXPECTED, Outcome.NOT_RUN, Outcome.FAILED)


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class Recorder:
    """A pytest plugin that records the outcome of each case; the ``case`` fixture tells which case runs."""

    results: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties)
        outcome = outcome_of(report)
        if outcome is not None and "conformance" in told:
            self._take(str(told["conformance"]), outcome)

    def _take(self, told: str, outcome: Outcome) -> None:
        test, case = told.split(" ", 1)
        before = self.results.get((test, case), Outcome.PASSED)
        self.results[test, case] = max(before, outcome, key=WORSE.index)


def outcome_of(report: pytest.TestReport) -> Outcome | None:
    """The outcome, or None if the phase says nothing about the case."""
    if hasattr(report, "wasxfail"):
        return Outcome.EXPECTED if report.skipped else Outcome.FAILED
    if report.failed:
        return Outcome.FAILED
    if report.skipped:
        return Outcome.NOT_RUN
    return Outcome.PASSED if report.when == "call" else None


def declared() -> Results:
    """The results of a run in which all goes as declared."""
    return {
        (each.test, case.id): Outcome.EXPECTED if case in each.known else Outcome.PASSED
        for each in REGISTER.declarations
        for case in each.cases
    }


def load() -> None:
    """Import every test module, so that all declarations are there."""
    for suite in SUITES:
        for path in sorted((ROOT / suite).glob("test_*.py")):
            importlib.import_module(f"{suite.replace('/', '.')}.{path.stem}")


# --- the page


def render(results: Results) -> str:
    absent = ", ".join(str(number) for number in NOT_APPLICABLE)
    failing = ", ".join(str(number) for number in ITEMS if any(each.known for each in REGISTER.of(number)))
    lines = [INTRODUCTION.format(absent=absent, failing=failing or "none")]
    for title, items in SECTIONS.items():
        lines += [f"## {title}", "", "| item | | verdict | engines | transports | runs | |"]
        lines += ["|---|---|---|---|---|---|---|"]
        lines += [row(number, text, results) for number, text in items.items()]
        lines.append("")
    return "\n".join(lines)


def row(number: int, text: str, results: Results) -> str:
    declarations = list(REGISTER.of(number))
    cases = {
        (each.test, case): results.get((each.test, case.id), Outcome.NOT_RUN)
        for each in declarations
        for case in each.cases
    }
    cells = [
        str(number),
        text,
        verdict(number, list(cases.values())),
        engines(case for _, case in cases),
        transports(case for _, case in cases),
        str(len(cases)) if cases else "",
        "; ".join(dict.fromkeys(remarks(number, declarations))),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def verdict(number: int, outcomes: list[Outcome]) -> str:
    if number in NOT_APPLICABLE:
        return "not applicable"
    counts = {
        "FAILS": outcomes.count(Outcome.FAILED),
        "fails, known": outcomes.count(Outcome.EXPECTED),
        "not run": outcomes.count(Outcome.NOT_RUN),
    }
    wrong = [f"{words}: {count} of {len(outcomes)}" for words, count in counts.items() if count]
    return ", ".join(wrong) or ("pass" if outcomes else "NOT PROVEN")


def engines(cases: Iterable[Case]) -> str:
    return ", ".join(dict.fromkeys("-".join(case.pair) for case in cases))


def transports(cases: Iterable[Case]) -> str:
    named = {case.transport for case in cases}
    if set(TRANSPORTS) <= named:
        return "all"
    return ", ".join(name or "-" for name in (*TRANSPORTS, "") if name in named)


def remarks(number: int, declarations: list[Declaration]) -> Iterator[str]:
    if number in NOT_APPLICABLE:
        yield NOT_APPLICABLE[number]
    for each in declarations:
        yield from each.remarks


# --- the command


def main(arguments: list[str]) -> int:
    if arguments == ["--declared"]:
        load()
        PAGE.write_text(render(declared()))
        return 0
    recorder = Recorder()
    stale = ("--deselect", "tests/conformance/test_table.py::test_the_page_is_current")
    status = pytest.main(["-q", "-p", "no:cacheprovider", *stale, *SUITES, *arguments], plugins=[recorder])
    load()
    PAGE.write_text(render(recorder.results))
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return int(status)


if __name__ == "__main__":
    # under its real name, so that the register is the one that the tests fill
    from tests.conformance import table

    sys.exit(table.main(sys.argv[1:]))
