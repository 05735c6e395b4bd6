"""What users have of the simulator: a mesh in a world for their own programs, and the plugin for pytest."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from mesh import Client
from simulations import Mesh, Process, Violated, World

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "simulations.pytest_plugin"


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(code)
    return pytester.runpytest_subprocess("-p", PLUGIN, "--strict-markers", *arguments)


async def idle(client: Client) -> None:
    return None


def test_a_mesh_that_nothing_is_done_to_is_found_right() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("idle", idle)
        assert mesh.whole
        assert mesh.broker("broker-2").name == "broker-2"
        verdicts = mesh.finish()
    assert {"converged", "one_digest", "records_only_grow"} <= {verdict.check for verdict in verdicts}
    assert all(verdict.ok for verdict in verdicts)
    assert [process.name for process in world.processes] == [*mesh.brokers, "idle"]


def test_a_run_is_the_same_again() -> None:
    def digest(seed: int) -> str:
        with World(seed) as world:
            mesh = Mesh(world, brokers=2)
            world.inject("crash", ["broker-2"], for_s=2)
            world.run_for(5)
            mesh.finish()
            return world.history.digest

    assert digest(3) == digest(3) != digest(4)


def test_a_broker_that_never_comes_back_is_a_violation() -> None:
    """What came for one life only is not started by a heal."""
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        world.inject("crash", ["broker-3"])
        world.node("broker-3").once = True
        with pytest.raises(Violated, match="converged: broker-3 is not up") as caught:
            mesh.finish()
    assert "with seed 1" in str(caught.value)


def test_a_client_that_raises_is_a_failure_of_the_world() -> None:
    async def broken(client: Client) -> None:
        raise LookupError("no such shelf")

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("broken", broken)
        world.run_for(1)
        assert [str(failure.exception) for failure in world.failures] == ["no such shelf"]


def test_a_broker_that_is_down_is_named() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("crash", ["broker-2"])
        with pytest.raises(ValueError, match="broker-2 is no broker that is up"):
            mesh.broker("broker-2")
        assert not mesh.whole


# --- the plugin


def test_the_example_of_the_guide_is_a_test_for_twenty_seeds(pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs/guides/testing-with-worlds.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert example is not None
    code = example[1].replace("def test_", "@pytest.mark.seeds(3, first=11)\ndef test_")
    result = run(pytester, "import pytest\n" + code, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_counter_survives_its_broker?seed13? PASSED*"])


def test_a_failure_names_its_seed_and_how_to_see_it_again(pytester: pytest.Pytester) -> None:
    code = """
        import pytest

        @pytest.mark.seeds(3)
        def test_two(world):
            world.run_for(1.5)
            assert world.seed != 2
    """
    result = run(pytester, code)
    result.assert_outcomes(passed=2, failed=1)
    lines = ["*seed 2, at 1.500 s, history *", "again: pytest '*::test_two?seed2?' --simulation-seed 2"]
    result.stdout.fnmatch_lines(lines)
    again = pytester.runpytest_subprocess("-p", PLUGIN, "--simulation-seed", "2")
    again.assert_outcomes(failed=1)
    first, second = (re.findall(r"history ([0-9a-f]{32})", run.stdout.str()) for run in (result, again))
    assert first == second != []


def test_what_fails_in_the_world_fails_the_test(pytester: pytest.Pytester) -> None:
    code = """
        import time

        async def main(process):
            time.time()

        def test_quiet(world):
            world.add_node("a", main).start()
            world.run_for(1)
    """
    result = run(pytester, code)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*in the simulated world:*", "*a: main ended by an exception: Escaped*"])


def test_code_that_escapes_is_told_with_its_own_line_alone() -> None:
    async def main(process: Process) -> None:
        time.time()

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        (failure,) = map(str, world.failures)
        world.failures.clear()
    assert re.search(rf"time was called by {__name__}:\d+ inside a simulation", failure)
    assert "guards.py" not in failure


def test_one_seed_is_the_default_and_none_a_mistake(pytester: pytest.Pytester) -> None:
    code = """
        def test_seed(world, simulation_seed):
            assert world.seed == simulation_seed == 1
    """
    run(pytester, code).assert_outcomes(passed=1)
    result = run(pytester, "import pytest\n@pytest.mark.seeds(0)\ndef test_none(world): ...")
    result.stdout.fnmatch_lines(["*seeds(0) must be at least 1*"])
    result = run(pytester, "import pytest\n@pytest.mark.seeds('3')\ndef test_none(world): ...")
    result.stdout.fnmatch_lines(["*seeds('3', first=1) must be whole numbers*"])


def test_pytest_finds_the_plugin_where_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_the_plugin_loads_no_simulator() -> None:
    code = f"import sys, {PLUGIN}; print([name for name in sys.modules if name.startswith('simulations.')])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ran.stdout.strip() == f"['{PLUGIN}']", ran.stderr
