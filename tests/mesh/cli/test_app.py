"""Every way a command may end without a broker: one sentence, the right exit code, never a traceback."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mesh.cli import app as application
from mesh.cli.exits import ExitCode, explain
from mesh.cli.signals import interrupts_kept
from mesh.errors import ConfigError, Disconnected, Locked, MeshTimeout, NoResponders, StorageError, TopicError
from protocols.errors import AddressError, ConnectionRefused
from tests.protocols.blocking.support import silent_listener
from tests.support.children import ends_with_tests

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("MANGROVE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the sentence of a command that fails."""
    code = application.main(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, f"one sentence, not: {said.err}"
    assert said.err.startswith("mesh")
    return code, said.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["stats"], 64, "there is no such command; did you mean 'status'?"),
        (["zzz"], 64, "there are broker, pub, sub"),
        (["pub"], 64, "TOPIC"),
        (["pub", "news.uk", "x", "--lvel", "sent"], 64, "--lvel"),
        (["pub", "news.uk", "x", "--timeout", "soon"], 64, "soon"),
        (["pub", "news.uk", "x", "--timeout", "-1"], 64, "must be above zero"),
        (["pub", "news.uk", "x", "--url", "tpc://x"], 64, "--url"),
        (["pub", "news.uk", "x", "-H", "nokey"], 64, "not KEY=VALUE"),
        (["pub", "news.uk", "x", "--file", "y"], 64, "not both"),
        (["pub", "news.uk", "--file", "nowhere"], 66, "nowhere: No such file"),
        (["pub", "news.uk", "x", "--level", "kept"], 64, "kept"),
        (["sub", "a", "--count", "0"], 64, "--count"),
        (["sub", "a", "--timeout", "-1"], 64, "--timeout"),
        (["survey", "a", "--deadline", "0"], 64, "--deadline"),
        (["sub", "a", "--timeout", "inf"], 64, "at most 2592000"),
        (["pub", "news.uk", "x", "--timeout", "inf"], 64, "--timeout: client.timeout_s must be above zero"),
        (["survey", "a", "--deadline", "1e9"], 64, "at most 2592000"),
        (["sub", "a", "--raw", "--json"], 64, "give --raw or --json, not both"),
        (["pub", "news.uk", "--file", "/"], 66, "--file / is a folder"),
        (["pub", "news.uk", "--file", "/dev/zero"], 65, "--file /dev/zero has more than the 67108864 bytes"),
        (["request", "a", "b", "c", "d"], 64, "mesh request: 'c' 'd': more arguments than it takes."),
        (["simulate", "calm", "--seed", "x"], 64, '"x" is no whole number. See mesh simulate --help.'),
        (["broker", "--period", "inf"], 64, "--period: broker.period_s must be above zero and at most"),
        (["broker", "--period", "0.1"], 64, "--period: broker.deadline_s is 0.5 (default) and must be at"),
        (["broker", "--listen", "inproc://x"], 64, "reaches only the program itself"),
        (["broker", "--join", "inproc://x"], 64, "reaches only the program itself"),
        (
            ["simulate", "calm", "--nodes", "129"],
            64,
            "129 brokers; a full mesh of more than 128 takes too long",
        ),
        (["analyze", ".", "--window", "0"], 64, "a window of 0 s"),
        (["analyze", ".", "--out", __file__], 73, "name another folder"),
        (["config", "init", "nowhere/x.toml"], 73, "nowhere/x.toml: its folder does not exist"),
        (["sub"], 64, "say what to subscribe to"),
        (["config", "check", "nowhere.toml"], 78, "no such configuration file"),
        (["config", "shw"], 64, "shw"),
        (["broker", "--config", "nowhere.toml"], 78, "no such configuration file"),
        (["broker", "--listen", "nowhere"], 64, "--listen"),
        (["broker", "--name", "a b"], 64, "--name"),
        (["pub", "bad topic", "x", "--url", "tcp://127.0.0.1:1"], 64, "topic 'bad topic' has"),
        (["pub", "$sys.x", "x", "--url", "tcp://127.0.0.1:1"], 64, "such topics are the mesh's own"),
        (["sub", "a.#.b", "--url", "tcp://127.0.0.1:1"], 64, "pattern 'a.#.b' has"),
        (["request", "a..b", "x", "--url", "tcp://127.0.0.1:1"], 64, "topic 'a..b' has"),
        (["survey", "a..b", "x", "--url", "tcp://127.0.0.1:1"], 64, "topic 'a..b' has"),
        (["broker", "--mesh-key-file", "nowhere"], 78, "the mesh key cannot be read"),
    ],
)
def test_misuse_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
) -> None:
    ended, said = failed(capsys, *arguments)
    assert sentence in said
    assert ended == code


