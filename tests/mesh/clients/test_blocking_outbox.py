"""Level outbox of a `BlockingClient`, with its thread, on a real disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesh import BlockingClient, Broker, Client
from mesh.errors import Disconnected, Locked, MeshError, MeshTimeout, NotAccepted
from mesh.wire.session_frames import Receipt
from tests.mesh.clients.blocking_programs import start, until

ROOT = Path(__file__).parents[3]
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "program.outbox"


def filling(client: BlockingClient) -> Any:
    return client._outbox.outbox._filling  # type: ignore[union-attr]


def messages(client: BlockingClient) -> int:
    assert client.outbox is not None
    return client.outbox.messages


def test_an_outbox_keeps_messages_while_there_is_no_broker(path: Path) -> None:
    with BlockingClient(NOWHERE, outbox=path) as client:
        assert client.publish("t", b"1", level="outbox", headers={"n": 1}) == Receipt("outbox", "", 1)
        assert client.publish_many([("t", b"2"), ("u", b"3")], level="outbox").count == 2
        assert client.publish_many("t", [], level="outbox").count == 0
        state = client.outbox
        assert state is not None and state.messages == 3 and "nobody listens at" in state.why
        with pytest.raises(MeshTimeout, match=r"3 message\(s\) wait in the outbox"):
            client.drained(0.01)
        with pytest.raises(NotAccepted):
            client.publish("t", b"", timeout=0.01)
        with pytest.raises(Locked, match="name another file"):
            BlockingClient(NOWHERE, outbox=path).open()
    with BlockingClient(NOWHERE, outbox=path) as client:
        assert messages(client) == 3


async def test_messages_of_an_outbox_are_stored_once_a_broker_is_reachable(
    tmp_path: Path, path: Path
) -> None:
    def program(url: str) -> str:
        with BlockingClient(url, outbox=path) as client:
            client.publish("jobs.a", b"2", level="outbox")
            client.drained(60)
            assert messages(client) == 0
            client.publish("jobs.a", b"3", level="stored")
            return client.broker

    with BlockingClient(NOWHERE, outbox=path) as client:
        client.publish("jobs.a", b"1", level="outbox")
    async with Broker(name="home", listen="tcp://127.0.0.1:0", state_dir=tmp_path / "home") as broker:
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail") as jobs:
            assert await asyncio.to_thread(program, broker.url) == "home"
            for body in (b"1", b"2", b"3"):
                job = await anext(jobs)
                assert bytes(job.body) == body and job.done()


def test_threads_share_an_outbox_and_each_keeps_its_order(path: Path) -> None:
    def publish(topic: str) -> Callable[[], list[int]]:
        return lambda: [client.publish(topic, b"%d" % n, level="outbox").seq for n in range(20)]

    results: list[Any] = []
    with BlockingClient(NOWHERE, outbox=path) as client:
        for thread in [start(publish(topic), results) for topic in "abcdef"]:
            thread.join(120)
        assert messages(client) == 120
    assert sorted(number for numbers in results for number in numbers) == list(range(1, 121))
    assert all(numbers == sorted(numbers) for numbers in results)


def test_a_call_that_waits_for_room_can_be_interrupted_and_takes_its_message_back(path: Path) -> None:
    def interrupt() -> None:
        until(lambda: filling(client)._line)
        os.kill(os.getpid(), signal.SIGINT)

    with BlockingClient(NOWHERE, outbox=path, outbox_max_bytes=100_000) as client:
        client.publish("t", bytes(90_000), level="outbox")
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            client.publish("t", bytes(50_000), level="outbox", timeout=600)
        interrupting.join()
        until(lambda: not filling(client).busy)
        client.publish("t", b"small", level="outbox")
        assert messages(client) == 2


def test_closing_ends_the_calls_of_other_threads(path: Path) -> None:
    results: list[object] = []
    client = BlockingClient(NOWHERE, outbox=path, outbox_max_bytes=100_000)
    client.open()
    client.publish("t", bytes(90_000), level="outbox")
    calls = [
        start(lambda: client.publish("t", bytes(50_000), level="outbox", timeout=600), results),
        start(client.drained, results),
    ]
    until(lambda: filling(client)._line and client._outbox.outbox._changed.waiters)  # type: ignore[union-attr]
    client.close()
    for call in calls:
        call.join(120)
    assert sorted(type(result).__name__ for result in results) == ["Disconnected", "NotAccepted"]
    client.close()
    with pytest.raises(NotAccepted, match="the client is closed"):
        client.publish("t", b"", level="outbox")
    with pytest.raises(Disconnected, match="the client is closed"):
        client.drained()
    with BlockingClient(NOWHERE, outbox=path) as client:
        assert messages(client) == 1


def test_misuse_is_one_sentence(path: Path) -> None:
    client = BlockingClient(NOWHERE)
    for call in (lambda: client.publish("t", b"", level="outbox"), client.drained):
        with pytest.raises(ValueError, match="level 'outbox' needs a client that has one"):
            call()
    assert client.outbox is None
    client = BlockingClient(NOWHERE, outbox=path)
    with pytest.raises(NotAccepted, match="the client is not open"):
        client.publish("t", b"", level="outbox")
    with client, pytest.raises(MeshError, match="opened once"):
        client.open()


FORKED = """
import os, sys
from mesh import BlockingClient
from mesh.errors import MeshError, NotAccepted
client = BlockingClient("tcp://127.0.0.1:1", outbox=sys.argv[1])
client.open()
client.publish("t", b"parent", level="outbox")
if not os.fork():
    code = 0
    for call in (lambda: client.publish("t", b"", level="outbox"), client.drained, lambda: client.outbox):
        try:
            call()
            code = 1
        except MeshError as error:
            code = code or 2 * ("of which this is a fork" not in str(error))
    client.close()
    os._exit(code)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
client.publish("t", b"parent", level="outbox")
assert client.outbox.messages == 2
client.close()
"""


@pytest.mark.process
def test_a_fork_has_no_outbox_and_its_parent_keeps_its_own(path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
