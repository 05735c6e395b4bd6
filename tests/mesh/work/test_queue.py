"""Each rule of a durable subscription's work by itself."""

from __future__ import annotations

import math

import pytest

from mesh.work.options import WorkOptions
from mesh.work.orders import Bury, Deliver, Fetch, Load, Settle
from mesh.work.queue import FETCH_AHEAD, WorkQueue
from mesh.work.rows import FORMER_MAX
from tests.mesh.work.home import Home, Kept, messages


def parts(orders: list[Deliver]) -> list[tuple[int, int, int, int]]:
    return [(order.consumer, order.row, order.first, order.count) for order in orders]


def home_with(*counts: int, options: WorkOptions | None = None) -> Home:
    home = Home(options)
    home.store(*counts)
    return home


# --- windows and order


def test_blocks_are_cut_to_the_free_window_and_given_in_order() -> None:
    home = home_with(5, 3)
    home.attach(1, window=4)
    assert parts(home.run()) == [(1, 1, 0, 4)]
    assert home.run() == [], "the window is full"
    home.queue.done(1, 1, 0, 0b11, home.now)
    assert parts(home.run()) == [(1, 1, 4, 1), (1, 2, 0, 1)]


def test_a_window_that_changes_gives_room_or_takes_none_away() -> None:
    home = home_with(10)
    home.attach(1, window=4)
    home.run()
    home.queue.resize(1, 0)
    home.queue.done(1, 1, 0, 0b111, home.now)
    assert home.run() == []
    home.queue.resize(1, 6)
    assert parts(home.run()) == [(1, 1, 4, 5)]


def test_a_window_of_bytes_counts_the_size_of_each_message_until_it_is_settled() -> None:
    home = Home()
    home.store(10, size=100)
    each = len(home.kept[1].block) // 10
    home.queue.attach(1, 100, bytes_max=3 * each + 1)
    assert parts(home.run()) == [(1, 1, 0, 3), (1, 1, 3, 1)], "one message may overdraw it"
    assert home.run() == []
    home.queue.done(1, 1, 0, 0b11, home.now)
    assert parts(home.run()) == [(1, 1, 4, 1), (1, 1, 5, 1)]
    home.queue.retry(1, 1, 5, home.now, 60.0)
    home.queue.detach(1, home.now, died=True)
    home.queue.attach(2, 100, bytes_max=1)
    assert [count for *_, count in parts(home.run())] == [1], "a message larger than the window goes alone"


def test_a_large_body_takes_as_many_bytes_of_a_window_as_its_pieces() -> None:
    home = Home()
    home.receive = home.delivered.append  # type: ignore[method-assign]
    home.store(1, 1, 1, tell=False)
    home.kept[1] = Kept(1, b"", 1, parts=(7, 8, 9))
    home.queue.attach(1, 100, bytes_max=3 * 65536)
    assert [order.row for order in home.run()] == [1]
    home.done(*home.delivered)
    assert [order.row for order in home.run()] == [2, 3]


def test_the_consumer_that_holds_least_comes_first() -> None:
    home = home_with(20)
    home.attach(1, 2, window=10)
    home.run()
    home.queue.done(2, 1, 10, 0b111111, home.now)
    home.store(1, 1)
    assert {order.consumer for order in home.run()} == {2}


def test_a_consumer_is_attached_once() -> None:
    home = Home()
    home.attach(1)
    with pytest.raises(ValueError, match="consumer 1 is attached already"):
        home.attach(1)


# --- the end of a session


def test_unsettled_messages_of_a_leaving_session_go_to_others_at_once_without_suspicion() -> None:
    home = home_with(6)
    home.attach(1, window=4)
    home.run()
    home.queue.done(1, 1, 1, 1, home.now)
    home.queue.detach(1, home.now, died=False)
    home.attach(2, window=10)
    again = home.run()
    assert parts(again) == [(2, 1, 0, 1), (2, 1, 2, 2), (2, 1, 4, 2)]
    assert [order.redelivered for order in again] == [True, True, False]
    assert {(order.attempt, order.suspect) for order in again} == {(1, False)}


