"""All homes lose power at once, repeatedly: acknowledged blocks are there, and settled ones are not.

``MANGROVE_POWER_LOSSES=1000`` plays so many seeds.
"""

from __future__ import annotations

import os
import random

import pytest

from mesh.database import room, settings
from simulations.world import World
from tests.simulations.keeping import Promises, home

SEEDS = int(os.environ.get("MANGROVE_POWER_LOSSES", "40"))
HOMES = ("broker-1", "broker-2", "broker-3")
LOSSES = 3
"""Power losses in each seed, each followed by one while the journals are opened."""


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, so that there are checkpoints during the work."""
    monkeypatch.setattr(room, "CHECKPOINT_PAGES", 12)


def played(seed: int) -> tuple[World, list[Promises]]:
    """The promises of homes in a world whose power fails."""
    rng = random.Random(f"{seed}:losses")
    promises = [Promises() for _ in HOMES]
    with World(seed) as world:
        nodes = [world.add_node(name, home(each)) for name, each in zip(HOMES, promises, strict=True)]
        world.inject("start", HOMES)
        for _ in range(LOSSES):
            world.run_until(lambda: all(node.exposed for node in nodes), timeout_s=10, what="the journals")
            world.run_for(rng.uniform(0.01, 0.2))
            for pause_s in (0.0, rng.uniform(0.0, 0.03)):
                world.run_for(pause_s)
                world.inject("power_off", HOMES)
                world.inject("start", HOMES)
        world.run_until(lambda: all(node.exposed for node in nodes), timeout_s=10, what="the journals")
    return world, promises


def wrong(seed: int) -> list[str]:
    _, promises = played(seed)
    assert all(len(each.stored) > 10 and each.settled for each in promises)
    by_name = zip(HOMES, promises, strict=True)
    return [f"seed {seed}, {name}: {it}" for name, each in by_name for it in each.wrong]


def test_no_acknowledged_message_is_lost_when_all_homes_lose_power() -> None:
    assert [it for seed in range(3) for it in wrong(seed)] == []


@pytest.mark.long
def test_no_acknowledged_message_is_lost_when_all_homes_lose_power_for_many_seeds() -> None:
    assert [it for seed in range(3, 3 + SEEDS) for it in wrong(seed)] == []


@pytest.mark.parametrize("synchronous", [0, 1], ids=["off", "normal"])
def test_journals_that_do_not_sync_fail_these_tests(
    monkeypatch: pytest.MonkeyPatch, synchronous: int
) -> None:
    """A planted bug: the same test fails for a journal that breaks its promise."""
    pragmas = tuple(
        (name, synchronous if name == "synchronous" else value) for name, value in settings.PRAGMAS
    )
    monkeypatch.setattr(settings, "PRAGMAS", pragmas)
    assert any("lost" in it for seed in range(3) for it in wrong(seed))


def test_the_same_seed_leaves_the_same_bytes_and_the_same_history() -> None:
    def left(seed: int) -> tuple[object, ...]:
        world, promises = played(seed)
        return world.history.digest, promises, [world.disk(name).under("/") for name in HOMES]

    assert left(2) == left(2)
    assert left(2) != left(3)
