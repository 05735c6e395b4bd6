"""What stock SP sockets may say to a broker and what they get back, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from mesh.errors import NotAccepted
from mesh.stock import StockPublishers, StockRequests, StockTaps, runs
from protocols.pipe import Pipe


@dataclass(frozen=True)
class Receipt:
    sequence: int


class FakeExchange:
    def __init__(self) -> None:
        self.published: list[tuple[bytes, list[bytes], str]] = []
        self.taps: dict[int, Callable[[bytes, Sequence[bytes]], None]] = {}
        self.closed = False

    def publish(self, topic: bytes, bodies: Sequence[bytes], level: str) -> Receipt:
        if self.closed:
            raise NotAccepted("this broker is leaving")
        self.published.append((topic, list(bodies), level))
        return Receipt(len(self.published))

    def add_tap(self, patterns: Sequence[str], callback: Callable[[bytes, Sequence[bytes]], None]) -> int:
        self.taps[len(self.taps) + 1] = callback
        return len(self.taps)

    def remove_tap(self, tap: int) -> None:
        del self.taps[tap]


class FakePipe:
    def __init__(self, id: int, room: int = 1000) -> None:
        self.id = id
        self.room = room
        self.sent: list[bytes] = []
        self.close_reason = ""

    def send_many(self, frames: Sequence[bytes]) -> int:
        taken = list(frames[: self.room])
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def close(self, reason: str, *, flush: bool = False) -> None:
        self.close_reason = reason


def pipe(id: int = 1, room: int = 1000) -> tuple[FakePipe, Pipe]:
    fake = FakePipe(id, room)
    return fake, cast(Pipe, fake)


def requests(exchange: FakeExchange) -> StockRequests:
    return StockRequests(exchange, "alpha", {"$sys.status": lambda: b"{}"})


def test_a_request_publishes_and_gets_a_receipt_line() -> None:
    exchange = FakeExchange()
    desk = requests(exchange)
    assert desk.answer(b"news.uk hello world") == b"accepted topic=news.uk broker=alpha seq=1"
    assert desk.answer(b"news.uk") == b"accepted topic=news.uk broker=alpha seq=2"
    assert exchange.published == [
        (b"news.uk", [b"hello world"], "accepted"),
        (b"news.uk", [b""], "accepted"),
    ]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", b"needs at least one token"),
        (b" hello", b"needs at least one token"),
        (b"news..uk hello", b"has an empty token at position 2"),
        (b"news.* hello", b"wildcards are for subscribing"),
        (b"$other x", b"begins with '$'"),
        (b"\xff\x00\xfe x", b"is no topic"),
        (b"a" * 300 + b" x", b"has 300 characters, the limit is 255"),
    ],
)
def test_a_bad_topic_gets_one_sentence_back_and_is_counted(body: bytes, sentence: bytes) -> None:
    exchange = FakeExchange()
    desk = requests(exchange)
    reply = desk.answer(body)
    assert reply.startswith(b"error: ") and sentence in reply
    assert b"\n" not in reply
    assert desk.refused == 1
    assert exchange.published == []


def test_the_brokers_own_topics_are_answered_with_what_they_hold() -> None:
    desk = requests(FakeExchange())
    assert desk.answer(b"$sys.status") == b"{}"
    assert desk.answer(b"$sys.status ") == b"{}"
    assert desk.answer(b"$sys.other").startswith(b"error: ")


def test_a_broker_that_takes_nothing_says_so() -> None:
    exchange = FakeExchange()
    exchange.closed = True
    assert requests(exchange).answer(b"a b") == b"error: this broker is leaving"


def test_neighbours_of_one_topic_are_published_together_and_order_stays() -> None:
    assert runs([b"a 1", b"a 2", b"b 3", b"a 4", b"c"]) == [
        (b"a", [b"1", b"2"]),
        (b"b", [b"3"]),
        (b"a", [b"4"]),
        (b"c", [b""]),
    ]
    exchange = FakeExchange()
    publishers = StockPublishers(exchange)
    publishers.frames_received(pipe()[1], [b"a 1", b"a 2", b"b 3"])
    assert exchange.published == [(b"a", [b"1", b"2"], "sent"), (b"b", [b"3"], "sent")]
    assert publishers.published == 3


def test_a_push_with_a_bad_topic_loses_its_connection_and_what_came_before_stands() -> None:
    exchange = FakeExchange()
    publishers = StockPublishers(exchange)
    fake, attached = pipe()
    publishers.frames_received(attached, [b"good 1", b"\xffbad 2", b"good 3"])
    assert "is no topic" in fake.close_reason
    assert publishers.refused == 1
    assert exchange.published == [(b"good", [b"1"], "sent")]


def test_a_tap_exists_while_a_subscriber_is_attached() -> None:
    exchange = FakeExchange()
    taps = StockTaps(exchange, ["news.#"])
    assert taps.patterns == ()
    (one, one_pipe), (two, two_pipe) = pipe(1), pipe(2, room=1)
    taps.pipe_attached(one_pipe)
    taps.pipe_attached(two_pipe)
    assert taps.patterns == ("news.#",)
    assert len(exchange.taps) == 1
    exchange.taps[1](b"news.uk", [b"1", b"2"])
    assert one.sent == [b"news.uk 1", b"news.uk 2"]
    assert two.sent == [b"news.uk 1"]
    assert (taps.delivered, taps.dropped) == (3, 1)
    taps.pipe_detached(one_pipe, "gone")
    assert len(exchange.taps) == 1
    taps.pipe_detached(two_pipe, "gone")
    assert exchange.taps == {} and taps.patterns == ()


def test_a_broker_that_exports_nothing_makes_no_tap() -> None:
    exchange = FakeExchange()
    taps = StockTaps(exchange, [])
    taps.pipe_attached(pipe()[1])
    assert exchange.taps == {}