def test_messages_in_flight_at_a_consumers_death_are_redelivered_one_at_a_time() -> None:
    home = home_with(3, 2)
    home.attach(1, window=3)
    home.run()
    home.queue.detach(1, home.now, died=True)
    home.attach(2, window=10)
    for index in range(3):
        (order,) = home.run()
        assert parts([order]) == [(2, 1, index, 1)]
        assert (order.suspect, order.redelivered, order.attempt) == (True, True, 1)
        home.done(order)
    assert parts(home.run()) == [(2, 2, 0, 2)]


def test_a_consumer_gets_a_suspect_only_after_it_settled_its_other_messages() -> None:
    home = home_with(4)
    home.attach(1, 2, window=2)
    mine, _ = home.run()
    home.queue.detach(2, home.now, died=True)
    home.store(5)
    assert home.run() == [], "nothing new for the prober"
    home.queue.done(1, mine.row, mine.first, 1, home.now)
    assert home.run() == []
    home.queue.done(1, mine.row, mine.first + 1, 1, home.now)
    (suspect,) = home.run()
    assert suspect.suspect and suspect.count == 1


def test_half_of_the_consumers_continue_with_other_work() -> None:
    home = home_with(40)
    home.attach(1, 2, 3, 4, window=10)
    home.run()
    home.queue.detach(4, home.now, died=True)
    home.store(100)
    for order in home.delivered[:3]:
        home.done(order)
    found = home.run()
    assert sorted(order.count for order in found if order.suspect) == [1, 1]
    assert sum(order.count for order in found if not order.suspect) == 10


def test_a_death_counts_as_an_attempt_only_for_a_message_that_was_alone() -> None:
    home = home_with(1)
    home.attach(1)
    home.run()
    home.queue.detach(1, home.now, died=True)
    home.attach(2)
    assert home.run() == [], "after a while"
    (order,) = home.run(0.1)
    assert (order.attempt, order.suspect) == (2, True)


def test_a_death_counts_for_no_message_of_a_window() -> None:
    home = home_with(2)
    for consumer in range(1, 50):
        home.attach(consumer, window=2)
        orders = home.run()
        while orders and not orders[0].suspect:
            break
        assert all(order.attempt == 1 for order in orders)
        for order in orders:
            if order.suspect:
                home.done(order)
        if not home.queue.snapshot().in_flight:
            break
        home.queue.detach(consumer, home.now, died=True)
    home.run(1.0)
    assert home.buried == []


def test_a_session_that_leaves_with_one_message_has_not_failed_it() -> None:
    home = home_with(1)
    home.attach(1)
    home.run()
    home.queue.detach(1, home.now, died=False)
    home.attach(2)
    (order,) = home.run()
    assert (order.attempt, order.suspect, order.redelivered) == (1, False, True)


# --- retries


def test_the_back_off_doubles_to_a_minute_and_the_twentieth_attempt_is_the_last() -> None:
    home = home_with(1, 1)
    home.attach(1)
    waits = []
    for attempt in range(1, 20):
        (order,) = (order for order in home.delivered[-1:] or home.run())
        assert order.attempt == attempt
        home.queue.retry(1, order.row, order.first, home.now)
        began = home.now
        while not [o for o in home.run() if o.row == order.row]:
            for other in home.delivered:
                if other.row != order.row:
                    home.done(other)
            home.now = max(home.now, home.queue.next_due or home.now)
        waits.append(round(home.now - began, 6))
    assert waits[:3] == [0.1, 0.2, 0.4] and waits[9:] == [51.2] + [60.0] * 9
    home.queue.retry(1, home.delivered[-1].row, 0, home.now)
    home.run()
    (buried,) = home.buried
    assert (buried.row, buried.index, buried.attempts) == (1, 0, 20)
    assert home.queue.next_due is None and not home.kept


