"""When a mesh is whole: every broker that was ever started is up and sees exactly the others alive.

At a heal all may see each other alive while a death is on its way: two of its three missed rounds may be
over. So a mesh is *whole for good* from a moment on if it stays so for as long as a death takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from mesh.broker.broker import Broker
from mesh.cluster.membership import State
from simulations.scenario import Scenario
from simulations.world import ConditionNotMet, World

START_S: Final = 30.0
"""Seconds in which brokers find each other at the beginning."""
POLL_S: Final = 0.05
DEATH_ROUNDS: Final = 3
"""The number of missed rounds that make a death."""


def is_whole(world: World, brokers: Iterable[str]) -> bool:
    """Considers the named brokers, except those that were never started."""
    started = [node for node in map(world.node, brokers) if node.lives]
    up: list[Broker] = [node.exposed for node in started if node.running and node.exposed is not None]
    ids = sorted(broker.inspect().id for broker in up)
    return len(up) == len(started) and all(_alive(broker) == ids for broker in up)


def _alive(broker: Broker) -> list[int]:
    """Straight from its table: this is called twenty times a second, and a status takes long to build."""
    records = broker.inspect().records
    return sorted(record.id for record in records if record.state == State.ALIVE)


def wait_whole_for_good(world: World, brokers: Iterable[str], scenario: Scenario) -> float | None:
    """Let time pass until the mesh is whole for good; return since when it is.

    Returns None if that does not begin within the scenario's bound.
    """
    names = list(brokers)
    healed_s = world.now_s
    hold_s = DEATH_ROUNDS * scenario.period_s + scenario.deadline_s
    since_s: float | None = None

    def has_held() -> bool:
        nonlocal since_s
        if not is_whole(world, names):
            since_s = None
        elif since_s is None:
            since_s = world.now_s
        return since_s is not None and world.now_s - since_s >= hold_s

    with contextlib.suppress(ConditionNotMet):
        world.run_until(
            has_held, timeout_s=scenario.bound_s + hold_s, what="a mesh whole for good", poll_s=POLL_S
        )
        assert since_s is not None, "it has held"
        if since_s - healed_s <= scenario.bound_s:
            return since_s
    return None
