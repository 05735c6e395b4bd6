"""An outbox drains in order and frees only stored blocks, whatever homes and sessions do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mesh.outbox.draining import BODY_S, HELD_MAX, PAUSE_MAX_S, PAUSE_MIN_S, Draining, Range, Send
from mesh.outbox.records import Damaged, OutboxBlock
from mesh.wire import blocks

TOPICS = (b"a", b"b", b"c", b"d")
WINDOW = 600
"""About six blocks."""
NO_PIECE = -1


@dataclass
class File:
    """The outbox's rows."""

    rows: dict[int, OutboxBlock | Damaged] = field(default_factory=dict)
    last: int = 0
    boot: int = 1
    number: int = 0

    def append(self, topic: bytes, count: int = 1) -> OutboxBlock:
        return self._add(topic, blocks.seal(topic, [b"x" * 50] * count, **self._next(count)), count)

    def append_body(self, topic: bytes, pieces: int) -> list[OutboxBlock]:
        """A large body, except for its size."""
        ends = self._next(1)
        made = []
        for offset in range(pieces):
            block = b"%d/%d" % (offset, pieces) + bytes(60)
            made.append(self._add(topic, block, 1, number=ends["sequence"]))
        return made

    def read(self, after_row: int, bytes_max: int, without: tuple[bytes, ...]) -> list[OutboxBlock | Damaged]:
        found: list[OutboxBlock | Damaged] = []
        for row in sorted(self.rows):
            at = self.rows[row]
            if row > after_row and not (isinstance(at, OutboxBlock) and at.topic in without):
                found.append(at)
                bytes_max -= len(at.block) if isinstance(at, OutboxBlock) else 0
                if bytes_max <= 0:
                    break
        return found

    def free(self, ranges: list[Range]) -> None:
        for first, last in ranges:
            for row in range(first, last + 1):
                self.rows.pop(row, None)

    def damage(self, row: int) -> None:
        it = self.rows[row]
        self.rows[row] = Damaged(row, it.boot, it.first, it.last, "flipped")

    def _next(self, count: int) -> dict[str, Any]:
        first = self.number + 1
        self.number += count
        return {"publisher": 7, "boot": self.boot, "sequence": first}

    def _add(self, topic: bytes, block: bytes, count: int, number: int = 0) -> OutboxBlock:
        self.last += 1
        first = number or self.number - count + 1
        row = OutboxBlock(self.last, self.boot, first, first + count - 1, topic, block)
        self.rows[row.row] = row
        return row


def filled(*topics: bytes) -> tuple[File, Draining]:
    """An outbox with a row of each topic, as if opened so, and its draining."""
    file = File()
    for topic in topics:
        file.append(topic)
    return file, Draining(file.last, window_bytes=WINDOW)


def read(file: File, draining: Draining) -> None:
    """Read as long as it asks for more."""
    while (wanted := draining.wants()) is not None:
        draining.found(file.read(wanted.after_row, wanted.bytes_max, wanted.without))


def took(file: File, draining: Draining, now: float = 0.0) -> list[int]:
    """The first numbers of everything that it sends until it stops."""
    sent: list[Send] = []
    while True:
        before = len(sent)
        sent += draining.take(now, 1 << 20)
        read(file, draining)
        sent += draining.take(now, 1 << 20)
        if len(sent) == before:
            return [blocks.HEAD.unpack_from(it.block)[6] for it in sent]


def stored(file: File, draining: Draining, first: int, last: int) -> None:
    freed = draining.acknowledged([(first, last)])
    file.free(freed)
    draining.freed(freed)


# --- the normal course


def test_rows_are_sent_in_order_as_a_window_holds_and_freed_when_stored() -> None:
    file, draining = filled(*[b"a"] * 10)
    assert not draining.drained
    read(file, draining)
    assert draining.boot == 1
    assert draining.take(0, 1 << 20) == []  # no session
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3, 4, 5, 6]
    stored(file, draining, 1, 2)
    stored(file, draining, 4, 4)
    assert sorted(file.rows) == [3, 5, 6, 7, 8, 9, 10]
    assert took(file, draining) == [7, 8, 9]
    stored(file, draining, 1, 100)
    assert took(file, draining) == [10]
    assert not draining.drained
    stored(file, draining, 10, 10)
    assert draining.drained
    draining.appended([file.append(b"a")])
    assert not draining.drained
    assert draining.wants() is None  # straight from the append, without a read
    assert took(file, draining) == [11]


