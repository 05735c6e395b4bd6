"""The cost of a step depends on what it moves, not on what waits: counted in lines, the same on every
machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from mesh.wire.blocks import COUNT_MAX
from mesh.work.masks import span
from mesh.work.options import WorkOptions
from tests.mesh.work.home import Home


def lines(act: Callable[[], object]) -> int:
    """Lines of mesh.work that are executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("mesh.work"):
            return None
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def steps_of_one(home: Home) -> int:
    """Settle one message, and deliver the next one."""

    def step() -> None:
        home.done(home.delivered[-1])
        home.queue.orders(home.now)

    return lines(step)


def test_rows_that_wait_cost_nothing() -> None:
    costs = []
    for waiting in (10, 3000):
        home = Home()
        home.store(*[10] * waiting)
        home.attach(1)
        home.step()
        costs.append(steps_of_one(home))
    assert costs[1] <= costs[0] < 200


@pytest.mark.parametrize("where", ["delayed", "returned", "suspects", "in flight"])
def test_messages_that_are_held_back_cost_nothing(where: str) -> None:
    costs = []
    for held in (20, 3000):
        home = Home(WorkOptions(held_max=10_000))
        home.store(*[1] * held)
        home.attach(1, window=held)
        home.step()
        if where == "delayed":
            for order in home.delivered:
                home.queue.retry(1, order.row, 0, home.now, 1000.0)
        elif where != "in flight":
            home.queue.detach(1, home.now, died=where == "suspects")
        home.store(3)
        home.attach(2)
        home.run()
        assert home.delivered[-1].consumer == 2
        costs.append(steps_of_one(home))
    assert costs[0] == costs[1] < 400


def test_neighbours_are_moved_together() -> None:
    """A whole block is delivered, settled and written as cheaply as one message of it."""
    costs = []
    for window in (1, COUNT_MAX):
        home = Home()
        home.attach(1, window=window)
        home.store(COUNT_MAX, COUNT_MAX, size=4)
        home.step()
        assert home.delivered[-1].count == window
        costs.append(lines(lambda home=home, count=window: settle_and_commit(home, count)))  # type: ignore[misc]
    assert costs[1] <= costs[0] + 10


def settle_and_commit(home: Home, count: int) -> None:
    home.queue.done(1, 1, 0, span(0, count), home.now)
    home.queue.orders(home.now, commit=True)


def test_consumers_that_have_no_room_cost_nothing() -> None:
    costs = []
    for others in (1, 2000):
        home = Home()
        home.attach(*range(2, 2 + others))
        home.store(1, *[1] * others)
        home.step()
        home.attach(1)
        home.store(5)
        home.step()
        assert home.delivered[-1].consumer == 1
        costs.append(steps_of_one(home))
    assert costs[0] == costs[1]


def test_a_session_that_ends_costs_by_the_rows_it_held() -> None:
    costs = []
    for others in (1, 1000):
        home = Home()
        home.attach(*range(2, 2 + others))
        home.store(*[1] * others)
        home.step()
        home.attach(1, window=8)
        home.store(*[1] * 8)
        home.step()
        costs.append(lines(lambda home=home: home.queue.detach(1, home.now, died=True)))  # type: ignore[misc]
    assert costs[0] == costs[1]
