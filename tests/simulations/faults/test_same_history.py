"""One seed gives one history under every fault, with any hash seed of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulations import programs
from simulations.evidence.ledger import Ledger
from simulations.faults import KINDS
from simulations.world import World

ROOT = Path(__file__).parents[3]
AFTER_EACH_S = 2.5


def struck_by_everything(seed: int) -> str:
    """Every kind of fault once, one after the other, for 1.5 s if it lasts; returns the history's hash."""
    ledger = Ledger()
    with World(seed) as world:
        for number in range(1, 5):
            join = [world.network.hosts["broker-1"].address] if number > 1 else []
            world.add_node(f"broker-{number}", programs.broker("test", join)).start()
        world.run_for(3)
        world.add_node("client-1", programs.subscriber(ledger, ["#"]), host="broker-1").start()
        world.add_node(
            "client-2", programs.publisher(ledger, ["a"], programs.Habits(0.1)), host="broker-2"
        ).start()
        world.run_for(2)
        for kind in KINDS.values():
            least = max(2, kind.names_least)
            struck = [f"broker-{number}" for number in range(2, 2 + least)]
            world.inject(kind.name, struck, for_s=1.5 if kind.lasting else None)
            world.run_for(AFTER_EACH_S)
            world.heal()
        world.run_for(5)
        return world.history.digest


@pytest.mark.long
def test_every_kind_of_fault_is_the_same_in_another_process_with_another_hash_seed() -> None:
    program = "from tests.simulations.faults.test_same_history import *; print(struck_by_everything(5))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "4242")
    }
    assert digests == {f"{struck_by_everything(5)}\n"}
    assert struck_by_everything(6) not in digests.pop()
