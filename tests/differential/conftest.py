"""The real runs take their time by the wall clock and wait for most of it, so three are played at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.differential.namespaces import Unavailable

AT_ONCE = 3


class Case(Protocol):
    """Something that is done to real processes; ``play`` returns what came of it, or raises
    `Unavailable`."""

    @property
    def name(self) -> str: ...
    def play(self, folder: Path) -> Any: ...


class Played:
    """What came of the real runs, by name of the case."""

    def __init__(self, futures: dict[str, Future[Any]]) -> None:
        self._futures = futures

    def of(self, case: Case) -> Any:
        try:
            return self._futures[case.name].result()
        except Unavailable as error:
            pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All cases of the tests that were chosen are begun at the first of them."""
    cases: dict[str, Case] = {}
    for item in request.session.items:
        if "played" in getattr(item, "fixturenames", ()):
            case = item.callspec.params["case"]  # type: ignore[attr-defined]
            cases[case.name] = case
    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield Played(
            {name: executor.submit(case.play, tmp_path_factory.mktemp(name)) for name, case in cases.items()}
        )
        executor.shutdown(cancel_futures=True)
