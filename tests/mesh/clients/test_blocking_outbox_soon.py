"""`BlockingClient.publish_soon` and ``batch`` of level outbox, on a real disk and without a broker."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh import BlockingClient
from mesh.clients.blocking_publishing_soon import BlockingPending
from mesh.errors import BatchFailed, Disconnected, MeshTimeout, NotAccepted, NotReady, TopicError, Unknown
from mesh.wire.session_frames import Receipt
from tests.mesh.clients.blocking_programs import start, until
from tests.mesh.clients.test_blocking_outbox import NOWHERE, filling, messages


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingClient]:
    with BlockingClient(NOWHERE, outbox=tmp_path / "program.outbox", pending_max=100) as client:
        yield client


def held_up(client: BlockingClient) -> threading.Event:
    """The outbox's loop blocks until this is set."""
    going_on, held = threading.Event(), threading.Event()
    assert client._outbox is not None
    client._outbox.in_loop(lambda: (held.set(), going_on.wait(60.0)))
    assert held.wait(60.0)
    return going_on


def test_a_burst_shares_a_parcel_and_keeps_its_order_among_waiting_calls(client: BlockingClient) -> None:
    going_on = held_up(client)
    pending = [client.publish_soon("t", b"%d" % n, level="outbox", timeout=100.0) for n in range(50)]
    assert not any(each.done() for each in pending) and repr(pending[0]) == "<BlockingPending waits>"
    going_on.set()
    assert [each.result().seq for each in pending] == list(range(1, 51))
    assert len({id(each.place[0]) for each in pending}) == 1
    assert client.publish("t", b"", level="outbox") == Receipt("outbox", "", 51)
    assert client.publish_soon("t", b"", level="outbox", headers={"n": 1}).result().seq == 52
    assert messages(client) == 52


def test_publish_soon_fails_at_its_limit_and_ready_waits_for_room(client: BlockingClient) -> None:
    going_on = held_up(client)
    for _ in range(100):
        client.publish_soon("t", b"", level="outbox")
    with pytest.raises(NotReady, match=r"100 are pending, the most there may be; wait for ready\(\)"):
        client.publish_soon("t", b"", level="outbox")
    with pytest.raises(MeshTimeout, match=r"no room for a message in 0.01 s: 100 are pending"):
        client.ready(0.01, level="outbox")
    going_on.set()
    client.ready(100.0, level="outbox")
    client.publish_soon("t", b"", level="outbox").result()
    assert messages(client) == 101


def test_a_batch_of_many_threads(client: BlockingClient) -> None:
    def publish() -> int:
        with client.batch(level="outbox", timeout=100.0) as batch:
            for number in range(500):
                batch.publish("t", b"%d" % number)
        assert len(batch) == 500
        return batch.receipt.count

    results: list[object] = []
    for thread in [start(publish, results) for _ in range(4)]:
        thread.join(120.0)
    assert results == [500] * 4 and messages(client) == 2000


def test_a_wait_for_a_result_times_out_and_the_message_stays_pending(client: BlockingClient) -> None:
    going_on = held_up(client)
    pending = client.publish_soon("t", b"", level="outbox", timeout=100.0)
    with pytest.raises(MeshTimeout, match=r"not known after 0.01 s"):
        pending.result(0.01)
    going_on.set()
    assert pending.result().seq == 1


def test_callbacks_run_in_calling_threads_and_may_publish(client: BlockingClient) -> None:
    threads: list[threading.Thread] = []

    def another(pending: BlockingPending) -> None:
        threads.append(threading.current_thread())
        assert pending.done()
        client.publish("t", b"", level="outbox", timeout=100.0)

    pending = [client.publish_soon("t", b"", level="outbox", timeout=100.0) for _ in range(3)]
    for each in pending:
        each.on_done(another)

    def has_called() -> bool:
        pending[0].result()
        return len(threads) == 3

    until(has_called)
    assert set(threads) == {threading.current_thread()} and messages(client) == 6


def test_messages_without_room_in_time_are_not_accepted(tmp_path: Path) -> None:
    with BlockingClient(NOWHERE, outbox=tmp_path / "o", outbox_max_bytes=100_000) as client:
        with pytest.raises(BatchFailed, match="the outbox .* is full") as caught:
            with client.batch(level="outbox", timeout=1.0) as batch:
                for _ in range(12):
                    batch.publish("t", bytes(10_000))
        assert caught.value.unknown == 0 and messages(client) == 12 - caught.value.not_accepted
        assert not filling(client).busy


def test_a_message_above_the_limit_is_not_accepted_and_an_unread_failure_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingClient(NOWHERE, outbox=tmp_path / "o", outbox_max_bytes=10_000) as client:
        with pytest.raises(NotAccepted, match="do not fit the outbox"):
            client.publish_soon("t", bytes(20_000), level="outbox").result()
        pending = client.publish_soon("t", bytes(20_000), level="outbox")
        until(pending.done)
        del pending
        gc.collect()
        assert any("nobody looked at the outcome of a published" in line for line in caplog.messages)
        assert client.statistics().unheard == 1
        with pytest.raises(TopicError):
            client.publish_soon("a..b", b"", level="outbox")


def test_closing_finishes_pending_messages_and_refuses_new_ones(tmp_path: Path) -> None:
    client = BlockingClient(NOWHERE, outbox=tmp_path / "o")
    with pytest.raises(NotAccepted, match="the client is not open"):
        client.publish_soon("t", b"", level="outbox")
    with pytest.raises(Disconnected, match="the client is not open"):
        client.ready(level="outbox")
    client.open()
    called: list[BlockingPending] = []
    pending = [client.publish_soon("t", b"", level="outbox", timeout=100.0) for _ in range(10)]
    client.close()
    assert [each.result().seq for each in pending] == list(range(1, 11))
    pending[0].on_done(called.append)
    assert called == pending[:1]
    with pytest.raises(NotAccepted, match="the client is closed"):
        client.publish_soon("t", b"", level="outbox")
    with pytest.raises(ValueError, match="level 'outbox' needs a client that has one"):
        BlockingClient(NOWHERE).publish_soon("t", b"", level="outbox")


@pytest.mark.process
def test_a_fork_gets_no_outcomes_of_its_parents_messages(client: BlockingClient) -> None:
    known = client.publish_soon("t", b"", level="outbox", timeout=100.0)
    known.result()
    going_on = held_up(client)
    pending = client.publish_soon("t", b"", level="outbox", timeout=100.0)
    child = os.fork()
    if child == 0:
        try:
            assert known.result().seq == 1 and not pending.done()
            for ask in (pending.result, lambda: pending.on_done(print)):
                try:
                    ask()
                    os._exit(1)
                except Unknown as error:
                    assert "the process that published the message" in str(error)
            try:
                client.publish_soon("t", b"", level="outbox")
                os._exit(1)
            except NotAccepted as error:
                assert "of which this is a fork" in str(error)
            os._exit(0)
        finally:
            os._exit(2)
    going_on.set()
    assert os.waitpid(child, 0)[1] == 0
    assert pending.result().seq == 2
