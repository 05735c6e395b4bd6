"""How a test declares which item of the checklist it proves, and where it runs.

`item` is a decorator of test functions. It makes one case for each transport and engine pair, with the item's
number in front of the test's id (``[043-tcp-ours-pynng]``). It also keeps a `Declaration`, from which the
table in ``docs/reference/conformance.md`` is made.

The first engine of a pair plays the first role that the test names, and listens unless the test says
otherwise. In a case with one engine (``ours``), the peer is scripted byte by byte, or missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])

OURS: Final = "ours"
PYNNG: Final = "pynng"
CHILD: Final = "pynng apart"
"""NNG in a separate process."""
NNGCAT: Final = "nngcat"
NANOCAT: Final = "nanocat"

Pair = tuple[str, ...]
OURS_OURS: Final[Pair] = (OURS, OURS)
OURS_PYNNG: Final[Pair] = (OURS, PYNNG)
PYNNG_OURS: Final[Pair] = (PYNNG, OURS)
PAIRS: Final[tuple[Pair, ...]] = (OURS_OURS, OURS_PYNNG, PYNNG_OURS)
ALONE: Final[tuple[Pair, ...]] = ((OURS,),)
EACH: Final[tuple[Pair, ...]] = ((OURS,), (PYNNG,))

WEB: Final = ("ws", "wss")
PLAIN: Final = ("tcp", "ipc", "abstract", "tls+tcp")
"""Streams that begin with the eight bytes."""
STREAMS: Final = PLAIN + WEB
TRANSPORTS: Final = ("inproc", *STREAMS)
PURE: Final = ("",)
"""No transport: machines, options."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of one test."""

    items: tuple[int, ...]
    transport: str
    pair: Pair

    @property
    def id(self) -> str:
        numbers = "+".join(f"{number:03}" for number in self.items)
        return "-".join(part for part in (numbers, self.transport, *self.pair) if part)

    @property
    def possible(self) -> bool:
        """True if the combination is possible.

        Two implementations in one process share no inproc names. And NNG 1.11 panics in about one of fifty
        closings of a wss connection ("pthread_mutex_lock: Invalid argument") and takes the process with it.
        That is too often for `tests.support.isolation`, so such tests run NNG in a separate process, and only
        for item 176.
        """
        if NANOCAT in self.pair:
            return self.transport in ("tcp", "ipc", "ws")
        return PYNNG not in self.pair or self.transport not in ("inproc", "wss")


Failing = Callable[[Case], str]
"""Why a case fails today, or an empty text."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The items that a test function proves."""

    test: str
    cases: tuple[Case, ...]
    known: dict[Case, str]
    """Cases that are known to fail, and why."""
    remarks: tuple[str, ...]
    """A remark in the table beside the verdict."""


@dataclass(slots=True)
class Register:
    """All declarations of the modules that have been imported, in their order."""

    declarations: list[Declaration] = field(default_factory=list)

    def of(self, number: int) -> Iterator[Declaration]:
        return (each for each in self.declarations if number in each.cases[0].items)


REGISTER: Final = Register()


def item(
    *numbers: int,
    transports: Iterable[str] = PURE,
    pairs: Iterable[Pair] = ALONE,
    fails: Failing | str = "",
    note: str = "",
) -> Callable[[F], F]:
    """Declare that a test proves these items.

    Args:
        transports, pairs: where it runs; every possible combination is a case.
        fails: why all cases fail today, or a function that tells it for each; they must fail (strict xfail).
        note: a remark in the table beside the verdict: a deliberate difference, a bound.
    """

    def decorate(test: F) -> F:
        cases = [Case(numbers, transport, pair) for transport in transports for pair in pairs]
        cases = [case for case in cases if case.possible]
        reasons = {case: fails if isinstance(fails, str) else fails(case) for case in cases}
        known = {case: reason for case, reason in reasons.items() if reason}
        remarks = tuple(dict.fromkeys(text for text in (*known.values(), note) if text))
        REGISTER.declarations.append(Declaration(test.__name__, tuple(cases), known, remarks))
        parameters = [pytest.param(case, id=case.id, marks=_marks(case, known)) for case in cases]
        marked: F = pytest.mark.parametrize("case", parameters, indirect=True)(test)
        return pytest.mark.usefixtures("case")(marked)

    return decorate


def _marks(case: Case, known: dict[Case, str]) -> list[pytest.MarkDecorator]:
    marks = [] if set(case.pair) == {OURS} else [pytest.mark.interop]
    if PYNNG in case.pair:
        marks.append(pytest.mark.isolated)
    if {CHILD, NNGCAT, NANOCAT} & set(case.pair):
        marks.append(pytest.mark.process)
    if case in known:
        marks.append(pytest.mark.xfail(strict=True, reason=known[case]))
    return marks
