"""On an unsupported system, an import ends with one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRETEND = """
import sys
sys.platform = "win32"
for absent in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[absent] = None
"""
SENTENCE = "Mangrove runs on Linux, macOS and other Unix systems, not on Windows; there, use it in WSL"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRETEND + code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "statement",
    [
        "import protocols",
        "from protocols.dialling import Dialer",
        "from mesh import Broker",
        "from mesh import Client",
        "from mesh import MeshError",
        "from simulations import World",
    ],
)
def test_an_import_on_windows_is_an_import_error_that_says_so(statement: str) -> None:
    """`from mesh import Broker` ended in a traceback about a missing `fcntl`."""
    ran = run(statement)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"ImportError: {SENTENCE}"


def test_the_command_on_windows_says_so_without_a_traceback() -> None:
    ran = run("from mesh.cli.start import main; sys.exit(main())")
    assert (ran.returncode, ran.stdout, ran.stderr) == (69, "", f"mesh: {SENTENCE}\n")
