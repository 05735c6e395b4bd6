"""Every example ends on Ctrl-C at once, without a traceback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples.programs import FOLDER
from tests.mesh.cli.test_commands import TIMEOUT_S, Sandbox, sandbox
from tests.support.children import ends_with_tests
from tests.support.ports import free_port

__all__ = ["sandbox"]

PROGRAMS = {
    "chat": ("ada",),
    "counter": ("visitors", "1"),
    "fleet_survey": ("agent", "--name", "truck-1"),
    "request_workers": ("work",),
    "sql_writer": ("readings.db",),
    "task_queue": ("work",),
    "telemetry": ("sensors",),
    "web_broker": (),
}
"""Words that make each of them run on. Three more install handlers of their own, and end with 0."""


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_it(name: str, sandbox: Sandbox) -> None:
    broker = sandbox.broker("alpha", "--state-dir", "state")
    sandbox.environment["PORT"] = str(free_port())
    url = () if name == "web_broker" else ("--url", broker.url)
    process = subprocess.Popen(
        ends_with_tests([sys.executable, "-W", "error", str(FOLDER / f"{name}.py"), *PROGRAMS[name], *url]),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    sandbox.running.append(process)
    assert process.stdout is not None
    said = ""
    while not re.search("subscribed|ready|startup complete", said):
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in rest, rest
    assert process.returncode in ((0, 130) if name == "web_broker" else (130,)), rest
    assert Path(FOLDER).is_dir()
