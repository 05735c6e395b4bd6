"""The frames of stock SP sockets to a broker and its replies, without a network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mesh.access import Policy
from mesh.access.door import Door, Origin
from mesh.broker.client_frames import ClientFrames
from mesh.broker.stock import LastOpened, StockEncoder, StockPublishers, StockRequests, StockSubscribers, runs
from mesh.broker.stock_guests import StockGuests
from mesh.dataplane.gate import BYTES_MAX, COUNT_MAX, FRAME_COST, Gate
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.outlets import Encoder
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.session_frames import Status
from protocols.pipe import Pipe


@dataclass(frozen=True)
class Receipt:
    seq: int
    absent: tuple[str, ...] = ()


class FakeSubscribers:
    def __init__(self) -> None:
        self.patterns: dict[Pipe, tuple[str, ...]] = {}

    def add(self, pipe: Pipe, patterns: Sequence[str], encode: Encoder) -> None:
        self.patterns[pipe] = tuple(patterns)

    def change(self, pipe: Pipe, patterns: Sequence[str]) -> None:
        self.patterns[pipe] = tuple(patterns)

    def remove(self, pipe: Pipe) -> None:
        self.patterns.pop(pipe, None)


class FakeExchange:
    def __init__(self) -> None:
        self.published: list[tuple[str, list[bytes], str]] = []
        self.subscribers = FakeSubscribers()
        self.writable: list[Pipe] = []
        self.asked: list[tuple[str, bytes]] = []
        self.answers: dict[str, bytes] = {"$sys.status": b"{}"}
        self.closed = False
        self.absent: tuple[str, ...] = ()
        self.gate = Gate()
        self.drops: dict[str, int] = {}

    def holds(self, now: float) -> bool:
        return self.gate.closed

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

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self.writable.append(pipe)


class FakePipe:
    identity = None

    def __init__(self, id: int = 1) -> None:
        self.remote_address = f"10.0.0.{id}:4000{id}"
        self.connection = self
        self.close_reason = ""
        self.closed = False
        self.context = None
        self.unsent = 0
        self.sent: list[bytes] = []
        self.pauses = 0

    def pause(self, reason: int) -> None:
        self.pauses |= reason

    def resume(self, reason: int) -> None:
        self.pauses &= ~reason

    def send(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return True

    def close(self, reason: str, *, flush: bool = False) -> None:
        self.close_reason = reason
        self.closed = True


def pipe(id: int = 1) -> tuple[FakePipe, Pipe]:
    fake = FakePipe(id)
    return fake, cast(Pipe, fake)


def clock() -> float:
    return 1.0


def everybody() -> StockGuests:
    """Every client may do everything."""
    return StockGuests(Door(Policy()), lambda pipe: Origin(), lambda seconds, call: None)


def requests(exchange: FakeExchange) -> StockRequests:
    return StockRequests(exchange, "alpha", clock, everybody())


def ask(desk: StockRequests, body: bytes) -> bytes:
    replies: list[bytes] = []
    desk.answer(pipe()[1], body, replies.append)
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


def test_a_request_waits_for_its_receipt_while_interest_is_unknown() -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    desk, replies, (_, sending) = requests(exchange), list[bytes](), pipe()
    desk.answer(sending, b"a x", replies.append)
    desk.answer(sending, b"$sys.status", replies.append)
    desk.answer(sending, b"a..b x", replies.append)
    assert not exchange.published and replies[0] == b"{}" and replies[1].startswith(b"error: topic 'a..b'")
    exchange.gate.step(1.0)
    assert replies[2:] == [b"accepted topic=a broker=alpha seq=1"]


def test_messages_beyond_the_gates_room_are_refused_or_counted_while_interest_is_unknown() -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    assert exchange.gate.hold(BYTES_MAX - FRAME_COST - 10, lambda now: None)
    assert ask(requests(exchange), b"a " + bytes(20)).startswith(b"error: broker alpha does not know")
    desk = StockPublishers(exchange, clock, everybody())
    sender, sending = pipe()
    desk.frames_received(sending, [b"a x"])
    desk.frames_received(sending, [b"a " + bytes(20), b"a y"])
    assert exchange.drops == {"joining": 2} and not sender.close_reason
    while exchange.gate.step(1.0):
        pass
    assert exchange.published == [("a", [b"x"], "sent")]


def test_the_gate_counts_the_memory_of_small_frames() -> None:
    """It counted only their bytes: two-byte frames took 28 times as much memory as its bound."""
    exchange = FakeExchange()
    exchange.gate.close()
    desk = StockPublishers(exchange, clock, everybody())
    read = [b"a "] * 1000
    taken = 0
    while not exchange.drops:
        for _ in range(10):
            desk.frames_received(pipe()[1], read)
            taken += 1
    assert sum(map(sys.getsizeof, read)) * taken <= BYTES_MAX


def fill(desk: StockPublishers, fake: FakePipe, sending: Pipe, frame: bytes, reads: int = 1 << 20) -> int:
    """Send while the broker reads. Returns how many messages it took."""
    sent = 0
    while not fake.pauses and sent < reads:
        desk.frames_received(sending, [frame])
        sent += 1
    return sent


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_stock_publisher_with_its_part_of_the_gate_is_not_read_until_some_of_it_has_passed(
    size: int,
) -> None:
    """A stock PUSH, which has no credit, filled the whole gate, and native clients were refused."""
    exchange = FakeExchange()
    exchange.gate.close()
    desk, (fake, sending) = StockPublishers(exchange, clock, everybody()), pipe()
    sent = fill(desk, fake, sending, b"a " + bytes(size))
    assert sent == min(COUNT_MAX // 16, -(-(BYTES_MAX // 16) // (size + 2 + FRAME_COST)))
    assert exchange.gate.hold(BYTES_MAX * 3 // 4, lambda now: None), "the rest is for others"
    while exchange.gate.step(1.0):
        pass
    assert not fake.pauses and not exchange.drops
    assert sum(len(bodies) for _, bodies, _ in exchange.published) == sent


def test_stock_publishers_have_a_quarter_of_the_gate_together_and_are_named_when_they_lose_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    desk, frame = StockPublishers(exchange, clock, everybody()), b"a " + bytes(100_000)
    sent = 0
    for id in range(1, 6):
        sent += fill(desk, *pipe(id), frame, reads=25)
    assert exchange.gate.hold(BYTES_MAX * 3 // 4, lambda now: None)
    kept = BYTES_MAX // 4 // (len(frame) + FRAME_COST)
    assert exchange.drops == {"joining": sent - kept}
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, "one a host"
    assert "10.0.0.4:40004 loses 1 messages: this broker does not know yet" in warnings[0]


def test_stock_requests_of_one_connection_have_their_part_of_the_gate() -> None:
    exchange = FakeExchange()
    exchange.gate.close()
    desk, (_, device), (_, other) = requests(exchange), pipe(), pipe()
    replies: list[bytes] = []
    for _ in range(COUNT_MAX // 16 + 1):
        desk.answer(device, b"a x", replies.append)
    assert len(replies) == desk.refused == 1 and replies[0].startswith(
        b"error: broker alpha does not know yet"
    )
    desk.answer(other, b"a x", replies.append)
    while exchange.gate.step(1.0):
        pass
    assert replies[-1].startswith(b"accepted ") and len(replies) == COUNT_MAX // 16 + 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", b"needs at least one token"),
        (b" hello", b"needs at least one token"),
        (b"news..uk hello", b"has an empty token at position 2"),
        (b"news.* hello", b"has the wildcard"),
        (b"$other x", b"nobody answers $other"),
        (b"\xff\x00\xfe x", b"is not a topic"),
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


def test_the_brokers_system_topics_are_answered_with_their_content() -> None:
    desk = requests(FakeExchange())
    assert ask(desk, b"$sys.status") == b"{}"
    assert ask(desk, b"$sys.status ") == b"{}"
    assert ask(desk, b"$sys.other") == b"error: nobody answers $sys.other"


def test_a_broker_that_accepts_no_messages_says_so() -> None:
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
    publishers = StockPublishers(exchange, clock, everybody())
    publishers.frames_received(pipe()[1], [b"a 1", b"a 2", b"b 3"])
    assert exchange.published == [("a", [b"1", b"2"], "sent"), ("b", [b"3"], "sent")]
    assert publishers.published == 3


def test_a_push_with_a_bad_topic_loses_its_connection_and_the_log_counts_the_lost_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = FakeExchange()
    publishers = StockPublishers(exchange, clock, everybody())
    fake, attached = pipe()
    publishers.frames_received(attached, [b"good 1", b"\xffbad 2", b"good 3"])
    assert "is not a topic" in fake.close_reason
    assert publishers.refused == 1
    assert exchange.published == [("good", [b"1"], "sent")]
    assert exchange.drops == {"bad_topic": 2}
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "10.0.0.1:40001" in record.getMessage()
    assert "2 messages" in record.getMessage() and "is not a topic" in record.getMessage()


def test_publishers_of_bad_topics_do_not_decide_how_much_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    publishers = StockPublishers(FakeExchange(), clock, everybody())
    for number in range(1000):
        publishers.frames_received(pipe(number % 50)[1], [b"bad..topic x"])
    assert publishers.refused == 1000 and 1 <= len(caplog.records) <= 20


def test_messages_of_a_stock_publisher_to_a_leaving_broker_are_counted() -> None:
    exchange = FakeExchange()
    exchange.closed = True
    publishers = StockPublishers(exchange, clock, everybody())
    fake, attached = pipe()
    publishers.frames_received(attached, [b"a 1", b"b 2", b"b 3"])
    assert exchange.drops == {"leaving": 2}, "and the first by the exchange itself"
    assert not fake.close_reason and publishers.refused == 0


def test_a_stock_subscriber_makes_its_broker_want_the_export_while_it_is_attached() -> None:
    exchange = FakeExchange()
    subscribers = StockSubscribers(exchange, ["news.#"], clock, everybody())
    (_, one), (_, two) = pipe(1), pipe(2)
    subscribers.pipe_attached(one)
    subscribers.pipe_attached(two)
    assert exchange.subscribers.patterns == {one: ("news.#",), two: ("news.#",)}
    subscribers.pipe_writable(two)
    assert exchange.writable == [two]
    subscribers.pipe_detached(one, "gone")
    assert list(exchange.subscribers.patterns) == [two]


def test_a_changed_export_applies_to_existing_stock_subscribers() -> None:
    exchange = FakeExchange()
    subscribers = StockSubscribers(exchange, [], clock, everybody())
    one = pipe()[1]
    subscribers.pipe_attached(one)
    assert exchange.subscribers.patterns == {one: ()}
    subscribers.set_export(["news.#"])
    assert exchange.subscribers.patterns == {one: ("news.#",)}


def test_a_stock_subscriber_that_sends_loses_its_connection() -> None:
    fake, attached = pipe()
    StockSubscribers(FakeExchange(), ["#"], clock, everybody()).frames_received(attached, [b"x"])
    assert fake.close_reason == "a SUB socket does not send"


def encoders(count: int) -> list[StockEncoder]:
    """The encoders of so many subscribers of one broker."""
    last = LastOpened()
    return [StockEncoder(last, FakeExchange().drop) for _ in range(count)]


def test_blocks_become_a_frame_for_each_message_and_are_opened_once_for_all() -> None:
    first, second = encoders(2)
    block = blocks.seal(b"news.uk", [b"1", b"22"], publisher=1, boot=1, sequence=1)
    one: list[bytes] = []
    two: list[bytes] = []
    first.encode(one, block, 0, 0, 1)
    second.encode(two, block, 0, 0, 1)
    assert one == two == [b"news.uk 1", b"news.uk 22"]
    assert one[0] is two[0]
    first.encode(one, b"no block", 0, 0, 2)
    assert len(one) == 2, "another broker's nonsense reaches nobody"


def test_a_large_body_is_put_together_for_stock_subscribers() -> None:
    (encoder,) = encoders(1)
    body = bytes(range(256)) * 1000
    frames: list[bytes] = []
    pieces = blocks.seal_pieces(b"t", body, publisher=1, boot=1, sequence=1)
    for piece in pieces:
        assert frames == []
        encoder.encode(frames, piece, 0, 0, 1)
    assert len(pieces) > 1 and frames == [b"t " + body]


def test_a_slow_stock_subscriber_costs_the_others_no_large_body() -> None:
    """All shared one assembler: when the first piece also reached the slow one, it began the body anew."""
    fast, slow = encoders(2)
    body = bytes(range(256)) * 1000
    first, *others = blocks.seal_pieces(b"t", body, publisher=1, boot=1, sequence=1)
    got: dict[StockEncoder, list[bytes]] = {fast: [], slow: []}
    fast.encode(got[fast], first, 0, 0, 1)
    fast.encode(got[fast], others[0], 0, 0, 2)
    slow.encode(got[slow], first, 0, 0, 1)
    for encoder, left in ((fast, others[1:]), (slow, others)):
        for piece in left:
            encoder.encode(got[encoder], piece, 0, 0, 3)
    assert got[fast] == got[slow] == [b"t " + body]


def test_a_large_body_that_ends_for_several_stock_subscribers_is_one_frame() -> None:
    first, second = encoders(2)
    one: list[bytes] = []
    two: list[bytes] = []
    for piece in blocks.seal_pieces(b"t", bytes(200_000), publisher=1, boot=1, sequence=1):
        first.encode(one, piece, 0, 0, 1)
        second.encode(two, piece, 0, 0, 1)
    assert len(one) == 1 and one[0] is two[0]


def test_large_bodies_given_up_for_a_stock_subscriber_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 65th unfinished body replaced the first, and nothing counted that."""
    exchange = FakeExchange()
    encoder = StockEncoder(LastOpened(), exchange.drop)
    monkeypatch.setattr(encoder._assembler, "bytes_max", 90 * blocks.SPLIT)
    many = [blocks.seal_pieces(b"t", bytes(100_000), publisher=n, boot=1, sequence=1) for n in range(100)]
    frames: list[bytes] = []
    for end in range(2):
        for pieces in many:
            encoder.encode(frames, pieces[end], 0, 0, 1)
    assert len(frames) == 89 and exchange.drops == {"unfinished_body": 11}


