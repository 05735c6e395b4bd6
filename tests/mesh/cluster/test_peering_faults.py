"""A defect in what the timer of rounds calls costs that call, and not the rounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh.cluster.peering import REPORTS_MAX
from tests.mesh.peers import Peers, until


async def test_an_exception_in_the_timer_is_reported_and_the_rounds_go_on(
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
        before = peering.statistics().rounds
        await until(lambda: peering.statistics().rounds > before + 2, "rounds after the fault")
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