def test_a_new_session_sends_all_rows_that_are_not_freed_again() -> None:
    file, draining = filled(b"a", b"a", b"a")
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3]
    freeing = draining.acknowledged([(2, 2)])
    draining.session_over()
    draining.session_began(1)
    assert took(file, draining) == [1, 3]
    draining.appended([file.append(b"a")])
    read(file, draining)
    first, second = draining.take(0, 1 << 20), draining.acknowledged([(1, 4)])
    assert [it.again for it in first] == [False]
    file.free(freeing + second)
    assert not file.rows


def test_rows_that_may_have_been_sent_before_are_marked() -> None:
    file, draining = filled(b"a")
    draining.appended([file.append(b"a")])
    draining.session_began(1)
    read(file, draining)
    assert [it.again for it in draining.take(0, 1 << 20)] == [True, False]
    draining.session_began(1)
    read(file, draining)
    assert [it.again for it in draining.take(0, 1 << 20)] == [True, True]


def test_the_lowest_number_rises_when_freeing_is_on_disk_and_not_before() -> None:
    """A power loss brought back a row that homes were told would not come: they refused it permanently."""
    file, draining = filled(b"a", b"a", b"a")
    draining.session_began(1)
    read(file, draining)
    assert [it.below for it in draining.take(0, 150)] == [0, 1]
    freeing = draining.acknowledged([(1, 2)])
    assert [it.below for it in draining.take(0, 200)] == [2]
    file.free(freeing)
    draining.freed(freeing)
    draining.appended([file.append(b"a")])
    assert [it.below for it in draining.take(0, 200)] == [1]


def test_each_boot_has_a_session_of_its_own_and_the_older_goes_first() -> None:
    file, _ = filled(b"a", b"a")
    file.boot, file.number = 2, 0
    draining = Draining(file.last, window_bytes=WINDOW)
    draining.appended([file.append(b"a"), file.append(b"a")])
    read(file, draining)
    assert draining.boot == 1
    draining.session_began(1)
    assert took(file, draining) == [1, 2]
    stored(file, draining, 1, 1)
    assert draining.boot == 1
    stored(file, draining, 2, 2)
    assert draining.boot == 2
    assert took(file, draining) == []
    draining.session_began(2)
    assert took(file, draining) == [1, 2]
    stored(file, draining, 1, 2)
    assert draining.drained


def test_a_refused_topic_is_held_and_others_continue() -> None:
    file, draining = filled(b"a", b"b", b"a", b"b")
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3, 4]
    draining.refused([(1, 1), (3, 3)], "nobody keeps a", 0.0)
    stored(file, draining, 2, 4)
    assert draining.held() == {b"a": "nobody keeps a"}
    draining.appended([file.append(b"a"), file.append(b"b")])
    assert took(file, draining) == [6]
    stored(file, draining, 6, 6)
    assert not draining.drained
    due = draining.next_due
    assert due == PAUSE_MIN_S
    assert took(file, draining, due) == [1]  # one alone
    draining.refused([(1, 1)], "its home is away", due)
    assert draining.next_due == 3 * PAUSE_MIN_S
    assert took(file, draining, due) == []
    assert took(file, draining, 3 * PAUSE_MIN_S) == [1]
    stored(file, draining, 1, 1)
    assert took(file, draining, 3 * PAUSE_MIN_S) == [3, 5]
    stored(file, draining, 3, 5)
    assert draining.drained
    assert draining.held() == {}


def test_a_block_says_whether_it_follows_one_of_its_topic_in_flight() -> None:
    file = File()
    for topic in (b"a", b"b", b"a"):
        file.append(topic)
    file.append_body(b"c", 2)
    draining = Draining(file.last)
    draining.session_began(1)
    read(file, draining)
    assert [it.follows for it in draining.take(0.0, 1 << 20)] == [False, False, True, False, False]
    draining.refused([(1, 1)], "no link", 0.0)
    draining.refused([(3, 3)], "an earlier one was refused", 0.0)
    assert draining.held() == {b"a": "no link"}, "the reason is that of the first"
    assert draining.take(1.0, 1 << 20) == []
    read(file, draining)
    assert [it.follows for it in draining.take(1.0, 1 << 20)] == [False], "a probe"
    stored(file, draining, 1, 2)
    draining.appended([file.append(b"b"), file.append(b"c")])
    read(file, draining)
    assert [it.follows for it in draining.take(1.0, 1 << 20)] == [False, False, True]