class FakeSessions:
    """An exchange that knows no sessions: all frames are a stock client's."""

    options = ExchangeOptions(answer_bytes_max=1000)
    reading = SimpleNamespace(left=[])

    def client_frames(self, pipe: Pipe, frames: list[bytes], now: float) -> list[bytes]:
        return frames

    def client_gone(self, pipe: Pipe, now: float) -> None: ...


def test_a_stock_client_that_never_reads_its_replies_loses_its_connection() -> None:
    class Replies:
        def answer(self, pipe: Pipe, body: bytes, reply: Callable[[bytes], None]) -> None:
            reply(bytes(300))

    clients = ClientFrames(
        cast(Any, FakeSessions()), cast(Any, Replies()), cast(Any, None), clock, everybody()
    )
    fake, attached = pipe()
    for _ in range(20):
        clients.frames_received(attached, [b"\x80\0\0\1ask"])
    assert len(fake.sent) == 20 and not fake.close_reason, "it reads"
    fake.unsent = 1
    for _ in range(20):
        clients.frames_received(attached, [b"\x80\0\0\1ask"])
        if fake.close_reason:
            break
    assert "1000 bytes of replies were left unread" in fake.close_reason and len(fake.sent) < 26


def test_a_stock_client_that_disconnects_before_its_reply_is_forgotten() -> None:
    """The late reply put the closed pipe back into the table of unread bytes, where it stayed forever."""
    held: list[Callable[[bytes], None]] = []

    class Held:
        def answer(self, pipe: Pipe, body: bytes, reply: Callable[[bytes], None]) -> None:
            held.append(reply)

    clients = ClientFrames(cast(Any, FakeSessions()), cast(Any, Held()), cast(Any, None), clock, everybody())
    fake, attached = pipe()
    clients.frames_received(attached, [b"\x80\0\0\1ask"])
    fake.close("the client hangs up")
    clients.pipe_detached(attached, "the client hangs up")
    (reply,) = held
    reply(b"late")
    assert not clients._unread and not fake.sent
