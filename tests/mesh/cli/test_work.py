"""``mesh work`` as a process, beside a home that the test plays."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesh.wire.durable_frames import Durable
from protocols import RawSocket, Rep0, SharedListener
from tests.mesh.clients.homes import Home
from tests.mesh.clients.taking import LOOPBACK
from tests.support.children import ends_with_tests

pytestmark = pytest.mark.process

TIMEOUT_S = 120.0


class ServedHome:
    """A home on a thread with a loop of its own."""

    def __init__(self) -> None:
        self.home = Home(time.monotonic)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)

    async def _serve(self) -> None:
        listener = SharedListener(LOOPBACK)
        async with RawSocket(Rep0, receiver=self.home) as rep:
            await rep.listen(listener)
            await listener.start()
            self.url = listener.url
            self._ready.set()
            while not self._end.is_set():
                self.home.work()  # what was to be tried again may be due
                try:
                    await asyncio.wait_for(self._end.wait(), 0.02)
                except TimeoutError:
                    pass
            await listener.aclose()

    def publish(self, *bodies: bytes, topic: str = "jobs.a") -> None:
        async def publish() -> None:
            self.home.publish(*bodies, topic=topic)

        asyncio.run_coroutine_threadsafe(publish(), self._loop).result(TIMEOUT_S)

    def lose_sessions(self) -> None:
        """Close every connection."""

        def lose() -> None:
            for pipe in list(self.home.pipes):
                pipe.close("lost")

        self._loop.call_soon_threadsafe(lose)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ends_with_tests([sys.executable, "-m", "mesh", "work", *arguments, "--url", self.url]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, *arguments: str) -> tuple[str, str]:
        """Standard output and error of a run that ends well."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
        return out, err


@pytest.fixture
def served() -> Iterator[ServedHome]:
    made = ServedHome()
    yield made
    made.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_a_command_gets_each_message_and_its_exit_code_settles_it(served: ServedHome, tmp_path: Path) -> None:
    served.publish(b"good")
    served.publish(b"later", b"bad", topic="jobs.b")
    command = (
        'read -r body; echo "$MESH_SUBSCRIPTION $MESH_TOPIC $MESH_ATTEMPT $body";'
        ' case "$body$MESH_ATTEMPT" in later1) exit 75;; bad*) exit 3;; esac'
    )
    out, err = served.ok(
        "mail", "jobs.#", "--exec", command, "--count", "6", "--retry-after", "0.01", "--jobs", "2"
    )
    assert sorted(out.splitlines()) == [
        "mail jobs.a 1 good",
        "mail jobs.b 1 bad",
        "mail jobs.b 1 later",
        "mail jobs.b 2 bad",
        "mail jobs.b 2 later",
        "mail jobs.b 3 bad",
    ]
    assert [body for body, _ in served.home.dead] == [b"bad"] and served.home.left == 0
    assert served.home.attached[0][1:4] == ["mail", ["jobs.#"], 2]
    assert "subscribed to mail at home, 3 waiting" in err and "2 done, 4 to be tried again" in err
    assert "jobs.b 0000000000000005-6-3 ended with exit code 3 at attempt 2, is tried again" in err