def test_pauses_double_up_to_a_bound() -> None:
    file, draining = filled(b"a")
    draining.session_began(1)
    now, pauses = 0.0, []
    for _ in range(12):
        assert took(file, draining, now) == [1]
        draining.refused([(1, 1)], "no", now)
        due = draining.next_due
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [min(PAUSE_MAX_S, PAUSE_MIN_S * 2**number) for number in range(12)]


def test_a_held_topic_keeps_the_lowest_number_from_rising() -> None:
    """The topic was passed over, and homes were told a higher number meanwhile: they refused it when it
    came."""
    file, draining = filled(b"a", b"b", b"a")
    draining.session_began(1)
    took(file, draining)
    draining.refused([(1, 1), (3, 3)], "no", 0.0)
    stored(file, draining, 2, 2)
    draining.appended([file.append(b"b")])
    (sent,) = draining.take(0.0, 1 << 20)
    assert 4 - sent.below <= 1


def test_a_probe_is_the_oldest_body_with_all_its_pieces() -> None:
    file = File()
    file.append_body(b"a", 9)
    file.append(b"a")
    draining = Draining(file.last, window_bytes=100)
    draining.session_began(1)
    read(file, draining)
    sent = []
    while more := draining.take(0.0, 1):
        sent += more
        read(file, draining)
    assert len(sent) == 9  # beyond the window: pieces are stored with the last one
    draining.refused([(1, 1)], "no", 0.0)
    read(file, draining)
    assert draining.take(0.0, 1 << 20) == []
    sent = []
    while more := draining.take(1.0, 1):
        sent += more
        read(file, draining)
    assert len(sent) == 0
    read(file, draining)
    while more := draining.take(1.0, 1):
        sent += more
        read(file, draining)
    assert len(sent) == 9
    stored(file, draining, 1, 1)
    assert took(file, draining, 1.0) == [2]


def test_more_refused_topics_than_can_be_held_pause_everything() -> None:
    topics = [b"%d" % number for number in range(HELD_MAX + 10)]
    file = File()
    for topic in topics:
        file.append(topic)
    draining = Draining(file.last)
    draining.session_began(1)
    assert len(took(file, draining)) == len(topics)
    draining.refused([(1, len(topics))], "away", 0.0)
    assert draining.held() == {}
    assert draining.next_due == PAUSE_MIN_S
    assert took(file, draining) == []
    assert took(file, draining, PAUSE_MIN_S) == [1]  # only the oldest
    stored(file, draining, 1, 1)
    assert len(took(file, draining, PAUSE_MIN_S)) == len(topics) - 1
    stored(file, draining, 1, len(topics))
    assert draining.drained


def test_damaged_rows_are_counted_and_not_sent() -> None:
    file, draining = filled(b"a", b"a", b"a")
    file.damage(2)
    draining.session_began(1)
    assert took(file, draining) == [1, 3]
    stored(file, draining, 1, 3)
    assert draining.damaged == 1
    assert draining.drained
    assert sorted(file.rows) == [2]


def test_a_body_with_a_damaged_piece_is_damaged_and_nothing_waits_for_it() -> None:
    """Its other pieces were sent and waited for the missing one, and the outbox never drained."""
    file = File()
    file.append_body(b"a", 5)
    file.append(b"a")
    file.damage(4)
    draining = Draining(file.last, window_bytes=100)
    draining.session_began(1)
    read(file, draining)
    sent = took(file, draining)
    assert len(sent) == 3 and sent[-1] == 2, "two pieces were in flight when the damaged one was read"
    stored(file, draining, 2, 2)
    assert draining.drained and draining.damaged == 5
    assert sorted(file.rows) == [1, 2, 3, 4, 5]


def test_a_slow_body_is_sent_again_with_growing_pauses_until_it_is_answered() -> None:
    """Its home had restarted in the middle of it, lost the first pieces, and waited for them forever."""
    file = File()
    file.append_body(b"a", 3)
    file.append(b"b")
    draining = Draining(file.last, window_bytes=1000)
    draining.session_began(1)
    assert len(took(file, draining)) == 4
    draining.takes_long([(1, 2)], 0.0)
    assert draining.next_due == BODY_S and took(file, draining, 1.9) == []
    now, pauses = 0.0, []
    for _ in range(7):
        due = draining.next_due
        assert due is not None
        pauses.append(due - now)
        now = due
        assert len(took(file, draining, now)) == 3, "and what stands behind it is not"
        assert sorted(draining._under_way) == [1, 2, 3, 4]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]
    stored(file, draining, 1, 2)
    assert draining.drained and draining.next_due is None


