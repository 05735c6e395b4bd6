"""Whole subscriptions worked off in virtual time: fairness, poison, hanging consumers, order, memory."""

from __future__ import annotations

import pytest

from mesh.wire.blocks import COUNT_MAX
from mesh.work.options import WorkOptions
from tests.mesh.work.home import Home, messages
from tests.mesh.work.workers import Workshop


def test_a_worker_ten_times_slower_costs_its_share_and_no_more() -> None:
    """Three workers, window 1, sealed blocks of 4 096: whole blocks took up to 3.8 times the ideal."""
    home = Home()
    home.store(COUNT_MAX, COUNT_MAX, size=4)
    shop = Workshop(home)
    for each_s in (1.0, 1.0, 10.0):
        shop.hire(each_s, window=1)
    shop.work()
    assert len(shop.handled) == 2 * COUNT_MAX and set(shop.handled.values()) == {1}
    ideal_s = 2 * COUNT_MAX / (1 + 1 + 0.1)
    assert shop.finished_at <= 1.15 * ideal_s
    assert not home.kept


@pytest.mark.parametrize("window", [8, 256])
def test_wide_windows_share_a_backlog_evenly(window: int) -> None:
    """A backlog that all windows together could take is shared out evenly, and not given to the first that
    come."""
    home = Home()
    shop = Workshop(home)
    for _ in range(4):
        shop.hire(1.0, window)
    home.store(4 * window)
    home.step()
    assert [order.count for order in home.delivered] == [window] * 4
    home.done(*home.delivered)
    home.delivered.clear()
    home.store(20)
    home.step()
    assert sorted(order.count for order in home.delivered) == sorted([min(5, window)] * 4)


@pytest.mark.parametrize("tells_late", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rows", [(256,), (64,) * 4, (1,) * 256])
def test_one_poison_message_among_255_is_one_dead_letter(
    tells_late: bool, workers: int, rows: tuple[int, ...]
) -> None:
    """A message that kills its consumer condemned every message that was prefetched with it."""
    home = Home()
    numbers = home.store(*rows)
    poison = (numbers[len(numbers) // 2], rows[0] // 2)
    shop = Workshop(home, poison=frozenset([poison]), tells_late=tells_late)
    for _ in range(workers):
        shop.hire(0.001, window=256)
    shop.work()
    assert [(order.row, order.index, order.attempts) for order in home.buried] == [(*poison, 20)]
    assert "died" in home.buried[0].reason
    assert len(shop.handled) == 256
    assert home.queue.counters.settled == 255
    assert not home.kept and home.queue.next_due is None
    assert {order.attempt for order in home.delivered if (order.row, order.first) != poison} == {1}
    assert shop.deaths <= 22, "20 alone, and the first in company"


def test_several_poison_messages_are_each_found() -> None:
    home = Home()
    (row,) = home.store(256)
    poison = frozenset((row, index) for index in (0, 7, 100, 101, 255))
    shop = Workshop(home, poison=poison)
    shop.hire(0.001, window=256)
    shop.hire(0.001, window=16)
    shop.work()
    assert {(order.row, order.index) for order in home.buried} == poison
    assert not home.kept and home.queue.counters.settled == 251


def test_a_consumer_that_never_settles_does_not_block_others() -> None:
    home = Home()
    home.store(*[10] * 100)
    home.attach(99, window=16)  # it hangs
    home.step()
    assert len(messages(home.delivered)) == 16
    shop = Workshop(home)
    shop.hire(1.0, window=4)
    shop._read = len(home.delivered)
    shop.work()
    assert len(shop.handled) == 1000 - 16
    assert home.queue.snapshot().in_flight == 16
    home.queue.detach(99, home.now, died=True)
    shop.work()
    assert len(shop.handled) == 1000 and not home.kept


@pytest.mark.parametrize("window", [2, 256])
def test_a_message_whose_consumer_hangs_does_not_block_suspects_or_others(window: int) -> None:
    """A consumer that should take a suspect first settles what it has, and one of these messages never
    ends."""
    home = Home()
    (row,) = home.store(400)
    home.attach(1, 2, window=window)
    home.step()
    hung = home.delivered[0]
    assert hung.consumer == 1
    home.queue.detach(2, home.now, died=True)  # suspects; consumer 1 holds a message forever
    for _ in range(2000):
        for order in home.run(1.0):
            if order.consumer == 1:
                home.done(order)
        home.queue.done(1, row, 1, (1 << window) - 1, home.now)
    assert len(home.settled()) == 399
    assert home.queue.snapshot().in_flight == 1


def test_a_poison_that_takes_a_minute_to_kill_is_found_too() -> None:
    """It outlives the patience for being alone; each such death doubles that patience."""
    home = Home()
    (row,) = home.store(300)
    consumer, deaths = 1, 0
    home.attach(consumer, window=256)
    poisoned_at: float | None = None
    for _ in range(20_000):
        for order in home.run(1.0):
            got = messages([order])
            if (row, 5) in got:
                poisoned_at = home.now
            for message in got:
                if message != (row, 5):
                    home.queue.done(consumer, *message, 1, home.now)
        if poisoned_at is not None and home.now >= poisoned_at + 60:
            home.queue.detach(consumer, home.now, died=True)
            consumer, deaths, poisoned_at = consumer + 1, deaths + 1, None
            home.attach(consumer, window=256)
        if not home.kept:
            break
        home.store(1)  # other messages keep coming
        if home.buried:
            break
    assert [(order.row, order.index) for order in home.buried] == [(row, 5)]
    assert deaths <= 25


def test_waiting_messages_take_no_memory() -> None:
    """A million messages wait in the journal; memory holds only those read ahead."""
    options = WorkOptions(ahead_bytes=64 << 10)
    home = Home(options)
    home.store(*[1000] * 200, size=10, tell=False)
    home.attach(1, window=256)
    home.step()
    assert home.loads < 3
    held = sum(len(row.block) for row in home.queue._rows.values() if row.block is not None)
    assert held <= 64 << 10 and len(home.queue._rows) < 10
    total = 0
    while home.delivered:
        batch, home.delivered = home.delivered, []
        total += len(messages(batch))
        home.done(*batch)
        home.step()
        assert len(home.queue._rows) < 10
    assert total == 200_000
    home.step(commit=True)
    assert not home.kept
