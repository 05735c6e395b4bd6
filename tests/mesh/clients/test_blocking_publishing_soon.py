"""`BlockingClient.publish_soon` and ``batch``: in virtual time, and with threads, forks and sockets."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from mesh import BlockingClient
from mesh.clients.blocking_publishing_soon import BlockingPending
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import (
    BatchFailed,
    Disconnected,
    MeshTimeout,
    NotReady,
    TopicError,
    Unknown,
)
from tests.mesh.clients.blocking_programs import BrokerProcess, start, until
from tests.mesh.clients.simulated_connections import Broker, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh


def got(broker: Broker) -> list[bytes]:
    """The bodies that a reader, there from the start, has received so far."""
    broker.carry()
    return [body for _, body in broker.mesh.reader.take(broker.mesh.feed)]  # type: ignore[attr-defined]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    mesh = FakeMesh(1, ExchangeOptions(session_messages=2000))
    broker = Broker(mesh, mesh.nodes[1])
    simulate(monkeypatch, broker)
    mesh.reader = mesh.client(1, "reader")  # type: ignore[attr-defined]
    mesh.feed = mesh.reader.subscribe("t.#", window=8192)  # type: ignore[attr-defined]
    return broker


def test_each_call_is_a_message_and_its_receipt_comes_later(broker: Broker, client: BlockingClient) -> None:
    pending = [client.publish_soon("t.a", b"%d" % n) for n in range(300)]
    assert not pending[-1].done()
    assert [each.result().seq for each in pending] == list(range(1, 301))
    assert client.statistics().blocks_out == 2, "the first one leaves alone"
    assert got(broker) == [b"%d" % n for n in range(300)]


@pytest.mark.parametrize("level", ["sent", "accepted"])
def test_every_level_has_its_receipt(client: BlockingClient, level: str) -> None:
    receipt = client.publish_soon("t", b"x", level=level, headers={"n": 1}, key="k").result()
    assert (receipt.level, receipt.count) == (level, 1)


def test_a_message_leaves_at_once_after_a_pause_and_each_millisecond_in_a_stream(
    broker: Broker, client: BlockingClient
) -> None:
    client.publish_soon("t", b"1")
    assert got(broker) == [b"1"]
    client.publish_soon("t", b"2")
    assert got(broker) == []
    broker.pass_time(0.0015)
    client.publish_soon("t", b"3")
    assert got(broker) == [b"2", b"3"]
    client.publish_soon("t", b"4")
    client.flush()
    assert got(broker) == [b"4"]


def test_a_wait_for_a_result_times_out_and_the_message_stays_pending(
    broker: Broker, client: BlockingClient
) -> None:
    broker.reads = False
    pending = client.publish_soon("t", b"x")
    began = broker.mesh.now
    with pytest.raises(MeshTimeout, match="not known after 2 s"):
        pending.result(timeout=2.0)
    assert broker.mesh.now - began == pytest.approx(2.0, abs=0.1) and not pending.done()
    broker.reads = True
    assert pending.result().count == 1


def test_a_message_fails_after_its_own_timeout(broker: Broker, client: BlockingClient) -> None:
    broker.reads = False
    began = broker.mesh.now
    sent = client.publish_soon("t", b"x", timeout=3.0)
    with pytest.raises(Unknown, match="no acknowledgement in 3 s: connected to node1"):
        sent.result()
    assert broker.mesh.now - began == pytest.approx(3.0, abs=0.1)


def test_a_message_fails_after_its_own_timeout_while_another_call_waits(
    broker: Broker, client: BlockingClient
) -> None:
    subscription = client.subscribe("other")
    broker.reads = False
    called: list[float] = []
    began = broker.mesh.now
    client.publish_soon("t", b"x", timeout=3.0).on_done(lambda _: called.append(broker.mesh.now - began))
    assert subscription.receive(timeout=8.0) is None
    assert called == [pytest.approx(3.0, abs=0.1)]


def test_a_message_fails_after_its_own_timeout_without_a_broker(
    broker: Broker, client: BlockingClient
) -> None:
    broker.away = "refused"
    broker.reads = False
    pending = client.publish_soon("t", b"x", timeout=3.0)
    broker.cut(read=False, answered=False)
    began = broker.mesh.now
    with pytest.raises(Unknown, match="nobody is there"):
        pending.result()
    assert broker.mesh.now - began < 5.5


def test_pending_messages_are_sent_again_in_the_next_session(broker: Broker, client: BlockingClient) -> None:
    broker.reads = False
    pending = client.publish_soon("t", b"x")
    broker.reads = True
    broker.cut(read=True, answered=False)
    assert pending.result().count == 1 and got(broker) == [b"x"]


def test_publish_soon_fails_at_its_limit_and_ready_waits_for_room(broker: Broker) -> None:
    with BlockingClient("tcp://127.0.0.1:1", pending_max=10) as client:
        broker.reads = False
        for _ in range(10):
            client.publish_soon("t", b"x")
        with pytest.raises(NotReady, match=r"no room for a message now: 10 are pending.*wait for ready\(\)"):
            client.publish_soon("t", b"x")
        with pytest.raises(MeshTimeout, match="no room for a message in 2 s"):
            client.ready(timeout=2.0)
        broker.reads = True
        client.ready()
        for number in range(100):
            try:
                client.publish_soon("t", b"%d" % number)
            except NotReady:
                client.ready(timeout=120.0)
                client.publish_soon("t", b"%d" % number)
    assert len(got(broker)) == 110


def test_publish_soon_fails_without_a_session_and_ready_waits_for_the_next_one(
    broker: Broker, client: BlockingClient
) -> None:
    broker.cut(read=True, answered=True)
    finds_out = client.publish_soon("t", b"x")
    with pytest.raises(NotReady, match="no credit to publish now"):
        client.publish_soon("t", b"x")
    client.ready()
    assert finds_out.result().count == 1
    assert client.publish_soon("t", b"x").result().count == 1


def test_wrong_arguments_are_errors_of_the_call(client: BlockingClient) -> None:
    with pytest.raises(TopicError):
        client.publish_soon("a..b", b"x")
    with pytest.raises(TypeError, match="a body is bytes"):
        client.publish_soon("t", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level 'saved' is not known"):
        client.publish_soon("t", b"x", level="saved")
    with pytest.raises(ValueError, match="level 'saved' is not known"):
        client.batch(level="saved")
    with pytest.raises(ValueError, match="pending_max is 0"):
        BlockingClient(pending_max=0)


def test_closing_ends_pending_messages_and_calls_their_callbacks(
    broker: Broker, client: BlockingClient
) -> None:
    broker.reads = False
    called: list[BlockingPending] = []
    pending = client.publish_soon("t", b"x")
    pending.on_done(called.append)
    client.close()
    assert called == [pending]
    with pytest.raises(Unknown, match="the client was closed before the broker answered"):
        pending.result()
    pending.on_done(called.append)
    assert called == [pending, pending], "also when it is closed"
    with pytest.raises(Disconnected, match="the client is closed"):
        client.publish_soon("t", b"x")


def test_callbacks_are_made_one_after_the_other_and_may_publish(
    broker: Broker, client: BlockingClient
) -> None:
    order: list[str] = []

    def outer(pending: BlockingPending) -> None:
        order.append("begin")
        client.publish_soon("t", b"y").result()
        order.append("end")

    pending = [client.publish_soon("t", b"x") for _ in range(3)]
    for each in pending:
        each.on_done(outer)
    client.flush()
    pending[2].result()
    assert order == ["begin", "end"] * 3


def test_a_callback_that_raises_is_logged_and_harms_no_message(
    client: BlockingClient, caplog: pytest.LogCaptureFixture
) -> None:
    pending = client.publish_soon("t", b"x")
    pending.on_done(lambda _: print(1 // 0))
    assert pending.result().count == 1
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


def test_an_interrupt_in_a_callback_ends_the_call_and_other_callbacks_run_later(
    client: BlockingClient,
) -> None:
    called: list[BlockingPending] = []

    def interrupt(pending: BlockingPending) -> None:
        raise KeyboardInterrupt

    client.publish_soon("t", b"leaves alone")
    one, two = client.publish_soon("t", b"1"), client.publish_soon("t", b"2")
    one.on_done(interrupt)
    two.on_done(called.append)
    with pytest.raises(KeyboardInterrupt):
        two.result()
    assert called == []
    client.publish("t", b"3")
    assert called == [two] and two.result().count == 1


def test_an_unread_failure_is_counted_and_logged(
    broker: Broker, client: BlockingClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.reads = False
    client.publish_soon("t", b"x", timeout=1.0)
    with pytest.raises(Unknown):
        client.publish("t", b"y", timeout=2.0)
    gc.collect()
    (record,) = caplog.records
    assert record.getMessage().startswith("nobody looked at the outcome of a published message: no acknow")
    assert client.statistics().unheard == 1


def test_a_batch_waits_for_room_and_for_all_of_its_messages(broker: Broker) -> None:
    with BlockingClient("tcp://127.0.0.1:1", pending_max=64) as client:
        with client.batch() as batch:
            for number in range(1000):
                batch.publish("t", b"%d" % number)
        receipt = batch.receipt
        assert (receipt.level, receipt.seq, receipt.count, len(batch)) == ("accepted", 1, 1000, 1000)
    assert got(broker) == [b"%d" % number for number in range(1000)]


def test_a_batch_says_how_many_failed(broker: Broker, client: BlockingClient) -> None:
    broker.reads = False
    with pytest.raises(BatchFailed, match="of 3 messages 3 may have been accepted: no ack") as caught:
        with client.batch(timeout=2.0) as batch:
            for _ in range(3):
                batch.publish("t", b"x")
            client.flush()
    assert sorted(caught.value.errors) == [0, 1, 2] and caught.value.unknown == 3


def test_a_batch_that_is_left_by_an_exception_waits_for_nothing(
    broker: Broker, client: BlockingClient
) -> None:
    broker.reads = False
    began = broker.mesh.now
    with pytest.raises(ZeroDivisionError), client.batch() as batch:
        batch.publish("t", b"x")
        print(1 // 0)
    assert broker.mesh.now == began


# --- over sockets


@pytest.fixture(scope="module")
def broker_process() -> Iterator[BrokerProcess]:
    broker = BrokerProcess()
    yield broker
    broker.kill()


@pytest.fixture
def url(broker_process: BrokerProcess) -> str:
    return broker_process.url


@pytest.mark.process
def test_threads_publish_and_wait_at_once(url: str) -> None:
    with BlockingClient(url, pending_max=100) as client:
        called: list[BlockingPending] = []

        def publish() -> int:
            with client.batch() as batch:
                for _ in range(2000):
                    batch.publish("t", b"x").on_done(called.append)
            return batch.receipt.count

        results: list[object] = []
        threads = [start(publish, results) for _ in range(8)]
        for thread in threads:
            thread.join(120.0)
        assert results == [2000] * 8
        client.publish("t", b"last")
        until(lambda: len(called) == 16_000)
        assert len({id(each) for each in called}) == 16_000


@pytest.mark.process
def test_a_thread_that_waits_for_an_outcome_lets_others_publish_and_close(url: str) -> None:
    with BlockingClient(url) as client:
        subscription = client.subscribe("never")
        results: list[object] = []
        reading = start(lambda: subscription.receive(), results)
        done = threading.Event()
        client.publish_soon("t", b"x").on_done(lambda _: done.set())
        assert done.wait(60.0), "the thread that reads calls back"
        client.close()
        reading.join(60.0)
        assert results == [None]


@pytest.mark.process
def test_a_forked_child_gets_no_outcomes_of_its_parents_messages(broker_process: BrokerProcess) -> None:
    with BlockingClient(broker_process.url) as client:
        known = client.publish_soon("t", b"known")
        known.result()
        broker_process.process.send_signal(signal.SIGSTOP)
        try:
            pending = client.publish_soon("t", b"pending")
            child = os.fork()
        finally:
            broker_process.process.send_signal(signal.SIGCONT)
        if child == 0:
            try:
                assert known.result().count == 1 and not pending.done()
                for ask in (pending.result, lambda: pending.on_done(print)):
                    try:
                        ask()
                        os._exit(1)
                    except Unknown as error:
                        assert "the process that published the message" in str(error)
                client.ready(timeout=120.0)
                assert client.publish_soon("t", b"child", timeout=120.0).result().seq == 1
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert pending.result().count == 1