def test_outcomes_are_printed_as_json(served: ServedHome) -> None:
    served.publish(b"1")
    out, _ = served.ok("mail", "--exec", "kill -9 $$", "--count", "1", "--json")
    told = json.loads(out)
    assert told.pop("seconds") >= 0
    assert told == {
        "id": "0000000000000005-6-1",
        "schema": 1,
        "topic": "jobs.a",
        "attempt": 1,
        "exit": -9,
        "outcome": "retried",
    }
    assert served.home.attached[0][1:4] == ["mail", [], 1]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_message_done_after_its_session_ended_is_reported_as_late(
    served: ServedHome, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """It comes again, and was counted twice as done."""
    served.publish(b"1")
    go = tmp_path / "go"
    command = f"touch {tmp_path}/began; while [ ! -e {go} ]; do sleep 0.05; done"
    process = served.start("mail", "--exec", command, "--count", "2", *flags)
    wait_for((tmp_path / "began").exists)
    served.lose_sessions()
    wait_for(lambda: len(served.home.attached) == 2)
    go.touch()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0 and served.home.left == 0
    assert "1 done, 0 to be tried again, 1 done too late" in err
    if flags:
        assert [json.loads(line)["outcome"] for line in out.splitlines()] == ["late", "done"]
    else:
        assert "jobs.a 0000000000000005-6-1 was done when its session was over, and comes again" in err


def test_messages_are_printed_and_done_without_a_command(served: ServedHome) -> None:
    served.publish(b"1", b"2", b"3")
    out, _ = served.ok("mail", "jobs.#", "--count", "2")
    assert out == "jobs.a 1\njobs.a 2\n" and served.home.left == 1
    out, _ = served.ok("mail", "--count", "1", "--json")
    assert json.loads(out) == {
        "schema": 1,
        "id": "0000000000000005-6-3",
        "topic": "jobs.a",
        "attempt": 1,
        "body": "3",
    }
    assert served.home.left == 0


def test_the_first_signal_lets_running_commands_end(served: ServedHome, tmp_path: Path) -> None:
    served.publish(b"1", b"2")
    go = tmp_path / "go"
    command = f"touch {tmp_path}/began; while [ ! -e {go} ]; do sleep 0.05; done"
    process = served.start("mail", "jobs.#", "--exec", command, "--window", "2")
    wait_for((tmp_path / "began").exists)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    assert "waits for 1 command to end" in process.stderr.readline()
    go.touch()
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    wait_for(lambda: not served.home.pipes)
    assert served.home.left == 1 and served.home.queue.snapshot().returned == 1, "nothing is a suspect"


def test_the_second_signal_ends_them_and_others_get_their_messages(
    served: ServedHome, tmp_path: Path
) -> None:
    served.publish(b"1")
    inner = f"trap 'touch {tmp_path}/ended; exit' TERM; touch {tmp_path}/began; while :; do sleep 0.05; done"
    process = served.start("mail", "--exec", f'sh -c "{inner}" & wait')
    wait_for((tmp_path / "began").exists)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    wait_for(lambda: not served.home.pipes)
    assert served.home.queue.snapshot().returned == 1 and not served.home.queue.counters.retried
    wait_for((tmp_path / "ended").exists)


def test_printing_leaves_the_subscription_when_it_is_terminated(served: ServedHome) -> None:
    """Its unsettled messages were taken for the cause of its death, and came to others one by one."""
    process = served.start("mail", "jobs.#")
    assert process.stderr is not None and process.stdout is not None
    process.stderr.readline()
    served.publish(b"1")
    assert process.stdout.readline() == "jobs.a 1\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0
    process.communicate()
    wait_for(lambda: not served.home.pipes)
    assert served.home.left == 0 and served.home.settling[-1][0] == Durable.DETACH


def test_a_command_that_reads_nothing_is_no_error(served: ServedHome) -> None:
    served.publish(b"x" * 60000)
    served.ok("mail", "--exec", "true", "--count", "1")
    assert served.home.left == 0


@pytest.mark.parametrize("command", ["", "  "])
def test_an_empty_command_is_refused(served: ServedHome, command: str) -> None:
    """A shell does nothing with it and ends with 0: every message was done, as after ``--exec "$UNSET"``."""
    served.publish(b"one")
    process = served.start("mail", "--exec", command, "--count", "1")
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 64 and "--exec is empty" in err
    assert served.home.left == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--jobs", "4"), "--jobs is for --exec"),
        (("--retry-after", "4"), "--retry-after is for --exec"),
        (("--exec", "true", "--retry-after", "700000"), "--retry-after is 700000; a message is tried again"),
    ],
)
def test_flags_that_would_do_nothing_or_less_are_refused(
    served: ServedHome, flags: tuple[str, ...], sentence: str
) -> None:
    """They were ignored: messages were printed, and done, where a user meant to run a command for each."""
    served.publish(b"one")
    process = served.start("mail", "--count", "1", *flags)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 64 and sentence in err
    assert served.home.left == 1


def test_output_of_commands_is_not_among_the_lines_of_json(served: ServedHome) -> None:
    """A command that ended its output without a line feed had the object on the same line."""
    served.publish(b"one")
    out, err = served.ok("mail", "--exec", "printf loud", "--count", "1", "--json")
    assert [json.loads(line)["exit"] for line in out.splitlines()] == [0]
    assert "loud" in err


def test_an_impossible_subscription_is_one_sentence(served: ServedHome) -> None:
    served.home.detach = ("other_patterns", "mail is to x.#", "")
    for arguments, code, sentence in (
        (("mail", "jobs.#"), 1, "mesh work: broker home: mail is to x.#\n"),
        (("", "jobs.#"), 64, "mesh work: the name of a durable subscription is empty"),
        (("mail", "a..b"), 64, "mesh work: pattern 'a..b' has an empty token"),
    ):
        process = served.start(*arguments, "--exec", "true")
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == code and err.startswith(sentence), err
