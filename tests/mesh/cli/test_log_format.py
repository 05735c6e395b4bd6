"""The log of a broker's process: with `--log-format json` nothing on standard error is anything else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import ends_with_tests
from tests.support.ports import free_port

pytestmark = pytest.mark.process


def broker(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mesh", "broker", "--name", "alpha", *flags]
    return subprocess.Popen(ends_with_tests(command), stderr=subprocess.PIPE, text=True)


def test_every_line_from_start_to_end_is_an_object() -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    running = broker("--listen", url, "--log-format", "json", "--log-level", "info")
    assert running.stderr is not None
    try:
        lines = []
        while not lines or "is ready" not in lines[-1]["message"]:
            lines.append(json.loads(running.stderr.readline()))
        running.send_signal(signal.SIGTERM)
        lines += [json.loads(line) for line in running.stderr]
        assert running.wait(240) == 0
    finally:
        running.kill()
        running.wait()
        running.stderr.close()
    assert all({"ts", "level", "logger", "message"} <= line.keys() for line in lines)
    assert lines[-1]["message"] == "alpha has left" and lines[-1]["logger"] == "mesh.life"
    assert any(line["logger"] == "mesh" and line["level"] == "info" for line in lines)


def test_a_start_that_fails_is_an_object_too() -> None:
    running = broker("--listen", "tcp://192.0.2.1:7770", "--log-format", "json")
    _, said = running.communicate(timeout=240)
    assert running.returncode == 69
    told = json.loads(said)
    assert told["level"] == "error" and "cannot listen" in told["message"]


def test_a_format_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mesh", "broker", "--log-format", "xml"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert ran.returncode == 64
    assert ran.stderr == "mesh broker: --log-format: broker.log_format is 'xml'; it takes text, json\n"