def test_a_refused_block_that_is_damaged_since_holds_its_topic_no_longer() -> None:
    file, draining = filled(b"a")
    draining.session_began(1)
    assert took(file, draining) == [1]
    draining.refused([(1, 1)], "no", 0.0)
    file.damage(1)
    assert took(file, draining, 1.0) == []
    assert draining.drained


def test_a_read_that_was_asked_before_a_topic_was_probed_is_void() -> None:
    """The read passed over the topic's rows, and they were never sent."""
    file, draining = filled(b"a", b"b")
    draining.session_began(1)
    took(file, draining)
    draining.refused([(1, 1)], "no", 0.0)
    stored(file, draining, 2, 2)
    draining.window_bytes = 1
    draining.appended([file.append(b"b"), file.append(b"b"), file.append(b"a")])
    draining.take(0.0, 1 << 20)
    draining.window_bytes = WINDOW
    asked = draining.wants()
    assert asked is not None and asked.without == (b"a",)
    draining.take(1.0, 1 << 20)
    draining.found(file.read(asked.after_row, asked.bytes_max, asked.without))
    assert took(file, draining, 1.0)[0] == 1
    stored(file, draining, 1, 100)
    assert took(file, draining, 1.0) == [5]


def test_rows_in_flight_at_the_end_of_a_session_go_first_although_their_topic_is_held() -> None:
    """Swarm seed 950011 with durable subscriptions: homes were slow with a block, and refused the next one.
    In the next session the topic was tried from the second one on, and the first one was not sent at all."""
    file, draining = filled(b"a", b"a", b"b")
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3]
    draining.takes_long([(1, 1)], 0.0)
    draining.refused([(2, 2)], "no", 0.0)
    stored(file, draining, 3, 3)
    draining.session_over()
    draining.session_began(1)
    assert took(file, draining) == [] and not draining.drained
    assert took(file, draining, PAUSE_MIN_S) == [1]
    stored(file, draining, 1, 1)
    assert took(file, draining, PAUSE_MIN_S) == [2]
    stored(file, draining, 2, 2)
    assert draining.drained and not file.rows


def test_a_body_that_is_sent_again_goes_first_although_its_topic_is_held() -> None:
    file = File()
    file.append_body(b"a", 3)
    file.append(b"a")
    draining = Draining(file.last, window_bytes=1000)
    draining.session_began(1)
    assert len(took(file, draining)) == 4
    draining.takes_long([(1, 1)], 0.0)
    draining.refused([(2, 2)], "no", 0.0)
    sent = [number for second in range(1, 60) for number in took(file, draining, float(second))]
    assert sent and set(sent) == {0} and not draining.drained  # pieces are not sealed blocks in this test
    stored(file, draining, 1, 1)
    assert took(file, draining, 60.0) == [2]
    stored(file, draining, 2, 2)
    assert draining.drained and not file.rows


def test_a_topic_is_probed_when_all_that_was_sent_of_it_is_answered() -> None:
    """Its second block was stored before its first."""
    file, draining = filled(b"a", b"a")
    draining.session_began(1)
    assert took(file, draining) == [1, 2]
    draining.refused([(1, 1)], "no", 0.0)
    assert draining.next_due is None
    assert took(file, draining, 1.0) == []
    draining.refused([(2, 2)], "no", 1.0)
    assert draining.next_due == PAUSE_MIN_S
    assert took(file, draining, 1.0) == [1]


def test_sending_resumes_after_a_pause_of_everything_when_all_sent_rows_are_answered() -> None:
    file, _ = filled(b"a", b"b", b"c")
    draining = Draining(file.last, held_max=1)
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3]
    draining.refused([(1, 2)], "no", 0.0)
    assert draining.next_due is None
    assert took(file, draining, 10.0) == []
    stored(file, draining, 3, 3)
    assert draining.next_due == PAUSE_MIN_S
    assert took(file, draining, 10.0) == [1, 2]


