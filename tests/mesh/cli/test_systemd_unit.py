"""`mesh config systemd` prints a unit that systemd takes, with what the configuration has in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.cli.app import main
from mesh.cli.exits import ExitCode
from mesh.cli.systemd_unit import Service, quoted, unit
from mesh.config.sections import BrokerConfig
from tests.mesh.cli.test_commands import TIMEOUT_S, Sandbox, sandbox

__all__ = ["sandbox"]

SERVICE = Service(("/opt/mangrove/bin/mesh",), "/etc/mangrove/config.toml")
FULL = BrokerConfig(
    name="alpha",
    listen=("tcp://:443", "ipc:///run/mangrove/broker"),
    mesh_key_file="/etc/mangrove/key",
    tls_cert="/etc/mangrove/cert.pem",
    tls_key="/etc/mangrove/cert.key",
    state_dir="/srv/a folder",
    log_dir="/var/log/mangrove/alpha",
    http="0.0.0.0:9770",
    http_readers="/etc/mangrove/password",
    drain_s=42.5,
)


def lines(service: Service = SERVICE, config: BrokerConfig | None = None) -> list[str]:
    return unit(service, config or BrokerConfig()).splitlines()


def value(found: list[str], key: str) -> str:
    [only] = [line.partition("=")[2] for line in found if line.startswith(f"{key}=")]
    return only


def test_a_broker_without_a_state_folder_is_given_one() -> None:
    found = lines()
    assert value(found, "ExecStart") == (
        "/opt/mangrove/bin/mesh broker --config /etc/mangrove/config.toml --state-dir ${STATE_DIRECTORY}"
    )
    assert value(found, "StateDirectory") == "mangrove" and value(found, "StateDirectoryMode") == "0700"
    assert value(found, "DynamicUser") == "yes" and value(found, "Type") == "notify"
    assert value(found, "CapabilityBoundingSet") == "" and value(found, "ProtectHome") == "yes"
    assert not any(
        line.startswith(("LogsDirectory", "LoadCredential", "User", "ReadWritePaths")) for line in found
    )


def test_the_unit_follows_the_configuration() -> None:
    found = lines(config=FULL)
    assert value(found, "ExecStart").endswith("--mesh-key-file ${CREDENTIALS_DIRECTORY}/mesh-key")
    assert value(found, "LoadCredential") == "mesh-key:/etc/mangrove/key"
    assert (
        value(found, "ReadWritePaths") == '"/srv/a folder"'
        and value(found, "LogsDirectory") == "mangrove/alpha"
    )
    assert value(found, "TimeoutStopSec") == "63", "clients have drain_s first"
    assert value(found, "AmbientCapabilities") == "CAP_NET_BIND_SERVICE"
    assert not any(line.startswith("StateDirectory") for line in found)
    assert any("read /etc/mangrove/cert.key and /etc/mangrove/password" in line for line in found)


def test_a_user_of_the_host_reads_the_key_himself() -> None:
    found = lines(Service(SERVICE.program, None, user="mesh", group="ssl-cert"), FULL)
    assert value(found, "User") == "mesh" and value(found, "SupplementaryGroups") == "ssl-cert"
    assert not any(line.startswith(("DynamicUser", "LoadCredential")) for line in found)
    assert value(found, "ExecStart") == "/opt/mangrove/bin/mesh broker"


@pytest.mark.parametrize(
    ("state_dir", "line"),
    [
        ("/var/lib/mesh/a", "StateDirectory=mesh/a"),
        ("/var/lib", "ReadWritePaths=/var/lib"),
        ("/var/lib/../tmp", "ReadWritePaths=/var/lib/../tmp"),
        ("/var/library/x", "ReadWritePaths=/var/library/x"),
    ],
)
def test_systemd_makes_the_folders_that_are_below_its_own(state_dir: str, line: str) -> None:
    assert line in lines(config=BrokerConfig(state_dir=state_dir))


def test_a_program_in_a_home_folder_can_be_read() -> None:
    assert value(lines(Service(("/home/ada/.venv/bin/mesh",))), "ProtectHome") == "read-only"


@pytest.mark.parametrize("http", ["80", "127.0.0.1:80"])
def test_a_low_port_of_http_needs_the_same_right(http: str) -> None:
    assert value(lines(config=BrokerConfig(http=http)), "AmbientCapabilities") == "CAP_NET_BIND_SERVICE"


def test_words_are_quoted_as_systemd_reads_them() -> None:
    assert [quoted(word) for word in ("/a/b-c", "a b", "50%", "$HOME", 'say "x"', "a\\b", "")] == [
        "/a/b-c",
        '"a b"',
        '"50%%"',
        '"$$HOME"',
        '"say \\"x\\""',
        '"a\\\\b"',
        '""',
    ]


def test_the_command_reads_the_file_and_warns_of_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[broker]\nstate_dir = "/var/lib/mesh"\ndrain_s = 0\n')
    monkeypatch.setenv("MANGROVE_NAME", "alpha")
    assert main(["config", "systemd", "--config", str(file)]) == ExitCode.OK
    shown = capsys.readouterr()
    found = shown.out.splitlines()
    assert f"broker --config {file}" in value(found, "ExecStart") and value(found, "TimeoutStopSec") == "20"
    assert os.path.isabs(shlex.split(value(found, "ExecStart"))[0])
    assert shown.err.startswith(
        "mesh config: MANGROVE_NAME is set here, and the unit's broker does not have it"
    )


def test_a_wrong_file_or_name_gives_no_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[broker]\ncolour = 3\n")
    assert main(["config", "systemd", "--config", str(file)]) == ExitCode.CONFIG
    assert main(["config", "systemd", "--user", "two words\nExecStart=/bin/sh"]) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == "" and "--user" in shown.err


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("config", [BrokerConfig(), FULL], ids=["defaults", "everything"])
def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path, config: BrokerConfig) -> None:
    program = tmp_path / "mesh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "mangrove.service"
    file.write_text(unit(Service((str(program),), "/etc/mangrove/config.toml"), config))
    verified = analysed("verify", "--man=no", str(file))
    assert verified.returncode == 0 and "mangrove.service" not in verified.stderr, verified.stderr
    judged = analysed("security", "--offline=true", "--no-pager", str(file))
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure is not None and float(exposure[1]) < 2.0, judged.stdout + judged.stderr


def analysed(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


WITHOUT_EXECUTABLE_MEMORY = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    sys.exit(77)
os.execv(sys.executable, [sys.executable, "-m", "mesh", *sys.argv[1:]])
"""


@pytest.mark.process
def test_a_broker_needs_no_memory_that_is_written_and_executed(sandbox: Sandbox) -> None:
    """The unit denies it (MemoryDenyWriteExecute), and some libraries want it."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY, "config", "show"],
        env=sandbox.environment,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    if ran.returncode == 77:
        pytest.skip("this kernel cannot deny it")
    key = sandbox.ok("key", "new", "sensor.key").strip()
    (sandbox.folder / "b.toml").write_text(f'[principals.sensors]\nkeys = ["{key}"]\npublish = ["#"]\n')
    flags = ["--config", "b.toml", "--anonymous", "nowhere", "--http", "127.0.0.1:0", "--state-dir", "state"]
    start = sandbox.start
    sandbox.start = lambda *words: restricted(sandbox, *words)  # type: ignore[method-assign]
    alpha = sandbox.broker("alpha", *flags)
    sandbox.start = start  # type: ignore[method-assign]
    said = sandbox.ok("pub", "a", "x", "--url", alpha.url, "--key-file", "sensor.key")
    assert said.startswith("accepted")


def restricted(sandbox: Sandbox, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY, *words],
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sandbox.running.append(process)
    return process
