"""Simulated worlds for pytest: the fixture `world`, its seeds and its options.

pytest loads this module in every project of an environment in which the package is installed. Other projects
may have folders called `simulations` or `mesh`. So the module has its own name beside the packages, and loads
the simulator only for a test that asks for a world.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    config.addinivalue_line(
        "markers", "world(strict=False, **options): options of the test's simulated world"
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
    """The seed of everything random in the test's world."""
    seed: int = request.param
    return seed


@pytest.fixture
def world(request: pytest.FixtureRequest, simulation_seed: int) -> Generator[World, None, None]:
    """A simulated world; whatever failed in it unhandled fails the test."""
    item: pytest.Item = request.node
    _refuse_other_packages()
    options = _options(item)
    strict = options.pop("strict", request.config.getoption("--simulation-strict"))
    with _made(simulation_seed, options) as found:
        item.stash[WORLD] = found
        with _watch(found) if strict else nullcontext():
            yield found
    unhandled = [*map(str, found.failures), *map(str, found.fence.escapes)]
    if unhandled and not item.stash.get(FAILED, False):
        pytest.fail("\n".join(["in the simulated world:", *unhandled]), pytrace=False)


def _refuse_other_packages() -> None:
    """Fail the test with a sentence if one of our names means another package here."""
    for name in ("protocols", "mesh", "simulations"):
        package = import_module(name)
        folders = [Path(folder).resolve() for folder in getattr(package, "__path__", [package.__file__])]
        if Path(__file__).resolve().with_name(name) not in folders:
            pytest.fail(
                f"the fixture `world` needs the package `{name}` of mangrove-mesh, but here that name is "
                f"{folders[0]}: rename it, or keep the folder above it off sys.path",
                pytrace=False,
            )


def _options(test: pytest.Item) -> dict[str, Any]:
    """The options of all `world` marks of a test; the closest mark wins."""
    options: dict[str, Any] = {}
    for marker in reversed(list(test.iter_markers("world"))):
        if marker.args:
            pytest.fail(f"world{marker.args}: a world takes its options by name", pytrace=False)
        options |= marker.kwargs
    return options


def _made(seed: int, options: dict[str, Any]) -> World:
    from simulations.world import World

    known = [name for name in inspect.signature(World.__init__).parameters if name not in ("self", "seed")]
    if unknown := [name for name in options if name not in known]:
        hint = "; the mark `seeds` chooses seeds" if "seed" in unknown else ""
        pytest.fail(
            f"a world has no option {', '.join(unknown)}; it has strict, {', '.join(known)}{hint}",
            pytrace=False,
        )
    return World(seed, **options)


def _watch(world: World) -> AbstractContextManager[None]:
    from simulations.kernel.watching import watched

    return watched(world.fence)


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
