"""A defect in a call of the timer of rounds costs that call, but not the rounds."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from mesh.cluster.gossip import LONG_FRAME
from mesh.cluster.link import Link
from mesh.cluster.membership import MemberRecord, SelfChanged
from mesh.cluster.overlay import Dial
from mesh.cluster.peering import REPORTS_MAX
from tests.mesh.peers import Peers, until


class FakeLink:
    ended = False


async def test_an_exception_in_the_timer_is_reported_and_the_rounds_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with Peers() as peers:
        alone = await peers.peer("a")
        peering = alone.peering
        tick, calls = peering.membership.tick, 0

        def broken(now: float) -> Any:
            nonlocal calls
            calls += 1
            if calls <= 2:
                raise LookupError("a defect")
            return tick(now)

        monkeypatch.setattr(peering.membership, "tick", broken)
        before = peering.view.statistics().rounds
        await until(lambda: peering.view.statistics().rounds > before + 2, "rounds after the fault")
        assert peering.faults == 2 and [str(each["exception"]) for each in told] == ["a defect"] * 2


async def test_a_timer_that_always_raises_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    monkeypatch.setattr("mesh.cluster.peering.FAULT_PAUSE_S", 0.0)
    async with Peers() as peers:
        alone = await peers.peer("a")

        def broken(now: float) -> Any:
            raise LookupError("a defect")

        monkeypatch.setattr(alone.peering.membership, "tick", broken)
        await until(lambda: alone.peering.faults > REPORTS_MAX + 10, "many faults")
        assert len(told) == REPORTS_MAX and "only counted" in told[-1]["message"]


async def test_an_order_that_raises_costs_no_later_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dial behind it was lost, and counted as in progress forever."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with Peers() as peers:
        alone = await peers.peer("a")
        peering = alone.peering

        def broken(record: MemberRecord) -> None:
            raise LookupError("a defect")

        monkeypatch.setattr(alone, "self_changed", broken)
        dials: list[Dial] = []
        monkeypatch.setattr(peering.dialer, "begin", dials.append)
        dial = Dial("tcp://127.0.0.1:1", 0)
        peering._execute([SelfChanged(peering.membership.me), dial])
        assert dials == [dial] and peering.faults == len(told) == 1


async def test_a_frame_of_interest_that_raises_delays_no_later_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with Peers() as peers:
        gossip = (await peers.peer("a")).peering.gossip
        taken: list[bytes] = []

        def take(link: Link, frame: bytes) -> None:
            taken.append(frame)
            if len(taken) == 1:
                raise LookupError("a defect")

        monkeypatch.setattr(gossip, "_take_interest", take)
        frames = [bytes([number]) * (LONG_FRAME + 1) for number in range(3)]
        one, other = (cast(Link, FakeLink()) for _ in range(2))
        gossip._interest_received(one, frames[0])
        gossip._interest_received(one, frames[1])
        gossip._interest_received(other, frames[2])
        await until(lambda: len(taken) == 3, "the frames behind the fault")
        assert taken == [frames[0], frames[2], frames[1]] and len(told) == 1
