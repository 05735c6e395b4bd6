"""The plugin for pytest gives worlds to tests that ask for them, and does not affect other projects."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "pytest_mangrove"
LISTED = """
    import sys

    def test_nothing_of_ours_is_loaded():
        names = {name.partition(".")[0] for name in sys.modules}
        assert not names & {"protocols", "mesh", "simulations", "msgspec", "msgpack"}
"""
OURS = "def test_world(world): ..."


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pytest plugins of this environment, including the installed copy of this one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(code)
    return pytester.runpytest_subprocess("-p", PLUGIN, "--strict-markers", *arguments)


def folder_called(pytester: pytest.Pytester, name: str) -> None:
    (pytester.mkpydir(name) / "traffic.py").write_text("CARS = 3\n")


# --- in other projects


def test_the_plugin_is_installed_under_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert f"{PLUGIN}.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]


def test_the_plugin_loads_no_mangrove_module_in_a_project_without_worlds(pytester: pytest.Pytester) -> None:
    run(pytester, LISTED).assert_outcomes(passed=1)


@pytest.mark.parametrize("name", ["protocols", "mesh", "simulations"])
def test_a_project_may_have_a_folder_of_one_of_our_names(pytester: pytest.Pytester, name: str) -> None:
    folder_called(pytester, name)
    pytester.makepyfile(f"from {name}.traffic import CARS\n\ndef test_theirs(): assert CARS == 3")
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN]  # which looks into this folder first
    ran = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["protocols", "mesh", "simulations"])
def test_a_folder_that_hides_the_simulator_is_named_by_tests_that_need_it(
    pytester: pytest.Pytester, name: str
) -> None:
    folder_called(pytester, name)
    pytester.syspathinsert()
    result = run(pytester, OURS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*needs the package `{name}` of mangrove-mesh*{pytester.path / name}: *"])


def test_a_module_that_hides_the_simulator_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(simulations="")
    pytester.syspathinsert()
    run(pytester, OURS).stdout.fnmatch_lines(["*that name is */simulations.py: rename it*"])


def test_a_folder_of_data_of_that_name_hides_nothing(pytester: pytest.Pytester) -> None:
    pytester.mkdir("simulations")
    pytester.syspathinsert()
    run(pytester, OURS).assert_outcomes(passed=1)


# --- in tests that ask for a world


def test_the_example_of_the_guide_is_a_test_for_many_seeds(pytester: pytest.Pytester) -> None:
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


def test_a_failure_in_the_world_fails_the_test(pytester: pytest.Pytester) -> None:
    code = """
        import time

        async def main(process):
            time.time()

        def test_quiet(world):
            world.add_node("a", main).start()
            world.run_for(1)
    """
    result = run(pytester, code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*in the simulated world:*", "*a: main ended by an exception: Escaped*"])


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


def test_a_mark_gives_the_world_its_options(pytester: pytest.Pytester) -> None:
    code = """
        import pytest

        pytestmark = pytest.mark.world(chunked=True, keep_history=True)

        def test_of_the_module(world):
            assert world.chunked and world.history.kept is not None

        @pytest.mark.seeds(2)
        @pytest.mark.world(chunked=False)
        def test_of_its_own(world):
            assert not world.chunked and world.history.kept is not None
    """
    run(pytester, code).assert_outcomes(passed=3)


def test_a_mark_makes_one_test_strict(pytester: pytest.Pytester) -> None:
    code = """
        import pytest
        from datetime import datetime

        def look(world):
            async def main(process):
                datetime.now()

            world.add_node("alpha", main).start()
            world.run_for(1)

        def test_lenient(world):
            look(world)

        @pytest.mark.world(strict=True)
        def test_strict(world):
            look(world)
    """
    result = run(pytester, code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_strict*", "*datetime.datetime.now was called*"])


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ("chunky=True", "a world has no option chunky; it has strict, *chunked*"),
        ("seed=3", "a world has no option seed; *the mark `seeds` chooses seeds"),
        ("3", "world(3,): a world takes its options by name"),
    ],
)
def test_a_mistake_in_a_mark_is_one_sentence(pytester: pytest.Pytester, mark: str, sentence: str) -> None:
    result = run(pytester, f"import pytest\n@pytest.mark.world({mark})\ndef test_it(world): ...")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{sentence}*"])
