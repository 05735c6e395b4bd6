"""The real runs take wall-clock time and mostly wait, so three are played at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.differential.namespaces import Unavailable

AT_ONCE = 3
HERE = Path(__file__).parent


class Case(Protocol):
    """A scenario for real processes; ``play`` returns the outcome, or raises `Unavailable`."""

    @property
    def name(self) -> str: ...
    def play(self, folder: Path) -> Any: ...


class Played:
    """The outcomes of the real runs, by name of the case."""

    def __init__(self, futures: dict[str, Future[Any]]) -> None:
        self._futures = futures

    def of(self, case: Case) -> Any:
        try:
            return self._futures[case.name].result()
        except Unavailable as error:
            pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The first of the selected tests begins all cases of this folder."""
    cases: dict[str, Case] = {}
    for item in request.session.items:
        if item.path.parent == HERE and "played" in getattr(item, "fixturenames", ()):
            case = item.callspec.params["case"]  # type: ignore[attr-defined]
            cases[case.name] = case
    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield Played(
            {name: executor.submit(case.play, tmp_path_factory.mktemp(name)) for name, case in cases.items()}
        )
        executor.shutdown(cancel_futures=True)