@pytest.mark.parametrize(
    ("after_s", "waits_s"),
    [(0.0, 0.0), (5.0, 5.0), (-1.0, 0.0), (math.nan, 0.0), (7 * 86400.0, 7 * 86400.0)],
)
def test_a_consumer_may_choose_the_delay_of_a_retry(after_s: float, waits_s: float) -> None:
    home = home_with(1)
    home.attach(1)
    home.run()
    home.queue.retry(1, 1, 0, home.now, after_s)
    if waits_s:
        assert home.run(waits_s - 0.01) == []
    (order,) = home.run(0.02)
    assert (order.attempt, order.redelivered, order.suspect) == (2, True, False)


def test_other_messages_are_delivered_while_one_waits_for_its_retry() -> None:
    home = home_with(3)
    home.attach(1)
    home.run()
    home.queue.retry(1, 1, 0, home.now)
    assert parts(home.run()) == [(1, 1, 1, 1)]
    home.done(home.delivered[-1])
    assert parts(home.run()) == [(1, 1, 2, 1)]
    home.run(0.1)
    home.done(home.delivered[-1])
    assert parts(home.run()) == [(1, 1, 0, 1)]


def test_a_retry_clears_a_suspect() -> None:
    """Its consumer lived long enough to give it back."""
    home = home_with(2)
    home.attach(1, window=2)
    home.run()
    home.queue.detach(1, home.now, died=True)
    home.attach(2)
    (suspect,) = home.run()
    home.queue.retry(2, suspect.row, suspect.first, home.now)
    (other,) = home.run()
    home.done(other)
    (order,) = home.run(1.0)
    assert (order.first, order.suspect, order.attempt) == (suspect.first, False, 2)


def test_attempts_outlive_the_broker() -> None:
    home = home_with(4)
    home.attach(1, window=4)
    home.run()
    home.queue.retry(1, 1, 1, home.now)
    home.queue.retry(1, 1, 2, home.now, 60.0)
    home.queue.done(1, 1, 3, 1, home.now)
    home.run(0.05)
    home.restart()
    home.attach(1, window=4)
    assert [(o.first, o.count, o.attempt) for o in home.run()] == [(0, 1, 1), (1, 2, 2)]


# --- dead letters


def test_a_dropped_message_becomes_a_dead_letter_in_the_commit_that_settles_it() -> None:
    home = home_with(2)
    home.attach(1, window=2)
    home.run()
    home.queue.drop(1, 1, 1, home.now, "no such user")
    assert home.queue.orders(home.now) == [Bury(1, 1, "no such user", 1), Settle(1, 0, b"\2", False)]


def test_the_queue_of_dead_letters_buries_nothing() -> None:
    home = home_with(2, options=WorkOptions(attempts_max=None))
    home.attach(1, window=2)
    home.run()
    home.queue.drop(1, 1, 0, home.now, "seen")
    for _ in range(70):
        home.queue.retry(1, 1, 1, home.now)
        (order,) = home.run(60.0)
    assert order.attempt == 71
    assert home.buried == [] and home.settled() == [(1, 0)]


# --- which consumers may settle


def test_a_late_done_counts_wherever_the_message_is_now() -> None:
    home = home_with(6)
    home.attach(1, window=6)
    home.run()
    home.queue.detach(1, home.now, died=False)
    home.attach(2, window=2)
    home.run()
    home.queue.retry(2, 1, 0, home.now)
    home.run()
    assert [order.first for order in home.delivered[-2:]] == [0, 2]
    home.queue.done(1, 1, 0, 0b111111, home.now)
    assert home.run() == [] and home.queue.snapshot().in_flight == 0
    assert home.queue.counters.late == home.queue.counters.settled == 6
    home.run(10.0)
    assert not home.kept and home.queue.counters.redelivered == 3


def test_a_late_done_clears_suspects() -> None:
    home = home_with(3)
    home.attach(1, window=3)
    home.run()
    home.queue.detach(1, home.now, died=True)
    home.run()
    home.queue.done(1, 1, 0, 0b111, home.now)
    home.attach(2, window=3)
    home.store(3)
    assert [(order.row, order.count) for order in home.run()] == [(2, 3)]


