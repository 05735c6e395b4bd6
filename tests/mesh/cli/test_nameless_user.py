"""A broker and its commands run for a user id without a passwd entry and without a HOME, as in containers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

NAMELESS = """
import os
import pwd
import sys

def no_entry(key):
    raise KeyError(key)

pwd.getpwuid = pwd.getpwnam = no_entry
from mesh.cli.app import main

sys.exit(main(sys.argv[1:]))
"""


def nameless(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ends_with_tests([sys.executable, "-c", NAMELESS, *arguments]),
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_and_its_status_need_no_user_name(tmp_path: Path) -> None:
    broker = nameless(
        tmp_path,
        *("broker", "--name", "alpha", "--listen", "tcp://127.0.0.1:0", "--state-dir", "state"),
        *("--listen", f"ipc://{tmp_path}/a.sock"),
    )
    try:
        assert broker.stderr is not None
        assert "alpha" in (line := broker.stderr.readline()) and "is ready" in line
        status = nameless(tmp_path, "status", "--url", f"ipc://{tmp_path}/a.sock")
        out, err = status.communicate(timeout=60)
        assert (status.returncode, err) == (0, "") and "alpha" in out
    finally:
        broker.terminate()
        _, rest = broker.communicate(timeout=60)
    goodbye = "mesh broker: alpha leaves: SIGTERM\nmesh broker: alpha has left\n"
    assert (broker.returncode, rest) == (0, goodbye)


def test_a_key_file_below_an_unknown_home_folder_is_one_sentence(tmp_path: Path) -> None:
    broker = nameless(tmp_path, "broker", "--mesh-key-file", "~/key")
    _, err = broker.communicate(timeout=60)
    assert (broker.returncode, err) == (
        78,
        "mesh broker: ~/key: this user has no home folder; write the whole path\n",
    )
