"""The commands as processes: real brokers, real sockets, readiness by what they say, never by a delay."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import ends_with_tests
from tests.support.ports import free_port

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 120.0


class Sandbox:
    """Home, runtime folder and environment of one test; ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "run").mkdir(mode=0o700)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ends_with_tests([sys.executable, "-m", "mesh", *arguments]),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def mesh(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ends_with_tests([sys.executable, "-m", "mesh", *arguments]),
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def ok(self, *arguments: str, stdin: str = "") -> str:
        ran = self.mesh(*arguments, stdin=stdin)
        assert ran.returncode == 0, f"{arguments}: {ran.returncode} {ran.stderr}"
        return ran.stdout

    def broker(self, name: str, *arguments: str) -> Running:
        """A broker that is ready, on a free port."""
        ports = self.folder / f"{name}.ports"
        process = self.start(
            "broker", "--name", name, "--listen", "tcp://127.0.0.1:0", "--ports-file", str(ports), *arguments
        )
        wait_for(lambda: ports.exists() or process.poll() is not None)
        if process.poll() is not None:
            raise AssertionError(f"{name} ended with {process.returncode}: {process.communicate()[1]}")
        return Running(name, process, json.loads(ports.read_text()))

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
        for process in self.running:
            try:
                process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


class Running:
    """A broker process and what it wrote into its ports file."""

    def __init__(self, name: str, process: subprocess.Popen[str], ports: dict[str, Any]) -> None:
        self.name = name
        self.process = process
        self.ports = ports
        self.url: str = ports["listeners"][0]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


def test_a_broker_says_it_is_ready_writes_its_ports_and_leaves_when_asked(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    assert alpha.ports["name"] == "alpha"
    assert alpha.ports["pid"] == alpha.process.pid
    assert not alpha.url.endswith(":0")
    assert first_line(alpha.process).startswith(
        f"mesh broker: alpha ({alpha.ports['id']}) is ready at {alpha.url}"
    )
    alpha.process.send_signal(signal.SIGTERM)
    assert alpha.process.wait(TIMEOUT_S) == 0
    assert not (sandbox.folder / "alpha.ports").exists()


def test_publish_at_one_broker_subscribe_at_another(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    beta = sandbox.broker("beta", "--join", alpha.url)
    reader = sandbox.start("sub", "news.#", "--count", "5", "--timeout", "20", "--json", "--url", beta.url)
    assert first_line(reader) == "mesh sub: subscribed to news.#\n"
    receipt = json.loads(sandbox.ok("pub", "news.uk", "hello", "-H", "k=v", "--json", "--url", alpha.url))
    assert receipt["level"] == "accepted"
    assert receipt["broker"] == "alpha"
    assert receipt["absent"] == []
    assert "count=3" in sandbox.ok("pub", "news.fr", "-", "--url", alpha.url, stdin="one\n\nthree\n")
    (sandbox.folder / "bytes").write_bytes(b"\xff\x00")
    sandbox.ok("pub", "news.de", "--file", "bytes", "--url", alpha.url)
    out, _ = reader.communicate(timeout=TIMEOUT_S)
    assert reader.returncode == 0
    messages = [json.loads(line) for line in out.splitlines()]
    assert [message["topic"] for message in messages] == ["news.uk", *["news.fr"] * 3, "news.de"]
    assert messages[0] == {"schema": 1, "topic": "news.uk", "body": "hello", "headers": {"k": "v"}}
    assert [message.get("body") for message in messages[1:4]] == ["one", "", "three"]
    assert messages[4]["body_base64"] == "/wA="


def test_status_and_top_show_the_mesh(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    beta = sandbox.broker("beta", "--join", alpha.url)
    wait_for(lambda: len(json.loads(sandbox.ok("status", "--json", "--url", alpha.url))["members"]) == 2)
    status = json.loads(sandbox.ok("status", "--json", "--url", beta.url))
    assert status["schema"] == 1
    assert status["name"] == "beta"
    everyone = json.loads(sandbox.ok("status", "--all", "--json", "--url", beta.url))
    assert [one["name"] for one in everyone["brokers"]] == ["beta", "alpha"], "the broker asked comes first"
    text = sandbox.ok("status", "--url", alpha.url)
    assert "2 brokers" in text
    assert "alpha" in text
    assert "beta" in text
    assert "topology" in sandbox.ok("top", "--once", "--url", alpha.url)
    lines = sandbox.ok("top", "--count", "2", "--interval", "0.2", "--url", alpha.url).splitlines()
    assert sum("mesh=mangrove brokers=2 alive=2" in line for line in lines) == 2


def test_the_broker_is_found_by_its_variable_and_by_its_default_socket(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    socket_url = f"ipc://{sandbox.folder}/run/mangrove/broker.sock"
    (sandbox.folder / "run" / "mangrove").mkdir(mode=0o700)
    sandbox.broker("beta", "--listen", socket_url)
    assert json.loads(sandbox.ok("status", "--json"))["name"] == "beta"
    sandbox.environment["MANGROVE_URL"] = alpha.url
    assert json.loads(sandbox.ok("status", "--json"))["name"] == "alpha"


@pytest.mark.parametrize(
    "arguments", [["pub", "a", "b"], ["sub", "a"], ["request", "a"], ["survey", "a"], ["status"], ["top"]]
)
def test_no_broker_is_one_sentence_and_69(sandbox: Sandbox, arguments: list[str]) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    sandbox.environment["MANGROVE_TIMEOUT_S"] = "0.5"
    ran = sandbox.mesh(*arguments, "--url", url)
    assert ran.returncode == 69, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert url in ran.stderr


def test_a_request_without_a_responder_fails_at_once(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    ran = sandbox.mesh("request", "time.now", "--timeout", "20", "--url", alpha.url)
    assert ran.returncode == 69
    assert ran.stderr.startswith("mesh request: ")
    survey = sandbox.mesh("survey", "time.now", "--json", "--url", alpha.url)
    assert survey.returncode == 69
    assert json.loads(survey.stdout)["answers"] == []


def test_the_system_answers_requests_and_surveys_from_a_shell(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    assert json.loads(sandbox.ok("request", "$sys.status", "--url", alpha.url))["name"] == "alpha"
    assert sandbox.ok("survey", "$sys.status", "--url", alpha.url).startswith("alpha/")


def test_a_subscription_that_ends_unfulfilled_is_75(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    ran = sandbox.mesh("sub", "a", "--count", "2", "--timeout", "0.5", "--url", alpha.url)
    assert ran.returncode == 75
    assert "0 of 2 messages" in ran.stderr
    assert sandbox.mesh("sub", "a", "--timeout", "0.5", "--url", alpha.url).returncode == 0


def test_a_subscription_says_when_its_session_is_lost_and_when_it_is_back(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    reader = sandbox.start("sub", "a", "--count", "1", "--timeout", "60", "--url", alpha.url)
    first_line(reader)
    alpha.process.send_signal(signal.SIGTERM)
    lost = first_line(reader)
    assert lost.startswith(f"mesh sub: no session with the broker at {alpha.url}: ")
    beta = sandbox.start("broker", "--name", "beta", "--listen", alpha.url)
    said = iter(lambda: first_line(reader), "")
    back = next(line for line in said if " is back " in line)
    assert re.fullmatch(
        rf"mesh sub: the session with the broker at {re.escape(alpha.url)} is back after \d+\.\d s; "
        r"subscriptions lack messages published meanwhile\n",
        back,
    )
    sandbox.ok("pub", "a", "x", "--url", alpha.url)
    assert reader.communicate(timeout=TIMEOUT_S)[0] == "a x\n" and reader.returncode == 0
    assert beta.poll() is None


def test_interrupting_a_subscription_is_130(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    reader = sandbox.start("sub", "a", "--url", alpha.url)
    first_line(reader)
    reader.send_signal(signal.SIGINT)
    assert reader.wait(TIMEOUT_S) == 130
    assert reader.stderr is not None
    assert reader.stderr.read() == ""


def test_bad_topics_and_patterns_are_64(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    for arguments in (
        ["pub", "news..uk", "x"],
        ["pub", "news.*", "x"],
        ["pub", "$sys.x", "x"],
        ["sub", "a.#.b"],
    ):
        ran = sandbox.mesh(*arguments, "--url", alpha.url)
        assert ran.returncode == 64, f"{arguments}: {ran.stderr}"
        assert ran.stderr.count("\n") == 1


def test_a_message_that_cannot_be_sent_is_65(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    ran = sandbox.mesh("pub", "a", "b", "-H", f"k={'x' * 10_000}", "--url", alpha.url)
    assert ran.returncode == 65
    assert "headers of" in ran.stderr
    ran = sandbox.mesh("pub", "a", "-", "--url", alpha.url, stdin="x" * 2_000_000)
    assert ran.returncode == 65
    assert "a line has more than" in ran.stderr
    assert sandbox.ok("pub", "a", "--file", "-", "--url", alpha.url, stdin="x" * 2_000_000).startswith(
        "accepted"
    )


def test_a_port_in_use_names_the_broker_that_holds_it(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    ran = sandbox.mesh("broker", "--name", "beta", "--listen", alpha.url)
    assert ran.returncode == 69
    assert ran.stderr.count("\n") == 1
    assert "alpha" in ran.stderr


def test_an_unwritable_log_folder_is_reported_at_the_start(sandbox: Sandbox) -> None:
    (sandbox.folder / "logs").write_text("a file where a folder should be")
    ran = sandbox.mesh("broker", "--listen", "tcp://127.0.0.1:0", "--log-dir", "logs")
    assert ran.returncode == 1
    assert ran.stderr == (
        "mesh broker: cannot write the event log in logs: "
        "there is a file where a folder is needed; name another folder\n"
    )


def test_a_state_folder_that_is_a_file_is_reported(sandbox: Sandbox) -> None:
    (sandbox.folder / "state").write_text("")
    ran = sandbox.mesh("broker", "--name", "a", "--listen", "tcp://127.0.0.1:0", "--state-dir", "state")
    assert ran.returncode == 1
    assert ran.stderr == (
        "mesh broker: cannot keep state in state/a: "
        "there is a file where a folder is needed; name another folder\n"
    )


def test_a_ports_file_of_an_earlier_run_is_gone_before_the_broker_listens(sandbox: Sandbox) -> None:
    """A killed broker leaves its file, and a script that waits for the next one read that."""
    ports = sandbox.folder / "ports.json"
    ports.write_text('{"listeners": ["tcp://127.0.0.1:1"]}')
    ran = sandbox.mesh("broker", "--listen", "ipc://nowhere/a.sock", "--ports-file", str(ports))
    assert ran.returncode != 0 and not ports.exists()


def test_a_ports_file_that_cannot_be_written_is_73(sandbox: Sandbox) -> None:
    ran = sandbox.mesh("broker", "--listen", "tcp://127.0.0.1:0", "--ports-file", "nowhere/ports.json")
    assert ran.returncode == 73
    assert ran.stderr == (
        "mesh broker: --ports-file nowhere/ports.json cannot be written: "
        "its folder does not exist; make it or name another\n"
    )


def test_listening_at_a_regular_file_names_the_mistake(sandbox: Sandbox) -> None:
    path = sandbox.folder / "precious"
    path.write_text("data")
    ran = sandbox.mesh("broker", "--listen", f"ipc://{path}")
    assert ran.returncode == 69
    assert "it is a file that is not a socket and was left alone" in ran.stderr
    assert "listens there" not in ran.stderr
    assert path.read_text() == "data"


def test_an_unknown_host_to_join_is_reported_once(sandbox: Sandbox) -> None:
    sandbox.environment["LC_ALL"] = "C.UTF-8"
    alpha = sandbox.start("broker", "--listen", "tcp://127.0.0.1:0", "--join", "tcp://nohost.invalid:1")
    assert "and joins tcp://nohost.invalid:1" in first_line(alpha)
    assert "--join tcp://nohost.invalid:1: 'nohost.invalid' is not known here" in first_line(alpha)
    alpha.terminate()
    _, rest = alpha.communicate(timeout=TIMEOUT_S)
    assert alpha.returncode == 0
    assert "nohost" not in rest


def test_terminating_top_is_143(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    top = sandbox.start("top", "--plain", "--interval", "0.2", "--url", alpha.url)
    assert top.stdout is not None
    assert "alpha started" in top.stdout.readline()
    top.terminate()
    _, said = top.communicate(timeout=TIMEOUT_S)
    assert (top.returncode, said) == (143, "")


def test_top_ends_with_141_when_its_reader_goes_away(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha")
    top = sandbox.start("top", "--plain", "--interval", "0.2", "--url", alpha.url)
    assert top.stdout is not None and top.stderr is not None
    top.stdout.readline()
    top.stdout.close()
    assert top.wait(TIMEOUT_S) == 141
    assert top.stderr.read() == ""


def test_a_state_folder_in_use_is_reported(sandbox: Sandbox) -> None:
    sandbox.broker("alpha", "--state-dir", "state")
    ran = sandbox.mesh("broker", "--name", "alpha", "--listen", "tcp://127.0.0.1:0", "--state-dir", "state")
    assert ran.returncode == 69
    assert "is in use" in ran.stderr


def test_the_event_log_is_closed_when_a_broker_leaves(sandbox: Sandbox) -> None:
    alpha = sandbox.broker("alpha", "--log-dir", "logs")
    alpha.process.send_signal(signal.SIGINT)
    assert alpha.process.wait(TIMEOUT_S) == 0
    files = list((sandbox.folder / "logs").iterdir())
    assert [file.suffix for file in files] == [".jsonl"]
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert (rows[0]["kind"], rows[0]["op"]) == ("meta", "start")
    assert (rows[-1]["kind"], rows[-1]["op"], rows[-1]["reason"]) == ("meta", "stop", "leave")
