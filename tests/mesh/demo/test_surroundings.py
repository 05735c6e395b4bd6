"""The demonstration runs in any environment, or says in one sentence what prevents it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from mesh.cli.app import main
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.demo import cli as module
from mesh.demo.cli import MARK, _fresh, demo
from mesh.demo.federation import Federation, Member, undisturbed
from mesh.demo.story import Say
from mesh.demo.verdict import Event
from mesh.logs import log


def test_the_demonstrations_brokers_know_nothing_of_the_users_own() -> None:
    """A variable such as MANGROVE_JOIN would make them join the user's mesh."""
    environ = {"PATH": "/bin", "MANGROVE_JOIN": "tcp://prod:7770", "MANGROVE_MESH_KEY": "secret"}
    assert undisturbed(environ | {"MANGROVE_DEBUG": "1"}) == {"PATH": "/bin", "MANGROVE_DEBUG": "1"}


def test_only_a_folder_of_a_demonstration_is_emptied(tmp_path: Path) -> None:
    folder = _fresh(tmp_path / "a" / "out")
    (folder / "logs").mkdir()
    assert [each.name for each in _fresh(folder).iterdir()] == [MARK]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("")
    with pytest.raises(CommandFailed, match="holds something else") as caught:
        _fresh(tmp_path / "mine")
    assert caught.value.code == ExitCode.CANNOT_CREATE, "it was 1, where the reference says 73"
    assert (tmp_path / "mine" / "thesis").exists()


@pytest.mark.parametrize("out", ["/proc/nowhere/out", "/dev/null", "/dev/null/out"])
def test_a_folder_that_cannot_be_made_is_one_sentence(out: str) -> None:
    with pytest.raises(CommandFailed, match=f"--out {out} cannot be made: ") as caught:
        _fresh(Path(out))
    assert caught.value.code == ExitCode.CANNOT_CREATE


def test_a_missing_spark_is_reported_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["demo", "--out", str(tmp_path / "out")]) == ExitCode.UNAVAILABLE
    assert "the demonstration needs pyspark" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demonstration_that_is_told_to_end_leaves_no_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    """Its brokers ran on forever, in sessions of their own."""
    federations: list[Federation] = []
    before = signal.signal(number, signal.default_int_handler)

    async def act(federation: Federation, console: Console, *, live: bool) -> None:
        federations.append(federation)
        member = federation.members["alpha"] = Member("alpha")
        member.process = federation._spawn("alpha", [sys.executable, "-c", "import time; time.sleep(600)"])
        member.process.send_signal(signal.SIGSTOP)
        os.kill(os.getpid(), number)
        await asyncio.sleep(600)

    monkeypatch.setattr("mesh.demo.cli._act", act)
    try:
        with pytest.raises(SystemExit) as ended:
            demo(out=tmp_path / "out", plain=True)
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    (federation,) = federations
    process = federation.members["alpha"].process
    assert process is not None and process.returncode == -signal.SIGKILL


def test_the_demonstrations_own_faults_cause_no_warnings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients warned of the broker that the demonstration had killed, in the middle of its story."""
    monkeypatch.setattr(log, "propagate", False)  # pytest's handlers are at the root
    monkeypatch.setattr(log, "handlers", [])  # other tests may leave theirs

    async def started(self: Federation) -> None: ...

    async def faults(federation: Federation, say: Say) -> tuple[list[Event], None]:
        say("beta killed with SIGKILL")
        log.warning("no session with the broker at %s", "tcp://127.0.0.1:1")
        log.error("a defect")
        return [], None

    async def left(federation: Federation, say: Say) -> list[Event]:
        log.warning("no session with the broker at %s", "tcp://127.0.0.1:2")
        return []

    monkeypatch.setattr(Federation, "start_all", started)
    monkeypatch.setattr(module, "run_faults", faults)
    monkeypatch.setattr(module, "leave", left)
    shown = StringIO()
    asyncio.run(module._act(Federation(tmp_path), Console(file=shown, width=200), live=False))
    assert "beta killed with SIGKILL" in shown.getvalue()
    log.warning("of something else")
    assert [line.split(": ")[-1] for line in capsys.readouterr().err.splitlines()] == [
        "a defect",
        "of something else",
    ]
