"""What stock SP sockets may say to a broker and what they get back, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from mesh.broker.stock import StockPublishers, StockRequests, StockTaps, runs
from mesh.dataplane.gate import BYTES_MAX, Gate
from mesh.errors import NotAccepted
from mesh.wire.session_frames import Status
from protocols.pipe import Pipe


@dataclass(frozen=True)
class Receipt:
    seq: int
    absent: tuple[str, ...] = ()


class FakeExchange:
    def __init__(self) -> None:
        self.published: list[tuple[str, list[bytes], str]] = []
        self.taps: dict[int, Callable[[str, list[bytes]], None]] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.answers: dict[str, bytes] = {"$sys.status": b"{}"}
        self.closed = False
        self.absent: tuple[str, ...] = ()
        self.gate = Gate()
        self.drops: dict[str, int] = {}

    def drop(self, reason: str, count: int) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + count

    def publish(self, topic: str, bodies: Sequence[bytes], level: str, now: float) -> Receipt:
        if self.closed:
            raise NotAccepted("this broker is leaving")
        self.published.append((topic, list(bodies), level))
        return Receipt(len(self.published), self.absent)

    def request(
        self, topic: str, body: bytes, timeout_s: float, callback: Callable[[int, bytes], None], now: float
    ) -> None:
        self.asked.append((topic, body))
        answer = self.answers.get(topic)
        callback(Status.NO_RESPONDERS if answer is None else Status.OK, answer or b"")

    def add_tap(self, patterns: Sequence[str], callback: Callable[[str, list[bytes]], None]) -> int:
        self.taps[len(self.taps) + 1] = callback
        return len(self.taps)

    def remove_tap(self, id: int) -> None:
        del self.taps[id]


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


def clock() -> float:
    return 1.0


def requests(exchange: FakeExchange) -> StockRequests:
    return StockRequests(exchange, "alpha", clock)


def ask(desk: StockRequests, body: bytes) -> bytes:
    replies: list[bytes] = []
    desk.answer(body, replies.append)
    (reply,) = replies
    return reply


def test_a_request_publishes_and_gets_a_receipt_line() -> None:
    exchange = FakeExchange()
    desk = requests(exchange)
    assert ask(desk, b"news.uk hello world") == b"accepted topic=news.uk broker=alpha seq=1"
    assert ask(desk, b"news.uk") == b"accepted topic=news.uk broker=alpha seq=2"
    assert exchange.published == [
        ("news.uk", [b"hello world"], "accepted"),
        ("news.uk", [b""], "accepted"),
    ]


def test_a_receipt_names_the_brokers_that_could_not_be_reached() -> None:
    exchange = FakeExchange()
    exchange.absent = ("beta", "gamma")
    assert ask(requests(exchange), b"a x") == b"accepted topic=a broker=alpha seq=1 absent=beta,gamma"


def test_while_interest_is_not_known_a_request_waits_for_its_receipt() -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    desk, replies = requests(exchange), list[bytes]()
    desk.answer(b"a x", replies.append)
    desk.answer(b"$sys.status", replies.append)
    desk.answer(b"a..b x", replies.append)
    assert not exchange.published and replies[0] == b"{}" and replies[1].startswith(b"error: topic 'a..b'")
    exchange.gate.open(1.0)
    assert replies[2:] == [b"accepted topic=a broker=alpha seq=1"]


def test_what_no_longer_fits_while_interest_is_not_known_is_refused_or_counted() -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    assert exchange.gate.hold(BYTES_MAX - 10, lambda now: None)
    assert ask(requests(exchange), b"a " + bytes(20)).startswith(b"error: broker alpha is joining")
    desk = StockPublishers(exchange, clock)
    sender, sending = pipe()
    desk.frames_received(sending, [b"a x"])
    desk.frames_received(sending, [b"a " + bytes(20), b"a y"])
    assert exchange.drops == {"joining": 2} and not sender.close_reason
    exchange.gate.open(1.0)
    assert exchange.published == [("a", [b"x"], "sent")]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", b"needs at least one token"),
        (b" hello", b"needs at least one token"),
        (b"news..uk hello", b"has an empty token at position 2"),
        (b"news.* hello", b"has the wildcard"),
        (b"$other x", b"nobody answers $other"),
        (b"\xff\x00\xfe x", b"is no topic"),
        (b"a" * 300 + b" x", b"has 300 characters, the limit is 255"),
    ],
)
def test_a_bad_topic_gets_one_sentence_back_and_is_counted(body: bytes, sentence: bytes) -> None:
    exchange = FakeExchange()
    desk = requests(exchange)
    reply = ask(desk, body)
    assert reply.startswith(b"error: ") and sentence in reply
    assert b"\n" not in reply
    assert desk.refused == (0 if exchange.asked else 1)
    assert exchange.published == []


def test_the_brokers_own_topics_are_answered_with_what_they_hold() -> None:
    desk = requests(FakeExchange())
    assert ask(desk, b"$sys.status") == b"{}"
    assert ask(desk, b"$sys.status ") == b"{}"
    assert ask(desk, b"$sys.other") == b"error: nobody answers $sys.other"


def test_a_broker_that_takes_nothing_says_so() -> None:
    exchange = FakeExchange()
    exchange.closed = True
    assert ask(requests(exchange), b"a b") == b"error: this broker is leaving"


def test_neighbours_of_one_topic_are_published_together_and_order_stays() -> None:
    assert runs([b"a 1", b"a 2", b"b 3", b"a 4", b"c"]) == [
        (b"a", [b"1", b"2"]),
        (b"b", [b"3"]),
        (b"a", [b"4"]),
        (b"c", [b""]),
    ]
    assert runs([b"a 1", b"a  2 ", b"a "]) == [(b"a", [b"1", b" 2 ", b""])]
    assert runs([b"a"]) == [(b"a", [b""])]
    assert runs([b"a", b"a 1"]) == [(b"a", [b"", b"1"])]
    assert runs([b"a 1", b"ab 2"]) == [(b"a", [b"1"]), (b"ab", [b"2"])]
    exchange = FakeExchange()
    publishers = StockPublishers(exchange, clock)
    publishers.frames_received(pipe()[1], [b"a 1", b"a 2", b"b 3"])
    assert exchange.published == [("a", [b"1", b"2"], "sent"), ("b", [b"3"], "sent")]
    assert publishers.published == 3


def test_a_push_with_a_bad_topic_loses_its_connection_and_what_came_before_stands() -> None:
    exchange = FakeExchange()
    publishers = StockPublishers(exchange, clock)
    fake, attached = pipe()
    publishers.frames_received(attached, [b"good 1", b"\xffbad 2", b"good 3"])
    assert "is no topic" in fake.close_reason
    assert publishers.refused == 1
    assert exchange.published == [("good", [b"1"], "sent")]


def test_a_tap_exists_while_a_subscriber_is_attached() -> None:
    exchange = FakeExchange()
    taps = StockTaps(exchange, ["news.#"])
    (one, one_pipe), (two, two_pipe) = pipe(1), pipe(2, room=1)
    taps.pipe_attached(one_pipe)
    taps.pipe_attached(two_pipe)
    assert len(exchange.taps) == 1
    exchange.taps[1]("news.uk", [b"1", b"2"])
    assert one.sent == [b"news.uk 1", b"news.uk 2"]
    assert two.sent == [b"news.uk 1"]
    assert (taps.delivered, taps.dropped) == (3, 1)
    taps.pipe_detached(one_pipe, "gone")
    assert len(exchange.taps) == 1
    taps.pipe_detached(two_pipe, "gone")
    assert exchange.taps == {}


def test_a_broker_that_exports_nothing_makes_no_tap() -> None:
    exchange = FakeExchange()
    taps = StockTaps(exchange, [])
    taps.pipe_attached(pipe()[1])
    assert exchange.taps == {}
