"""Outlets: what goes at once, what waits, at whose expense, and what is dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane.outlets import DeliveryOptions, Held, Outlet, Source
from mesh.wire.session_frames import DATA_SIZE, ReceiveWindow, read_data

OPTIONS = DeliveryOptions(messages_max=40, bytes_max=10_000)


class FakePort:
    prefix = b"\x80\0\0\1"

    def __init__(self) -> None:
        self.ready: list[bytes] = []
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def waits(self, outlet: Outlet) -> None:
        self.waiting = outlet

    def take(self) -> list[tuple[int, bytes]]:
        """(sequence, block) of the frames that are ready."""
        frames, self.ready = self.ready, []
        return [(read_data(frame, 4)[3], frame[4 + DATA_SIZE :]) for frame in frames]


class Bench:
    """One outlet, fed by a session and by a link."""

    def __init__(self, options: DeliveryOptions = OPTIONS) -> None:
        self.port = FakePort()
        self.outlet = Outlet(self.port, 7, options, 0.0)
        self.due: list[Source] = []
        self.session = Source("session", ReceiveWindow(1000, 1 << 20), self.due, is_link=False)
        self.link = Source("link", ReceiveWindow(1000, 1 << 20), self.due, is_link=True)

    def give(self, block: bytes, source: Source, now: float = 0.0, messages: int = 5) -> Held | None:
        """As the exchange does: offer, else wait; a block that waits nowhere settles at once."""
        held = None
        if not self.outlet.offer(block, messages, 0, 0):
            held = Held(source, messages, len(block))
            self.outlet.wait(block, messages, 0, 0, held, now)
        if held is None or not held.outlets:
            source.settle(messages, len(block))
        return held

    def owed(self, source: Source) -> int:
        return source.window.owed_messages


def test_with_credit_a_block_goes_at_once_behind_its_head() -> None:
    bench = Bench()
    bench.outlet.granted(10, 1000, 0.0)
    bench.give(b"block", bench.session)
    (frame,) = bench.port.ready
    assert frame[:4] == FakePort.prefix and read_data(frame, 4) == (0, 0, 7, 1)
    assert bench.port.take() == [(1, b"block")]
    assert (bench.outlet.credit.messages, bench.outlet.credit.bytes) == (5, 995)
    assert bench.owed(bench.session) == 5
    assert bench.port.woken == 1


def test_a_view_goes_as_its_bytes_do() -> None:
    bench = Bench()
    bench.outlet.granted(10, 1000, 0.0)
    assert bench.outlet.offer(memoryview(b"..block")[2:], 5, 0, 0)
    assert bench.port.take() == [(1, b"block")]


def test_without_credit_blocks_wait_in_order_and_hold_their_sources_credit() -> None:
    bench = Bench()
    for name in (b"a", b"b", b"c"):
        bench.give(name, bench.session)
    assert bench.port.take() == [] and bench.owed(bench.session) == 0
    bench.outlet.granted(6, 1000, 1.0)
    assert bench.port.take() == [(1, b"a"), (2, b"b")], "one overdraws"
    assert bench.owed(bench.session) == 10
    bench.outlet.granted(100, 1000, 1.0)
    assert bench.port.take() == [(3, b"c")]
    bench.give(b"d", bench.session)
    assert bench.port.take() == [(4, b"d")]


def test_the_last_outlet_that_holds_a_block_gives_its_credit_back() -> None:
    one, two = Bench(), Bench()
    held = Held(one.session, 5, 10)
    for bench in (one, two):
        bench.outlet.wait(b"x", 5, 0, 0, held, 0.0)
    one.outlet.granted(10, 100, 0.0)
    assert one.owed(one.session) == 0
    two.outlet.close()
    assert one.owed(one.session) == 5


def test_a_stall_releases_credit_after_ten_seconds_and_a_grant_ends_it() -> None:
    bench = Bench()
    bench.give(b"a", bench.session, now=0.0)
    assert not bench.outlet.check_stall(9.9) and bench.owed(bench.session) == 0
    assert bench.outlet.check_stall(10.0) and bench.outlet.stalled
    assert bench.owed(bench.session) == 5
    bench.give(b"b", bench.session, now=11.0)
    assert bench.owed(bench.session) == 10, "a stalled consumer holds nobody up"
    bench.outlet.granted(100, 1000, 12.0)
    assert bench.port.take() == [(1, b"a"), (2, b"b")]
    assert not bench.outlet.stalled and bench.owed(bench.session) == 10, "given back once"


def test_waiting_begins_to_count_when_something_waits() -> None:
    bench = Bench()
    bench.give(b"a", bench.session, now=1000.0)
    assert not bench.outlet.check_stall(1005.0)


def test_a_links_blocks_hold_its_credit_only_above_a_quarter_and_for_three_seconds() -> None:
    bench = Bench()
    for number in range(4):
        bench.give(b"%d" % number, bench.link, now=0.0)
    held = bench.owed(bench.link)
    assert held == 10, "the first two waited for free, the others at the link's expense"
    bench.outlet.check_stall(2.9)
    assert bench.owed(bench.link) == 10
    bench.outlet.check_stall(3.0)
    assert bench.owed(bench.link) == 20 and not bench.outlet.stalled
    bench.give(b"x", bench.link, now=3.5)
    assert bench.owed(bench.link) == 25


def test_beyond_the_bounds_the_oldest_is_dropped_and_leaves_a_gap() -> None:
    bench = Bench()
    bench.give(b"first", bench.session)
    bench.outlet.check_stall(10.0)
    for number in range(10):
        bench.give(b"%d" % number, bench.session)
    assert bench.outlet.dropped == 15 and bench.outlet.queued_messages == 40
    assert bench.owed(bench.session) == 55
    bench.outlet.granted(1000, 10_000, 0.0)
    assert [sequence for sequence, _ in bench.port.take()] == list(range(4, 12))
    huge = Bench()
    huge.outlet.wait(bytes(20_000), 5, 0, 0, None, 0.0)
    assert huge.outlet.dropped == 0, "one block may be larger than the bound"
    huge.outlet.wait(b"next", 5, 0, 0, None, 0.0)
    assert huge.outlet.dropped == 5


def test_what_holds_its_sources_credit_is_never_dropped() -> None:
    bench = Bench()
    for number in range(30):
        bench.give(b"%d" % number, bench.session)
    for _ in range(20):
        bench.outlet.wait(b"free", 5, 0, 0, None, 0.0)
    assert bench.outlet.dropped == 60, "only of what waits free, beyond its own bound"
    bench.outlet.granted(1000, 100_000, 1.0)
    assert [block for _, block in bench.port.take()][:30] == [b"%d" % number for number in range(30)]


def test_a_question_waits_in_line_and_counts_as_one_message() -> None:
    bench = Bench()
    bench.give(b"a", bench.session)
    bench.outlet.offer_frame(b"ASK", 0.0)
    bench.outlet.granted(100, 1000, 0.0)
    assert bench.port.ready[1] == FakePort.prefix + b"ASK"
    assert bench.outlet.credit.messages == 94
    bench.outlet.offer_frame(b"ASK2", 0.0)
    assert bench.port.ready[2] == FakePort.prefix + b"ASK2"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["session", "link", "grant", "time"]), st.integers(1, 8), st.integers(0, 400)
        ),
        max_size=120,
    )
)
def test_whatever_happens_credit_is_neither_lost_nor_made(steps: list[tuple[str, int, int]]) -> None:
    bench = Bench()
    given_in: dict[str, int] = {"session": 0, "link": 0}
    now = 0.0
    for what, messages, size in steps:
        if what == "grant":
            bench.outlet.granted(messages * 3, size * 3, now)
        elif what == "time":
            now += messages
            bench.outlet.check_stall(now)
        else:
            bench.give(bytes(size), getattr(bench, what), now, messages)
            given_in[what] += messages
        assert 0 <= bench.outlet.free_messages <= 48
    out = bench.outlet.messages_out + bench.outlet.dropped + bench.outlet.queued_messages
    assert out == sum(given_in.values())
    assert bench.outlet.close() + bench.outlet.messages_out + bench.outlet.dropped == out
    for name, total in given_in.items():
        assert bench.owed(getattr(bench, name)) == total