def test_a_session_that_gave_a_message_back_may_still_settle_it() -> None:
    home = home_with(1)
    home.attach(1)
    home.run()
    home.queue.retry(1, 1, 0, home.now)
    home.queue.done(1, 1, 0, 1, home.now)
    assert home.run(100.0) == [] and not home.kept


def test_the_last_eight_sessions_that_held_records_of_a_row_are_remembered() -> None:
    home = home_with(1)
    for consumer in range(FORMER_MAX + 1):
        home.attach(consumer)
        home.run()
        home.queue.detach(consumer, home.now, died=False)
    home.queue.done(0, 1, 0, 1, home.now)
    assert home.queue.counters.not_held == 1 and home.kept
    home.queue.done(1, 1, 0, 1, home.now)
    home.run(1.0)
    assert not home.kept


def test_invalid_settlements_are_counted_and_ignored() -> None:
    home = home_with(4, 1)
    home.attach(1, 2, window=2)
    home.run()
    home.queue.done(1, 1, 0, 0b1, home.now)
    home.run(1.0)
    queue, counters, before = home.queue, home.queue.counters, home.queue.snapshot()
    for _ in range(3):
        queue.done(1, 1, 0, 0b1, home.now)  # settled
        queue.done(2, 1, 1, 0b1, home.now)  # not that consumer's
        queue.done(7, 1, 1, 0b1, home.now)  # no consumer's
        queue.done(1, 9, 0, 0b11, home.now)  # no such row
        queue.done(1, 1, 4, 0b111, home.now)  # no such records
        queue.done(1, 1, 1 << 62, 0b1, home.now)
        queue.retry(2, 1, 1, home.now)
        queue.retry(1, 1, 0, home.now)
        queue.retry(1, 1, 4, home.now)
        queue.drop(7, 1, 1, home.now, "spite")
        queue.drop(7, 1, -1, home.now, "spite")
        queue.drop(7, 9, 0, home.now, "spite")
    assert queue.snapshot() == before and home.run(1.0) == []
    assert (counters.settled_before, counters.not_held, counters.unknown) == (6, 12, 27)
    assert counters.settled == 1


def test_a_done_for_more_than_is_held_settles_the_held_messages() -> None:
    home = home_with(6)
    home.attach(1, 2, window=3)
    home.run()
    home.queue.done(1, 1, 0, (1 << 100) - 1, home.now)
    home.run(1.0)
    assert home.settled() == [(1, 0), (1, 1), (1, 2)]
    assert (home.queue.counters.not_held, home.queue.counters.unknown) == (3, 94)


# --- writing


def test_settlements_are_written_after_50_ms_or_with_the_next_commit() -> None:
    home = home_with(10)
    home.attach(1, window=10)
    home.run()
    home.queue.done(1, 1, 0, 0b10111, home.now)
    assert home.queue.orders(home.now) == [] and home.queue.next_due == 0.05
    assert home.queue.orders(0.04, commit=True) == [Settle(1, 3, b"\2", False)]
    assert home.queue.next_due is None
    home.queue.done(1, 1, 3, 1, 1.0)
    home.queue.done(1, 1, 5, 0b11111, 1.02)
    assert home.queue.orders(1.03) == []
    assert home.queue.orders(1.05) == [Settle(1, 10, b"", True)]


# --- reading


def test_a_backlog_is_read_ahead_and_then_rows_are_taken_as_they_come() -> None:
    home = Home(slow=True)
    home.store(1, 1, tell=False)
    home.attach(1, window=10)
    home.step()
    assert home.reads == [Load(0, 2049, 1 << 20)]
    home.store(1)  # committed while the journal reads: the answer may hold it, or not
    home.answer()
    home.step()
    assert messages(home.delivered) == [(1, 0), (2, 0), (3, 0)]
    home.answer()
    home.step()
    assert home.reads == [], "all is read"
    home.store(1)
    home.step()
    assert messages(home.delivered)[-1] == (4, 0) and home.reads == []


