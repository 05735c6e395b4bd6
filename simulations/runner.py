"""Runs a scenario from a seed and says how it went."""

from __future__ import annotations

import importlib
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from simulations import checkers, truth
from simulations.checkers import Verdict
from simulations.ledger import Outcome
from simulations.world import Deadlock, World

SCENARIOS: Final = {
    "calm": "nothing is done: everything must arrive, nobody may be suspected",
    "crash-and-return": "a kill, a power loss and a pause; all three come back",
    "split-and-heal": "the network splits in two, then one host goes unheard; all heals",
}
"""Name and summary; the module's name has underscores."""
NODES_MIN: Final = 5


@dataclass(frozen=True, slots=True)
class Result:
    """A run, in terms that are equal whenever scenario, seed, size and code are."""

    scenario: str
    seed: int
    nodes: int
    history_hash: str
    virtual_s: float
    converged_in_s: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    counts: dict[str, int]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "nodes": self.nodes,
            "ok": self.ok,
            "history_hash": self.history_hash,
            "virtual_s": round(self.virtual_s, 6),
            "converged_in_s": [round(seconds, 6) for seconds in self.converged_in_s],
            "checks": [verdict.as_json() for verdict in self.verdicts],
            "counts": self.counts,
            "faults": list(self.faults),
        }


def run(
    scenario: str,
    *,
    seed: int,
    nodes: int = NODES_MIN,
    out: str | None = None,
    say: Callable[[float, str], None] | None = None,
    keep_history: bool = False,
) -> tuple[Result, World]:
    """Play a scenario. ``say`` is told the virtual time and what happens, and an empty text every second.

    Raises:
        ValueError: there is no such scenario, or too few nodes for it.
        OSError: ``out`` cannot be written.
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"there is no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
    if nodes < NODES_MIN:
        raise ValueError(f"a scenario needs at least {NODES_MIN} brokers, got {nodes}")
    if out is not None:
        _check_writable(out)
    # Here, since a program that only lists scenarios need not load brokers.
    from simulations.federation import Federation

    play: Callable[[Federation], None] = importlib.import_module(
        f"simulations.scenarios.{scenario.replace('-', '_')}"
    ).play
    tell = say or (lambda now_s, text: None)
    with World(seed, keep_history=keep_history) as world:
        mesh = Federation(
            world,
            f"{scenario}-{seed}",
            nodes,
            random.Random(f"{seed}:scenario:{scenario}"),
            lambda text: tell(world.now_s, text),
        )
        world.on_second = lambda now_s: tell(now_s, "")
        try:
            play(mesh)
        except (Deadlock, TimeoutError) as error:
            mesh.verdicts.append(Verdict("goes_on", "the scenario", (str(error),)))
        if out is not None:
            truth.write_logs(world, out, run=mesh.name, scenario=scenario)
    verdicts = (*mesh.verdicts, checkers.sound(world.failures, world.fence.escapes))
    result = Result(
        scenario=scenario,
        seed=seed,
        nodes=nodes,
        history_hash=world.history.digest,
        virtual_s=world.now_s,
        converged_in_s=tuple(mesh.converged_in_s),
        verdicts=verdicts,
        counts={
            "events": world.scheduler.events,
            "turns": world.history.counts["turn"],
            "arrivals": world.history.counts["data"],
            "connections": world.network.connections,
            "published": len(mesh.ledger.publications),
            "accepted": mesh.ledger.count(Outcome.ACCEPTED),
            "refused": mesh.ledger.count(Outcome.REFUSED),
            "unknown": mesh.ledger.count(Outcome.UNKNOWN),
            "delivered": len(mesh.ledger.receipts),
            "log_rows": len(truth.log_rows(truth.log_files(world))),
        },
        faults=tuple(f"{at_s:.3f} {fault}" for at_s, fault in world.faults),
    )
    return result, world


def _check_writable(folder: str) -> None:
    """Say so before the run rather than after it."""
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