@pytest.mark.parametrize("sent", [1, 2])
def test_a_pause_of_everything_does_not_wait_for_a_body_that_is_not_sent_whole(sent: int) -> None:
    """Its last piece was not sent during the pause, so it was never answered, and the pause never ended."""
    file, _ = filled(b"a", b"b")
    file.append_body(b"c", 3)
    draining = Draining(file.last, held_max=1)
    draining.session_began(1)
    read(file, draining)
    assert len(draining.take(0.0, 1 << 20, 2 + sent)) == 2 + sent
    draining.refused([(1, 2)], "no", 0.0)
    assert draining.next_due == PAUSE_MIN_S
    assert took(file, draining, PAUSE_MIN_S) == [1]
    stored(file, draining, 1, 1)
    took(file, draining, PAUSE_MIN_S)
    assert sorted(draining._under_way) == [2, 3, 4, 5]


def test_a_row_refused_during_a_pause_of_everything_does_not_hold_its_topic() -> None:
    """Its topic was held from there on, and never went back to the block refused before the pause."""
    file, _ = filled(b"a", b"b", b"a")
    draining = Draining(file.last, held_max=1)
    draining.session_began(1)
    assert took(file, draining) == [1, 2, 3]
    draining.refused([(1, 2)], "no", 0.0)
    read(file, draining)
    draining.refused([(3, 3)], "no", 0.0)
    assert draining.held() == {}
    assert took(file, draining, PAUSE_MIN_S) == [1]
    stored(file, draining, 1, 1)
    assert took(file, draining, PAUSE_MIN_S) == [2, 3]


def test_a_row_refused_as_past_counts_as_stored_if_it_precedes_the_opening() -> None:
    """A disk that lied had lost the freeing: the row came back, and everything behind it stopped."""
    file, draining = filled(b"a", b"a")
    draining.session_began(1)
    assert took(file, draining) == [1, 2]
    assert draining.past([(1, 1)], 0.0) == [(1, 1)]
    stored(file, draining, 2, 2)
    file.free([(1, 1)])
    draining.freed([(1, 1)])
    assert draining.drained


def test_a_row_appended_since_the_opening_and_refused_as_past_stays() -> None:
    """A machine was restored to its state of minutes ago, and its program went on under numbers that were
    taken."""
    file, draining = filled(b"a")
    draining.appended([file.append(b"a")])
    draining.session_began(1)
    assert took(file, draining) == [1, 2]
    assert draining.past([(1, 2)], 0.0) == [(1, 1)]
    assert "another program" in draining.held()[b"a"] and not draining.drained
    assert took(file, draining, PAUSE_MIN_S) == [2]


def test_the_lowest_number_does_not_rise_above_a_damaged_row() -> None:
    """A restored backup had it whole, and homes took it for past: it counted as stored."""
    file, draining = filled(b"a", b"a", b"a")
    file.damage(2)
    draining.session_began(1)
    assert took(file, draining) == [1, 3]
    stored(file, draining, 1, 3)
    draining.appended([file.append(b"a")])
    assert [4 - it.below for it in draining.take(0.0, 1 << 20)] == [2]


def test_no_more_is_sent_than_credit_allows() -> None:
    file, draining = filled()
    draining.session_began(1)
    draining.appended([file.append(b"a", 2), file.append(b"a", 2), file.append(b"a", 2)])
    assert len(draining.take(0.0, 1 << 20, 3)) == 2
    assert draining.take(0.0, 1 << 20, 0) == []
    assert len(draining.take(0.0, 1 << 20, 1)) == 1


# --- random courses


