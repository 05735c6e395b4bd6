"""`BlockingClient` against a broker in a process of its own, as a program sees it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.errors import Disconnected, MeshError, MeshTimeout, NoResponders, NotAccepted, TopicError, Unknown
from protocols import AddressError
from tests.mesh.clients.blocking_programs import BrokerProcess
from tests.mesh.clients.taking import take

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    broker = BrokerProcess()
    yield broker.url
    broker.kill()


def test_publish_subscribe_and_receipts(url: str) -> None:
    with BlockingClient(url, name="me") as mesh, mesh.subscribe("bl.*") as subscription:
        receipt = mesh.publish("bl.a", b"one", headers={"n": 1}, key="k")
        assert (receipt.level, receipt.broker, receipt.seq) == ("accepted", "alpha", 1)
        assert mesh.publish("bl.b", b"two", level="sent").level == "sent"
        assert mesh.publish_many("bl.c", [b"3", b"4"]).count == 2
        assert mesh.publish_many([("bl.d", b"5"), ("other", b"")]).count == 2
        got = take(5, subscription)
        assert [delivery.body for delivery in got] == [b"one", b"two", b"3", b"4", b"5"]
        assert (got[0].headers, got[0].key) == ({"n": 1, "key": "k"}, "k")
        assert subscription.receive(0.01) is None
        assert (subscription.unreached, subscription.lost) == ((), 0)
        assert mesh.broker == "alpha" and mesh.status()["name"] == "alpha"


def test_a_flood_of_small_and_one_large_body_arrive_in_order(url: str) -> None:
    large = os.urandom(2_000_000)
    with BlockingClient(url) as mesh, BlockingClient(url) as reader:
        subscription = reader.subscribe("flood", window=300)

        def publish() -> None:
            for number in range(20_000):
                while not mesh.publish_nowait("flood", b"%d" % number):
                    mesh.flush()
            mesh.publish("flood", large, level="sent", timeout=20.0)

        thread = threading.Thread(target=publish)
        thread.start()
        got: list[bytes] = []
        for batch in subscription.batches():
            got += batch.bodies
            if len(got) > 20_000:
                break
        thread.join()
        assert got == [b"%d" % number for number in range(20_000)] + [large]
        assert reader.statistics().lost_blocks == 0


def test_request_survey_refusal_retry_and_no_responders(url: str) -> None:
    with BlockingClient(url) as mesh:
        with pytest.raises(NoResponders):
            mesh.request("bl.add", b"1")
        ready = threading.Event()

        def serve() -> None:
            with (
                BlockingClient(url, name="adder") as helper,
                helper.subscribe("bl.add", answers=True) as requests,
            ):
                ready.set()
                for request in requests:
                    if request.attempt == 1 and request.body == b"retry":
                        request.retry(0.02)
                    elif request.body == b"stop":
                        request.done()
                        return
                    elif request.body == b"no":
                        request.drop("will not")
                    else:
                        request.extend(5.0)
                        request.done(request.body.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        ready.wait()
        assert mesh.request("bl.add", b"a") == b"A"
        assert mesh.request("bl.add", b"retry") == b"RETRY"
        with pytest.raises(NotAccepted, match="will not"):
            mesh.request("bl.add", b"no")
        result = mesh.survey("bl.add", b"b")
        assert [(answer.responder, answer.body) for answer in result.answers] == [("adder", b"B")]
        assert mesh.request("bl.add", b"stop") == b""
        thread.join()


def test_a_paused_broker_makes_publishing_unknown_and_asking_time_out() -> None:
    broker = BrokerProcess()
    try:
        with BlockingClient(broker.url) as mesh:
            mesh.publish("t", b"x")
            os.kill(broker.process.pid, signal.SIGSTOP)
            with pytest.raises(Unknown):
                mesh.publish("t", b"x", timeout=0.3)
            with pytest.raises(MeshTimeout):
                mesh.request("t", timeout=0.1)
            # depends on which fills first: the kernel or the credit
            with pytest.raises((Unknown, MeshTimeout)):
                for _ in range(100):
                    mesh.publish("t", bytes(1 << 20), level="sent", timeout=0.3)
            os.kill(broker.process.pid, signal.SIGCONT)
            assert mesh.publish("t", b"back").level == "accepted"
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
        broker.kill()


def test_ipc_works_as_tcp_does(tmp_path: Path) -> None:
    broker = BrokerProcess(f"ipc://{tmp_path}/b.sock")
    try:
        with BlockingClient(broker.url) as mesh, mesh.subscribe("t") as subscription:
            mesh.publish("t", b"over a path")
            assert take(1, subscription)[0].body == b"over a path"
    finally:
        broker.kill()


def test_misuse_and_missing_brokers_are_errors(url: str) -> None:
    with BlockingClient(url) as mesh:
        with pytest.raises(TopicError):
            mesh.publish("a b", b"")
        with pytest.raises(TopicError):
            mesh.subscribe("a.#.b")
        with pytest.raises(TypeError):
            mesh.publish("t", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            mesh.publish_many("t")
        with pytest.raises(ValueError, match="level"):
            mesh.publish("t", b"", level="exactly-once")
        with pytest.raises(MeshError, match="opened once"):
            mesh.open()
    with pytest.raises(Disconnected, match="not open"):
        BlockingClient(url).publish("t", b"")
    for missing in ("tcp://127.0.0.1:1", "ipc:///nowhere/at.all"):
        with pytest.raises(Disconnected, match=rf"no broker at {missing} \(nobody listens at {missing}\)"):
            BlockingClient(missing, connect_timeout=1.0).open()


def test_bad_arguments_are_refused_before_anything_is_done(url: str) -> None:
    for bad, word in (
        ("tcp://host:1/", "not '1/'"),
        ("inproc://x", "without an event loop"),
        ("tcp://:0", "host"),
        ("tcp://a..b:5", "not a host name"),
    ):
        with pytest.raises(AddressError, match=word):
            BlockingClient(bad)
    for call, word in (
        (lambda: BlockingClient(5), "a URL is a string"),  # type: ignore[arg-type]
        (lambda: BlockingClient(url, name=5), "name of a client is a str"),  # type: ignore[arg-type]
        (lambda: BlockingClient(url, connect_timeout="5"), "connect_timeout is '5'"),  # type: ignore[arg-type]
        (lambda: BlockingClient(url, tls="ca.pem"), "tls is a TlsConfig"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=word):
            call()
    with BlockingClient(url) as mesh, mesh.subscribe("t") as subscription:
        for act, word in (
            (lambda: mesh.publish(["t"], b""), "a topic is a str"),  # type: ignore[arg-type]
            (lambda: mesh.publish("t", b"", headers=["x"]), "headers are a mapping"),  # type: ignore[arg-type]
            (lambda: mesh.publish("t", b"", timeout=-1), "timeout is -1"),
            (lambda: mesh.publish("t", b"", timeout="1"), "timeout is '1'"),  # type: ignore[arg-type]
            (lambda: mesh.publish_nowait(["t"], b""), "a topic is a str"),  # type: ignore[arg-type]
            (lambda: mesh.publish_many("t", b"body"), "bodies are a list"),
            (lambda: mesh.request("t", headers=["x"]), "headers are a mapping"),  # type: ignore[arg-type]
            (lambda: mesh.request("t", timeout=None), "timeout is None"),  # type: ignore[arg-type]
            (lambda: mesh.survey("t", deadline="1"), "deadline is '1'"),  # type: ignore[arg-type]
            (lambda: mesh.flush(timeout=-1), "timeout is -1"),
            (lambda: subscription.receive(timeout="1"), "timeout is '1'"),  # type: ignore[arg-type]
        ):
            with pytest.raises((TypeError, ValueError), match=word):
                act()
        mesh.publish("t", b"only this")
        assert [delivery.body for delivery in take(1, subscription)] == [b"only this"]
