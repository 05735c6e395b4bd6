"""CI depends only on the tests: findings or failures of fresh simulator seeds do not change its result."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci/run"
TOOLS = ("nngcat", "nanocat", "ip", "nft", "promtool", "chromium", "systemd-analyze", "gcc")
INSTALLERS = ("apt-get", "sudo")
"""Headers that are not commands."""


def ci(
    folder: Path, *, test: str = "exit 0", test_all: str = "exit 0", swarm: str = "exit 0"
) -> subprocess.CompletedProcess[str]:
    """Run the script in a checkout with a fake `make`."""
    commands = folder / "bin"
    commands.mkdir()
    make = f"""#!/bin/sh
        case "$*" in
            test) echo tested; {test};;
            test-all) echo "tested all"; {test_all};;
            *swarm*) echo "swarm: $*"; {swarm};;
        esac
    """
    for name, text in {**dict.fromkeys((*TOOLS, *INSTALLERS), "#!/bin/sh\n"), "make": make}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci/run")
    path = f"{commands}:{os.environ['PATH']}"
    return subprocess.run(
        [folder / ".ci/run"],
        env={**os.environ, "PATH": path, "FRESH_SEEDS_S": "1", "TEST_S": "2", "TEST_ALL_S": "2"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_fresh_seeds_are_played_after_the_tests_in_bounds(tmp_path: Path) -> None:
    done = ci(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("tested\n") < done.stdout.index("tested all") < done.stdout.index("swarm: ")
    assert "SEEDS=20" in done.stdout and "MINUTES=1.5" in done.stdout


@pytest.mark.parametrize("which", ["test", "test_all"])
def test_tests_that_fail_fail_ci_and_no_seeds_are_played(tmp_path: Path, which: str) -> None:
    done = ci(tmp_path, **{which: "exit 2"})
    assert done.returncode == 2 and "swarm: " not in done.stdout
    assert "tested\n" in done.stdout and "tested all" in done.stdout, "both are run"


@pytest.mark.parametrize("which", ["test", "test_all"])
def test_tests_that_hang_fail_ci_in_time_with_a_sentence(tmp_path: Path, which: str) -> None:
    done = ci(tmp_path, **{which: "trap 'echo where it was; exit 2' INT; while :; do sleep 0.1; done"})
    assert done.returncode == 124 and "swarm: " not in done.stdout
    assert f"make {which.replace('_', '-')} did not end within 2 s" in done.stderr
    assert "where it was" in done.stdout


@pytest.mark.parametrize(
    "swarm", ["exit 1", "kill -9 $$", "sleep 600", "trap '' INT; while :; do sleep 1; done"]
)
def test_ci_passes_in_time_for_any_outcome_of_fresh_seeds(tmp_path: Path, swarm: str) -> None:
    done = ci(tmp_path, swarm=swarm)
    assert done.returncode == 0, done.stderr
    assert "ended early" in done.stdout
