"""SIGHUP reloads a running broker and says what it could not take; a terminal that goes makes it leave."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.broker.reloading import Reloaded
from mesh.cli.serving import reload_sentence
from tests.mesh.cli.test_commands import TIMEOUT_S, Running, Sandbox, first_line, sandbox
from tests.support.children import ends_with_tests

__all__ = ["sandbox"]


@pytest.fixture(autouse=True)
def hangups_reach_brokers() -> Iterator[None]:
    """Processes of these tests do not ignore SIGHUP, although tests under ``nohup`` do."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # a handler is not inherited, ignoring is
    yield
    signal.signal(signal.SIGHUP, before)


def test_the_result_of_a_reload_is_one_sentence() -> None:
    assert reload_sentence(Reloaded((), (), 0)) == "the configuration is as it was"
    assert reload_sentence(Reloaded(("export",), ("mesh", "name"), 2)) == (
        "certificates of 2 addresses are read again for new connections; export replaced; "
        "mesh, name changed but need a restart of the broker"
    )


def line_about(process: subprocess.Popen[str], word: str) -> str:
    while word not in (line := first_line(process)):
        assert line, "it ended"
    return line.strip()


@pytest.mark.process
def test_a_hangup_signal_reloads_and_names_the_options_that_need_a_restart(sandbox: Sandbox) -> None:
    """It used to kill the broker without a goodbye, which the others counted as a crash."""
    file = sandbox.folder / "broker.toml"
    file.write_text('[broker]\nexport = ["news.#"]\n')
    alpha = sandbox.broker("alpha", "--config", str(file), "--log-dir", "logs")
    for content, said in (
        ('export = ["sport.#"]\nmesh = "other"\n', "export replaced; mesh changed but needs a restart"),
        ('export = ["sport.#"]\n', "the configuration is as it was"),
        ("colour = 3\n", f"nothing is changed: {file}:2: unknown key 'colour' in [broker]"),
        ('export = ["a..b"]\n', f"nothing is changed: {file}:2: broker.export has a bad pattern"),
    ):
        file.write_text("[broker]\n" + content)
        alpha.process.send_signal(signal.SIGHUP)
        line = line_about(alpha.process, "SIGHUP")
        assert line.startswith(f"mesh broker: SIGHUP: {said}"), line
    alpha.process.send_signal(signal.SIGTERM)
    assert alpha.process.wait(TIMEOUT_S) == 0


@pytest.mark.process
def test_a_broker_leaves_with_a_goodbye_when_its_terminal_closes(tmp_path: Path) -> None:
    terminal, inside = pty.openpty()
    ports, logs = tmp_path / "ports", tmp_path / "logs"
    command = [sys.executable, "-m", "mesh", "broker", "--name", "alpha", "--listen", "tcp://127.0.0.1:0"]
    process = subprocess.Popen(
        ends_with_tests([*command, "--ports-file", str(ports), "--log-dir", str(logs)]),
        **{name: inside for name in ("stdin", "stdout", "stderr")},
        start_new_session=True,
        preexec_fn=become_its_terminal,
    )
    os.close(inside)
    try:
        assert b"is ready" in os.read(terminal, 4096)
        os.close(terminal)  # the kernel sends SIGHUP to the session's leader
        assert process.wait(TIMEOUT_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert '"to_state":"left"' in "".join(file.read_text() for file in logs.iterdir())


def become_its_terminal() -> None:
    """Make the terminal on standard input the controlling one of the new session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.process
def test_a_broker_that_has_not_joined_yet_says_that_it_listens_and_not_that_it_is_ready(
    sandbox: Sandbox,
) -> None:
    alpha: Running = sandbox.broker("alpha", "--join", "tcp://127.0.0.1:1")
    assert first_line(alpha.process).startswith(
        f"mesh broker: alpha ({alpha.ports['id']}) listens at {alpha.url} and joins tcp://127.0.0.1:1"
    )
    bravo: Running = sandbox.broker("bravo")
    assert "is ready at" in line_about(bravo.process, "bravo")
    late: Running = sandbox.broker("late", "--join", bravo.url)
    assert "listens at" in first_line(late.process)
    assert "is ready at" in line_about(late.process, "ready")