def no_state(cause: OSError) -> StorageError:
    """As a broker raises it that cannot keep its state."""
    error = StorageError("cannot keep state in /state/alpha")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 78),
        (TopicError("x"), 64),
        (AddressError("x"), 64),
        (MeshTimeout("x"), 75),
        (TimeoutError(), 75),
        (Disconnected("x"), 69),
        (NoResponders("x"), 69),
        (ConnectionRefused("x"), 69),
        (Locked("/state", 7), 69),
        (FileNotFoundError(2, "No such file or directory", "logs"), 66),
        (PermissionError(13, "Permission denied", "/var/log"), 77),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 65),
        (ExceptionGroup("tasks", [ExceptionGroup("inner", [Disconnected("x")])]), 69),
        (OSError(28, "No space left on device"), 74),
        (no_state(OSError(28, "No space left on device", "/state/alpha")), 74),
        (no_state(PermissionError(13, "Permission denied", "/state/alpha")), 77),
        (no_state(OSError(20, "Not a directory", "/state/alpha")), 1),
        (OSError(24, "Too many open files"), 1),
        (KeyError("x"), 70),
    ],
)
def test_each_kind_of_failure_has_its_code(error: Exception, code: int) -> None:
    ended, sentence = explain(error)
    assert ended == code
    assert sentence
    assert "\n" not in sentence


def test_an_internal_error_is_a_sentence_unless_the_traceback_is_requested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*patterns: str) -> int:
        raise KeyError("oops")

    monkeypatch.setattr("mesh.cli.messages.sub", broken)
    ended, said = failed(capsys, "sub", "a")
    assert ended == ExitCode.BUG
    assert "KeyError" in said
    monkeypatch.setenv("MANGROVE_DEBUG", "1")
    with pytest.raises(KeyError):
        application.main(["sub", "a"])


@pytest.mark.parametrize("command", [["config", "check"], ["broker", "--config"]])
def test_a_missing_certificate_is_a_configuration_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    """`config check` found no mistake. The broker ended with 69, so its unit restarted it forever."""
    file = tmp_path / "a.toml"
    file.write_text("[broker]\nlisten = ['tls+tcp://127.0.0.1:0']\ntls_cert = 'nowhere.pem'\n")
    code, said = failed(capsys, *command, str(file))
    assert code == ExitCode.CONFIG and "nowhere.pem" in said


def test_an_unconfirmed_subscription_is_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    """It ended with 0 and no word, as one that had heard all there was."""
    with silent_listener() as (url, _):
        assert failed(capsys, "sub", "a", "--timeout", "0.05", "--url", url) == (
            ExitCode.TIMEOUT,
            "mesh sub: no broker had confirmed the subscription within 0.05 s\n",
        )


def test_config_show_says_where_each_value_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mangrove.toml").write_text('[broker]\nname = "alpha"\n')
    monkeypatch.setenv("MANGROVE_URL", "tcp://127.0.0.1:1")
    monkeypatch.setenv("MANGROVE_LISEN", "x")
    assert application.main(["config", "show", "--origin"]) == 0
    said = capsys.readouterr()
    assert 'name = "alpha"' in said.out
    assert "# mangrove.toml:2" in said.out
    assert "# environment MANGROVE_URL" in said.out
    assert "MANGROVE_LISEN is set but is not a variable of mesh" in said.err


def test_config_init_never_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert application.main(["config", "init", "new.toml"]) == 0
    assert application.main(["config", "check", "new.toml"]) == 0
    capsys.readouterr()
    ended, said = failed(capsys, "config", "init", "new.toml")
    assert ended == 1
    assert "left as it is" in said
    assert application.main(["config", "init"]) == 0
    assert capsys.readouterr().out == (tmp_path / "new.toml").read_text()


def test_an_unset_secret_is_not_shown_and_a_key_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.main(["config", "show"]) == 0
    assert "mesh_key =" not in capsys.readouterr().out
    assert failed(capsys, "broker", "--mesh-key", "secret")[0] == 64


def test_python_m_mesh_is_mesh() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mesh", "--version"], capture_output=True, text=True, cwd=ROOT, timeout=240
    )
    assert ran.returncode == 0
    assert ran.stdout.strip()


