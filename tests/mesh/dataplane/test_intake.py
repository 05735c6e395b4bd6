"""Blocks from clients: which are counted, and which are refused with which sentence."""

from __future__ import annotations

import pytest

from mesh.broker.stock import LastOpened, StockEncoder
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT
from mesh.wire.session_frames import DATA_SIZE, Kind, data_head, decode
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh, FakePipe


def sealed(client: FakeClient, *bodies: bytes, sequence: int = 1, level: int = SENT) -> bytes:
    conversation = client.conversation
    return blocks.seal(
        b"t", bodies, publisher=conversation.publisher, boot=conversation.boot, sequence=sequence, level=level
    )


def sent(client: FakeClient, *frames: bytes) -> list[list[object]]:
    """The broker's answers to these frames of a client."""
    client.consuming = False
    said = [client.conversation.prefix + frame for frame in frames]
    client.node.exchange.client_frames(client.pipe, said, client.mesh.now)
    return [decode(frame, 4) for frame in client.pipe.take() if frame[5] != Kind.DATA]


def test_messages_and_bytes_are_counted_on_arrival_and_after_their_client_has_gone() -> None:
    mesh = FakeMesh(1)
    client = mesh.client()
    exchange = mesh.nodes[1].exchange
    frames = [sealed(client, b"a", b"b"), sealed(client, b"ccc", sequence=3, level=ACCEPTED)]
    size = sum(map(len, frames))
    sent(client, *(data_head(0, 0, 0, 0, len(frame)) + frame for frame in frames))
    for _ in range(2):
        counted = exchange.statistics()
        assert (counted.msgs_in, counted.bytes_in, counted.published) == (3, size, 3)
        client.lose() if client in mesh.clients else None


@pytest.mark.parametrize(
    ("head", "more", "word"),
    [
        (data_head(0, 0, 0, 0, 41), b"", "announces a block of 41 bytes and has 40"),
        (data_head(0, 2, 0, 0, 40), b"", "unknown flags 0x2"),
        (b"\x94" + data_head(0, 0, 0, 0, 40)[1:], b"", "does not have its fixed form"),
        (data_head(1, 0, 0, 0, 40), b"", "names 1 hops, subscription 0, sequence 0"),
        (data_head(0, 0, 5, 0, 40), b"", "names 0 hops, subscription 5, sequence 0"),
        (data_head(0, 0, 0, 9, 40), b"", "names 0 hops, subscription 0, sequence 9"),
    ],
)
def test_a_wrong_head_is_refused_with_the_reason(head: bytes, more: bytes, word: str) -> None:
    client = FakeMesh(1).client()
    block = sealed(client, b"abc")
    assert len(block) == 40 and len(head) == DATA_SIZE
    (error,) = sent(client, head + block + more)
    assert error[0] == Kind.ERROR and word in str(error[2])


def test_a_frame_that_is_too_short_for_its_heads_is_refused_by_its_length() -> None:
    client = FakeMesh(1).client()
    (error,) = sent(client, data_head(0, 0, 0, 0, 0))
    assert error[0] == Kind.ERROR and "of 25 bytes is shorter than its heads of 61" in str(error[2])


def test_a_stock_subscriber_that_changes_its_patterns_changes_the_interest_of_its_broker() -> None:
    mesh = FakeMesh(1)
    exchange, pipe = mesh.nodes[1].exchange, FakePipe()
    sender = mesh.client()
    exchange.subscribers.add(pipe, ["a", "b"], StockEncoder(LastOpened(), exchange.drop).encode)
    assert mesh.interest[1] == [("a", 0), ("b", 0)]
    exchange.subscribers.change(pipe, ["b", "c", "c"])
    assert mesh.interest[1] == [("b", 0), ("c", 0)]
    for topic in ("a", "b", "c"):
        sender.publish(topic, b"x")
    assert len(pipe.take()) == 2
    exchange.subscribers.remove(pipe)
    exchange.subscribers.remove(pipe)
    assert mesh.interest[1] == []


def test_a_leaving_broker_counts_only_refused_messages_without_a_waiting_caller() -> None:
    exchange = FakeMesh(1).nodes[1].exchange
    exchange.leave("restart", 0.0)
    with pytest.raises(NotAccepted, match="restart"):
        exchange.publish("t", [b"x", b"y"], "accepted", 0.0)
    assert exchange.statistics().drops == {}
    with pytest.raises(NotAccepted, match="restart"):
        exchange.publish("t", [b"x", b"y"], "sent", 0.0)
    assert exchange.statistics().drops == {"leaving": 2}


@pytest.mark.parametrize("back_at", [1, 2])
def test_a_large_body_that_was_committed_is_dropped_when_it_comes_again(back_at: int) -> None:
    """Brokers passed all pieces on. Subscribers knew a second body until 256 other publishers had come."""
    mesh = FakeMesh(2)
    subscriber = mesh.client(1, "subscriber")
    feed = subscriber.subscribe("t")
    feed.seen.publishers_max = 1
    publisher, another = mesh.client(1, "publisher"), mesh.client(1, "another")
    ticket, index = publisher.conversation.add_many("t", [b"L" * 200_000], ACCEPTED)
    publisher.conversation.flush()
    frames = publisher.conversation.take_control() + publisher.conversation.take_frames()
    mesh.nodes[1].exchange.client_frames(publisher.pipe, frames, mesh.now)
    publisher.lose()
    another.publish("t", b"x", level=ACCEPTED)
    publisher.connect(mesh.nodes[back_at])
    mesh.pump()
    assert ticket is not None and ticket.receipt(index).seq == 1
    assert [body[:1] for _, body in subscriber.take(feed)] == [b"L", b"x"]
    assert mesh.nodes[1].exchange.statistics().drops == {"duplicate": 4}
    assert feed.seen.forgotten == 1


def test_a_large_body_that_arrived_partly_is_accepted_whole_when_it_comes_again() -> None:
    mesh = FakeMesh(2)
    subscribers = [mesh.client(node) for node in (1, 2)]
    feeds = [subscriber.subscribe("t") for subscriber in subscribers]
    publisher = mesh.client(1, "publisher")
    publisher.conversation.add_many("t", [b"L" * 200_000], ACCEPTED)
    publisher.conversation.flush()
    *frames, _ = publisher.conversation.take_frames()
    mesh.nodes[1].exchange.client_frames(publisher.pipe, frames, mesh.now)
    publisher.lose()
    publisher.connect(mesh.nodes[2])
    mesh.pump()
    for subscriber, feed in zip(subscribers, feeds, strict=True):
        assert [len(body) for _, body in subscriber.take(feed)] == [200_000]