def test_a_row_committed_during_a_read_is_read_next() -> None:
    home = Home(slow=True)
    home.attach(1, window=10)
    home.step()
    (load,) = home.reads
    home.reads.clear()
    home.store(1)
    home.queue.loaded([], 0)  # read before that commit
    home.step()
    assert home.reads == [load]
    home.answer()
    home.step()
    assert messages(home.delivered) == [(1, 0)]


def test_damaged_rows_delay_no_other_rows() -> None:
    """An answer with only damaged rows does not mean the end of the journal."""
    home = Home(WorkOptions(ahead_bytes=1000))
    home.store(*[1] * 30, tell=False)
    home.damaged = set(range(5, 25))
    home.attach(1, window=30)
    home.run()
    assert [row for row, _ in messages(home.delivered)] == [*range(1, 5), *range(25, 31)]
    home.done(*home.delivered)
    home.run(1.0)
    assert set(home.kept) == home.damaged


def test_a_large_body_is_one_message_and_the_broker_reads_its_pieces() -> None:
    home = Home()
    home.store(1, tell=False)
    home.kept[1] = Kept(1, b"", 1, parts=(7, 8, 9))
    home.receive = home.delivered.append  # type: ignore[method-assign]
    for consumer in (1, 2):
        home.attach(consumer)
        (order,) = home.run()
        assert (order.row, order.count, order.block, order.parts) == (1, 1, b"", (7, 8, 9))
        home.queue.detach(consumer, home.now, died=False)
    assert home.fetches == 0


def test_a_row_that_vanished_from_the_journal_is_not_read_repeatedly() -> None:
    home = Home(slow=True)
    home.store(1)
    del home.kept[1]
    home.attach(1, window=10)
    for _ in range(3):
        home.step()
        home.answer()
    home.step()
    assert home.loads == 1 and home.reads == []


def test_rows_that_are_only_known_to_be_there_are_read_in_their_turn() -> None:
    home = Home(slow=True)
    home.attach(1, window=10)
    home.step()
    home.answer()
    home.step()
    home.store(1, tell=False)
    home.queue.grew(1)
    home.store(1)
    home.step()
    assert home.delivered == [] and home.reads == [Load(0, 2049, 1 << 20)]
    home.answer()
    home.step()
    assert messages(home.delivered) == [(1, 0), (2, 0)]


def test_rows_are_not_kept_in_memory_without_consumers() -> None:
    home = Home()
    home.store(*[5] * 10)
    assert not home.queue._rows
    home.attach(1, window=7)
    home.run()
    home.queue.detach(1, home.now, died=False)
    home.store(1)
    assert set(home.queue._rows) == {1, 2}, "those of which somebody had something"
    assert home.queue.snapshot().fresh == 3
    home.run(5.0)
    home.attach(2, window=1000)
    home.run()
    got = messages(home.delivered[2:])
    assert len(got) == 51 and sorted(got[7:]) == got[7:]


def test_an_answer_from_before_all_consumers_left_is_read_again() -> None:
    """Rows that were forgotten when the last consumer left lie before it; they were never delivered."""
    home = Home(WorkOptions(ahead_bytes=3000), slow=True)
    home.store(*[10] * 40, tell=False)
    home.attach(1, window=1)
    home.step()
    home.answer()
    home.step()
    home.done(*home.delivered)
    while not home.reads:
        home.step()
        home.done(home.delivered[-1])
    home.queue.detach(1, home.now, died=False)
    home.attach(2, window=1000)
    home.answer()
    home.slow = False
    home.step()
    while home.queue.snapshot().in_flight:
        home.done(*[order for order in home.delivered if order.consumer == 2])
        home.step()
    assert sorted(set(messages(home.delivered))) == [
        (row, index) for row in range(1, 41) for index in range(10)
    ]