class Drains(RuleBasedStateMachine):
    """An outbox, its sessions, and homes that come and go. Blocks and answers are lost with a session, and
    changes not on disk with a crash. ``settled``: homes change only while nothing of their topic is in
    flight; then the order of each topic holds."""

    settled = True

    def __init__(self) -> None:
        super().__init__()
        self.file = File()
        self.now = 0.0
        self.away: set[bytes] = set()
        self.slow: dict[bytes, list[OutboxBlock]] = {}
        """Topics with a slow home, and the blocks that it has not answered."""
        self.appended: dict[bytes, list[tuple[int, int]]] = {topic: [] for topic in TOPICS}
        self.stored: dict[bytes, list[tuple[int, int]]] = {topic: [] for topic in TOPICS}
        self.refused: set[bytes] = set()
        """Topics of the session that the broker refused: see `mesh.dataplane.refused_topics`."""
        self.parts: dict[tuple[int, int], set[bytes]] = {}
        self.marks: dict[int, int] = {}
        self.freed: dict[int, OutboxBlock | Damaged] = {}
        self.of: dict[int, OutboxBlock] = {}
        """The block of each object; all are kept."""
        self.start()

    def start(self) -> None:
        for pending in self.slow.values():
            pending.clear()
        self.refused.clear()
        self.draining = Draining(self.file.last, window_bytes=WINDOW, held_max=1)
        self.wire: deque[Send] = deque()
        self.answers: deque[tuple[str, int, int]] = deque()
        self.freeing: deque[list[Range]] = deque()
        self.asked: Any = None

    # --- the program

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 3))
    def append(self, topic: bytes, count: int) -> None:
        rows = [self.file.append(topic) for _ in range(count)]
        self._note(rows)

    @rule(topic=st.sampled_from(TOPICS), pieces=st.integers(2, 9))
    def append_body(self, topic: bytes, pieces: int) -> None:
        self._note(self.file.append_body(topic, pieces))

    def _note(self, rows: list[OutboxBlock]) -> None:
        for row in rows:
            self.of[id(row.block)] = row
            key = (row.boot, row.first)
            if key not in self.appended[row.topic]:
                self.appended[row.topic].append(key)
        self.draining.appended(rows)

    @rule()
    def crash(self) -> None:
        self.file.boot += 1
        self.file.number = 0
        self.start()

    @precondition(lambda self: self.freed)
    @rule(data=st.data())
    def crash_of_a_disk_that_lied(self, data: st.DataObject) -> None:
        """Rows that were freed come back."""
        back = data.draw(st.sets(st.sampled_from(sorted(self.freed)), min_size=1))
        self.file.rows.update({row: self.freed.pop(row) for row in back})
        self.crash()

    # --- the shell

    @rule()
    def session(self) -> None:
        boot = self.draining.boot
        if boot != self.draining.session_boot or boot is None:
            self.forget_session()
            self.draining.session_began(boot or self.file.boot)

    @rule()
    def session_is_lost(self) -> None:
        self.forget_session()
        self.draining.session_over()

    @rule()
    def ask(self) -> None:
        wanted = self.draining.wants()
        if wanted is not None:
            assert self.asked is None
            self.asked = wanted

    @precondition(lambda self: self.asked is not None)
    @rule()
    def answer(self) -> None:
        asked, self.asked = self.asked, None
        self.draining.found(self.file.read(asked.after_row, asked.bytes_max, asked.without))

    @rule(bytes_max=st.integers(1, 1000))
    def take(self, bytes_max: int) -> None:
        self.wire += self.draining.take(self.now, bytes_max)

    @rule(hears=st.booleans(), reads=st.booleans())
    def turn(self, hears: bool, reads: bool) -> None:
        """A turn as it goes when nothing is slow, or only one thing."""
        self.session()
        self.ask()
        if reads and self.asked is not None:
            self.answer()
        self.take(1 << 20)
        if self.wire:
            self.arrive(len(self.wire))
        if hears and self.answers:
            self.hear(len(self.answers))

    @rule(seconds=st.floats(0.1, 5.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.freeing)
    @rule()
    def free(self) -> None:
        ranges = self.freeing.popleft()
        for first, last in ranges:
            for row in range(first, last + 1):
                it = self.file.rows.get(row)
                assert it is None or (it.boot, it.first) in self.stored[it.topic]  # type: ignore[union-attr]
            self.freed.update({row: it for row, it in self.file.rows.items() if first <= row <= last})
        self.file.free(ranges)
        self.draining.freed(ranges)

    # --- brokers and homes

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.wire))):
            self._arrive(self.wire.popleft())

    def _arrive(self, sent: Send) -> None:
        row = self.of[id(sent.block)]
        assert row.boot == self.draining.session_boot
        assert sent.below >= 0
        mark = self.marks.get(row.boot, 0)
        key = (row.boot, row.first)
        head = sent.block.partition(b"\0")[0]
        if not sent.follows and (b"/" not in head or head.startswith(b"0/")):
            self.refused.discard(row.topic)
        if row.topic in self.away or row.topic in self.refused:
            self.refuse(row)
            return
        pending = self.slow.get(row.topic)
        if pending is not None:
            if pending and pending[0].first != row.first:
                self.refuse(row)  # it follows a block that is not kept yet
            else:
                pending.append(row)
                self.answers.append(("long", row.first, row.last))
            return
        if row.first < mark:
            assert key in self.stored[row.topic], "homes were told that this number is not waited for"
            self.answers.append(("past", row.first, row.last))
            return
        self.marks[row.boot] = max(mark, row.first - sent.below)
        parts = self.parts.setdefault(key, set())
        parts.add(sent.block)
        whole = int(head.partition(b"/")[2]) if b"/" in head else 1
        if len(parts) < whole:
            return
        if key not in self.stored[row.topic]:
            self.stored[row.topic].append(key)
        self.answers.append(("", row.first, row.last))

    @precondition(lambda self: self.answers)
    @rule(count=st.integers(1, 4))
    def hear(self, count: int) -> None:
        for _ in range(min(count, len(self.answers))):
            said, first, last = self.answers.popleft()
            if said == "away":
                self.draining.refused([(first, last)], said, self.now)
                continue
            if said == "long":
                self.draining.takes_long([(first, last)], self.now)
                continue
            numbers = [(first, last)]
            past = said == "past"
            ranges = self.draining.past(numbers, self.now) if past else self.draining.acknowledged(numbers)
            if ranges:
                self.freeing.append(ranges)

    @rule(topic=st.sampled_from(TOPICS))
    def home_changes(self, topic: bytes) -> None:
        on_the_way = {row.topic for row in self.draining._under_way.values()}
        if not self.settled or topic not in on_the_way:
            self.away ^= {topic}

    @rule(topic=st.sampled_from(TOPICS))
    def home_takes_long(self, topic: bytes) -> None:
        """The blocks that it has not answered are lost to it, and refused at last."""
        on_the_way = {row.topic for row in self.draining._under_way.values()}
        if topic in self.slow:
            pending = self.slow.pop(topic)
            if pending:
                self.refuse(pending[0])
        elif not self.settled or topic not in on_the_way:
            self.slow[topic] = []

    def refuse(self, row: OutboxBlock) -> None:
        self.refused.add(row.topic)
        self.answers.append(("away", row.first, row.last))

    def forget_session(self) -> None:
        self.wire.clear()
        self.answers.clear()
        self.refused.clear()
        for pending in self.slow.values():
            pending.clear()

    # --- invariants

    @invariant()
    def each_topic_is_stored_in_order(self) -> None:
        for topic in TOPICS:
            stored, appended = self.stored[topic], self.appended[topic]
            if self.settled:
                assert stored == appended[: len(stored)]
            else:
                assert set(stored) <= set(appended)

    @invariant()
    def what_is_not_stored_is_there(self) -> None:
        there = {(row.boot, row.first) for row in self.file.rows.values()}
        for topic in TOPICS:
            assert set(self.appended[topic]) - set(self.stored[topic]) <= there

    @invariant()
    def little_is_held(self) -> None:
        assert len(self.draining.held()) <= 1
        numbers: dict[int, int] = {}
        for sent in self.draining._under_way.values():
            numbers[sent.first] = sent.size
        assert sum(numbers.values()) <= WINDOW + 100

    def teardown(self) -> None:
        """Once homes stay, everything is stored and freed."""
        self.away.clear()
        for topic in list(self.slow):
            self.home_takes_long(topic)
        self.hear_all()
        for _ in range(2000):
            if self.draining.drained and not self.file.rows:
                break
            self.now += 1.0
            self.session()
            self.take(1 << 20)
            self.ask()
            if self.asked is not None:
                self.answer()
            self.take(1 << 20)
            self.hear_all()
        assert self.draining.drained
        assert not self.file.rows
        for topic in TOPICS:
            assert set(self.stored[topic]) == set(self.appended[topic])

    def hear_all(self) -> None:
        if self.wire:
            self.arrive(len(self.wire))
        if self.answers:
            self.hear(len(self.answers))
        while self.freeing:
            self.free()


class DrainsAnyhow(Drains):
    """Homes change at any moment: still, nothing is lost."""

    settled = False


BUDGET = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestDrains = Drains.TestCase
TestDrains.settings = BUDGET
TestDrainsAnyhow = DrainsAnyhow.TestCase
TestDrainsAnyhow.settings = BUDGET
