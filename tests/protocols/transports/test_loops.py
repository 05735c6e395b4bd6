"""The read budget: many active connections share what one turn may read, and a lone one gets all of it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from protocols import Rep0
from protocols.transports.loops import READ_MIN, TURN_BUDGET, ReadBudget, loop_state


def run_turns(budget: ReadBudget, connections: int, turns: int) -> list[int]:
    """Sizes assigned in the last turn, each connection reading once a turn."""
    last = [0] * connections
    sizes: list[int] = []
    for _ in range(turns):
        sizes = []
        for i in range(connections):
            sizes.append(min(budget.take(last[i]), 65536))
            last[i] = budget.turn
    return sizes


def test_a_lone_connection_reads_its_whole_budget() -> None:
    assert run_turns(ReadBudget(), 1, 5) == [65536]


def test_a_few_connections_read_their_whole_budget() -> None:
    assert run_turns(ReadBudget(), 20, 5) == [65536] * 20


def test_many_connections_share_a_turn() -> None:
    for connections in (100, 200, 400):
        sizes = run_turns(ReadBudget(), connections, 4)
        assert sum(sizes) <= TURN_BUDGET
        assert min(sizes) == max(sizes) == TURN_BUDGET // connections


def test_every_connection_gets_at_least_the_minimum() -> None:
    assert set(run_turns(ReadBudget(), 5000, 3)) == {READ_MIN}


def test_the_share_grows_again_when_the_flood_is_over() -> None:
    budget = ReadBudget()
    run_turns(budget, 1000, 3)
    assert run_turns(budget, 2, 3) == [65536] * 2


def test_a_turn_does_not_exceed_its_share_even_while_the_flood_begins() -> None:
    """The first turn of a flood is judged by the connections seen in it so far."""
    assert sum(run_turns(ReadBudget(), 1000, 1)) < 5 * TURN_BUDGET


def test_the_buffer_grows_to_the_largest_requested_budget() -> None:
    budget = ReadBudget()
    before = budget.buffer
    budget.require(1000)
    assert budget.buffer is before
    budget.require(1 << 18)
    assert len(budget.buffer) == 1 << 18


def test_each_loop_has_a_state_of_its_own() -> None:
    async def state() -> object:
        assert loop_state() is loop_state()
        return loop_state()

    assert asyncio.run(state()) is not asyncio.run(state())


def test_the_state_of_a_loop_is_gone_with_it() -> None:
    """The state kept its loop alive, and so everything that ever ran in one."""

    async def loop_of_state() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop_state()
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(loop_of_state())
    gc.collect()
    assert loop() is None


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0/sp", "inproc://left-open"])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_ends_with_an_open_listener_is_gone_too(url: str) -> None:
    """The loop's state held the listener, which held the loop: a program with many loops kept all of them."""

    async def listen_and_forget() -> weakref.ref[asyncio.AbstractEventLoop]:
        await Rep0().listen(url)
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(listen_and_forget())
    gc.collect()
    assert loop() is None