def test_a_file_with_impossible_heartbeat_times_fails_the_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text("[broker]\nperiod_s = 0.1\ndeadline_s = 3\n")
    ended, said = failed(capsys, "config", "check", "f.toml")
    assert ended == 78
    assert "f.toml:3: broker.deadline_s is 3 (f.toml:3) and must be at most broker.period_s" in said


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
class Impatient:
    def find_spec(self, name, path, target=None):
        if name == "mesh.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Impatient())
from mesh.cli.start import main
sys.exit(main())
"""


def test_an_interrupt_while_the_program_is_loading_is_130_and_silent() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_LOADING],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


MESH = f"{shlex.quote(sys.executable)} -m mesh"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ends_with_tests(["bash", "-c", command.replace("mesh ", f"{MESH} ", 1)]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )


def test_an_interrupt_within_a_destructor_is_not_lost() -> None:
    """Ctrl-C while Python ran a callback of a weak reference printed a traceback, and the swarm went on. And
    of many that were dropped one came after the end, in whatever ran then."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def work() -> None:
        while True:
            Dying()
            for _ in range(10_000):
                pass

    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        work()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_closed_standard_streams_are_no_fault() -> None:
    ran = shell("mesh config show --json >&-")
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = shell("mesh nonsense 2>&-")
    assert (ran.returncode, ran.stdout) == (64, ""), "errors do not go to standard output"
    assert shell("mesh pub news.uk --file - --url tcp://127.0.0.1:1 <&-").returncode == 69


def test_a_full_disk_behind_standard_output_is_reported() -> None:
    ran = shell("mesh config init >/dev/full")
    assert ran.returncode == ExitCode.IO_ERROR
    assert ran.stderr == "mesh config: standard output cannot be written: No space left on device\n"


def test_a_configuration_without_room_on_the_disk_leaves_no_file(tmp_path: Path) -> None:
    """`mesh config init` left an empty file on a full disk, which the next attempt found in its way. Files
    of at most 0 blocks stand for the disk."""
    ran = shell(f"ulimit -f 0; mesh config init {shlex.quote(str(tmp_path / 'm.toml'))}")
    assert ran.returncode == ExitCode.CANNOT_CREATE
    assert ran.stderr == f"mesh config: {tmp_path / 'm.toml'}: File too large\n"
    assert not list(tmp_path.iterdir())


def test_config_check_names_all_mistakes_even_those_between_values(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("[broker]\nnam = 'b'\nperiod_s = 0\n")
    ran = shell(f"mesh config check {shlex.quote(str(path))}")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (ExitCode.CONFIG, 2)
    assert f"{path}:2: unknown key" in ran.stderr and f"{path}:3: broker.period_s" in ran.stderr
    path.write_text("[broker]\nlisten = ['tls+tcp://:7771']\n")
    ran = shell(f"mesh config check {shlex.quote(str(path))}")
    assert (ran.returncode, ran.stdout) == (ExitCode.CONFIG, "")
    assert "tls+tcp://:7771 needs a certificate" in ran.stderr


def test_warnings_of_libraries_are_sentences_of_the_command() -> None:
    """They stood bare between lines that begin with the command's name."""
    ran = shell("mesh cat --pair --dial tcp://127.0.0.1:1")
    assert ran.returncode == 69
    assert "dialling tcp://127.0.0.1:1 failed" in ran.stderr
    assert all(line.startswith("mesh cat: ") for line in ran.stderr.splitlines()), ran.stderr


def test_a_broken_pipe_that_a_library_turned_into_an_exit_is_141(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = []

    def broken(*patterns: str) -> int:
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1) from None  # as rich does

    monkeypatch.setattr("mesh.cli.messages.sub", broken)
    monkeypatch.setattr(application, "_drop_output", lambda: dropped.append(True))
    assert application.main(["sub", "a"]) == ExitCode.BROKEN_PIPE
    assert dropped


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{MESH} config init | head -c 1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert ran.stderr == ""
    assert ran.returncode in (0, ExitCode.BROKEN_PIPE), "0 if all of it fitted into the pipe"


@pytest.mark.parametrize("name", [name for name, _, _ in application.COMMANDS])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that are applications of their own could not be given a usage line, and were broken by one."""
    assert application.main([name, "--help"]) == 0
    assert f"mesh {name}" in capsys.readouterr().out