def test_blocks_in_flight_are_read_again_when_they_are_needed() -> None:
    home = home_with(*[2] * 50)
    home.attach(1, window=100)
    home.run()
    assert all(row.block is None for row in home.queue._rows.values())
    home.queue.detach(1, home.now, died=False)
    home.attach(2, window=100)
    home.slow = True
    home.step()
    assert home.reads == [Fetch(row) for row in range(1, 1 + FETCH_AHEAD)]
    home.answer()
    home.step()
    assert len(home.reads) == FETCH_AHEAD and len(messages(home.delivered[50:])) == 2 * FETCH_AHEAD
    assert sum(row.block is not None for row in home.queue._rows.values()) == 0
    home.slow = False
    home.answer()
    home.run()
    assert messages(home.delivered[50:]) == messages(home.delivered[:50])


def test_fresh_messages_do_not_wait_for_the_bytes_of_others() -> None:
    home = home_with(1)
    home.attach(1)
    home.run()
    home.queue.detach(1, home.now, died=False)
    home.slow = True
    home.attach(2, window=5)
    home.store(1)
    home.step()
    assert messages(home.delivered[1:]) == [(2, 0)] and home.reads == [Fetch(1)]
    home.answer()
    home.step()
    assert messages(home.delivered[1:]) == [(2, 0), (1, 0)]


def test_a_row_that_cannot_be_read_is_tried_again_and_condemns_nothing() -> None:
    home = home_with(3)
    home.attach(1, window=3)
    home.run()
    home.queue.detach(1, home.now, died=False)
    home.slow = True
    home.attach(2, window=3)
    home.step()
    for _ in range(30):
        assert home.reads == [Fetch(1)]
        home.reads.clear()
        home.queue.unreadable(1, home.now)
        home.run(60.0)
    home.answer()
    (order,) = home.run()
    assert (order.count, order.attempt, order.redelivered) == (3, 1, True)
    assert home.queue.counters.unreadable == 90


def test_an_undeliverable_message_is_tried_again_without_counting_an_attempt() -> None:
    home = home_with(4)
    home.attach(1, window=4)
    home.run()
    home.queue.done(1, 1, 0, 0b1, home.now)
    for _ in range(3):
        home.queue.undeliverable(1, 1, 0, 3, home.now)
        home.queue.undeliverable(1, 9, 0, 3, home.now)
        home.queue.undeliverable(7, 1, 0, 3, home.now)
    assert home.queue.counters.unreadable == 2 and home.queue.snapshot().in_flight == 1
    (order,) = home.run(60.0)
    assert (order.first, order.count, order.attempt) == (1, 2, 1)


def test_fresh_messages_are_not_read_while_too_many_are_held_back() -> None:
    home = Home(WorkOptions(held_max=10, ahead_bytes=3000))
    home.store(*[1] * 100, tell=False)
    home.attach(1, window=5)
    for _ in range(40):
        for order in home.run():
            home.queue.retry(1, order.row, order.first, home.now, 100.0)
    held = home.queue.snapshot().delayed
    assert 10 <= held < 30
    home.run(100.0)
    while home.queue.snapshot().in_flight:
        home.done(*home.delivered)
        home.run()
    assert len(set(messages(home.delivered))) == 100 and not home.queue._rows


def test_a_row_that_is_settled_already_is_settled_for_the_journal() -> None:
    home = home_with(2)
    home.kept[1].floor = 2
    home.restart()
    home.attach(1)
    assert home.run() == [] and not home.kept


def test_an_empty_queue_has_nothing_to_do() -> None:
    queue = WorkQueue()
    assert queue.orders(0.0, commit=True) == [] and queue.next_due is None


def test_the_counters_count_each_outcome() -> None:
    home = home_with(4)
    home.attach(1, window=4)
    home.run()
    home.queue.retry(1, 1, 0, home.now)
    home.queue.drop(1, 1, 1, home.now, "x")
    home.queue.done(1, 1, 2, 1, home.now)
    home.run(1.0)
    counters, snapshot = home.queue.counters, home.queue.snapshot()
    assert (counters.delivered, counters.redelivered) == (5, 1)
    assert (counters.settled, counters.retried, counters.buried) == (1, 1, 1)
    assert (snapshot.consumers, snapshot.in_flight, snapshot.fresh) == (1, 2, 0)
    assert home.settled() == [(1, 1), (1, 2)]
