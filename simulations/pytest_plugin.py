"""Worlds for tests by pytest: the fixture `world`, and how many seeds a test is run with.

pytest loads this wherever the package is installed, so it loads the simulator only for a test that asks for a
world.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from simulations.world import World

WORLD = pytest.StashKey["World"]()
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption(
        "--simulation-seed",
        type=int,
        default=None,
        metavar="SEED",
        help="run tests in simulated worlds with this seed only",
    )
    group.addoption(
        "--simulation-strict",
        action="store_true",
        help="refuse datetime.now, and clocks and randomness by imported names, too (slow)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "seeds(count, first=1): run a test in simulated worlds with so many seeds"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "simulation_seed" in metafunc.fixturenames:
        seeds = _seeds(metafunc.definition, metafunc.config.getoption("--simulation-seed"))
        metafunc.parametrize("simulation_seed", seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


def _seeds(test: pytest.Item, only: int | None) -> list[int]:
    if only is not None:
        return [only]
    marker = test.get_closest_marker("seeds")
    return [1] if marker is None else list(_spanned(test.nodeid, *marker.args, **marker.kwargs))


def _spanned(nodeid: str, count: int, first: int = 1) -> Iterable[int]:
    if not isinstance(count, int) or not isinstance(first, int):
        raise pytest.UsageError(f"{nodeid}: seeds({count!r}, first={first!r}) must be whole numbers")
    if count < 1:
        raise pytest.UsageError(f"{nodeid}: seeds({count}) must be at least 1")
    return range(first, first + count)


@pytest.fixture
def simulation_seed(request: pytest.FixtureRequest) -> int:
    """What everything random in the test's world follows from."""
    seed: int = request.param
    return seed


def _watch(world: World) -> AbstractContextManager[None]:
    from simulations.kernel.watching import watched

    return watched(world.fence)


@pytest.fixture
def world(request: pytest.FixtureRequest, simulation_seed: int) -> Generator[World, None, None]:
    """A simulated world; whatever failed in it unhandled fails the test."""
    from simulations.world import World

    item: pytest.Item = request.node
    with World(simulation_seed) as found:
        item.stash[WORLD] = found
        with _watch(found) if request.config.getoption("--simulation-strict") else nullcontext():
            yield found
    unhandled = [*map(str, found.failures), *map(str, found.fence.escapes)]
    if unhandled and not item.stash.get(FAILED, False):
        pytest.fail("\n".join(["in the simulated world:", *unhandled]), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    world = item.stash.get(WORLD, None)
    if report.failed and world is not None:
        item.stash[FAILED] = True
        again = f"pytest {shlex.quote(item.nodeid)} --simulation-seed {world.seed}"
        text = f"seed {world.seed}, at {world.now_s:.3f} s, history {world.history.digest}\nagain: {again}"
        report.sections.append(("Simulated world", text))
    return report
