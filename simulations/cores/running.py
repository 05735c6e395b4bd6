"""Runs the cores alone: builds a field of brokers, lets faults come, and says what happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulations.cores.core import Change
from simulations.cores.field import Field, Options, PlaceState
from simulations.cores.gossip import Gossip
from simulations.cores.meshed import Meshed
from simulations.cores.striking import Striking
from simulations.faults import Fault

CORES: Final = {
    "membership": "the full mesh of `mesh.cluster.membership` and `mesh.cluster.overlay`; some hundreds",
    "gossip": "a heartbeat over a graph of bounded degree: a workload for thousands, not our membership",
}
"""Name and what it is."""
MEMBERSHIP_MAX: Final = 500
"""Links grow with the square of the brokers."""
GOSSIP_MAX: Final = 100_000
NODES_MIN: Final = 2
START_GAP_S: Final = 0.2
START_MAX_S: Final = 10.0
"""All are started within this, however many."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run, in terms that are equal whenever core, seed, size, faults and code are."""

    core: str
    seed: int
    nodes: int
    virtual_s: float
    history_hash: str
    messages: int
    changes: tuple[Change, ...]
    """The first million."""
    changes_seen: int
    deaths_seen: int
    dead: tuple[str, ...]
    """Who was ever seen dead by anybody, first come first."""
    wrong: tuple[str, ...]
    """Who does not hold whom for alive at the end, or is down."""

    @property
    def ok(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        return {
            "fidelity": "cores",
            "core": self.core,
            "seed": self.seed,
            "nodes": self.nodes,
            "virtual_s": round(self.virtual_s, 6),
            "history_hash": self.history_hash,
            "ok": self.ok,
            "messages": self.messages,
            "changes_seen": self.changes_seen,
            "deaths_seen": self.deaths_seen,
            "changes": [
                [round(c.at_s, 6), c.observer, c.subject, c.from_state, c.to_state, c.reason]
                for c in self.changes
            ],
            "wrong": list(self.wrong),
        }


def degree_of(nodes: int) -> int:
    """How many neighbours the overlay to come gives a broker: 9, 8, 10, 13 at 10, 100, 1000, 10 000."""
    if nodes <= 16:
        return nodes - 1
    log = sum(nodes > 2.718281828459045**power for power in range(20))  # ceil(ln n)
    return max(8, log + 3)


def check_size(core: str, nodes: int) -> None:
    """Raises `ValueError` if there is no such core, or it cannot be run with so many."""
    if core not in CORES:
        raise ValueError(f"there is no core {core!r}; there are {', '.join(CORES)}")
    if nodes < NODES_MIN:
        raise ValueError(f"a mesh needs at least {NODES_MIN} brokers, got {nodes}")
    if core == "membership" and nodes > MEMBERSHIP_MAX:
        raise ValueError(
            f"a full mesh of {nodes} brokers has {nodes * (nodes - 1) // 2} links; at most {MEMBERSHIP_MAX}"
            " brokers are run. The core gossip has a bounded degree"
        )
    if nodes > GOSSIP_MAX:
        raise ValueError(f"{nodes} brokers take too much memory; at most {GOSSIP_MAX} are run")


def build(core: str, *, nodes: int, seed: int, options: Options | None = None, **more: Any) -> Field:
    """A field with so many brokers, called broker-1, broker-2 ..., none of them started.

    Raises:
        ValueError: as `check_size`.
    """
    check_size(core, nodes)
    field = Field(seed, options, **more)
    for number in range(1, nodes + 1):
        field.add(f"broker-{number}")
    if core == "gossip":
        _connect_few(field)
        field.core = Gossip(field)
    else:
        _connect_all(field)
        field.core = Meshed(field)
    return field


def _connect_few(field: Field) -> None:
    places = range(len(field.names))
    degree = degree_of(len(places))
    if degree == len(places) - 1:
        _connect_all(field)
        return
    rng = random.Random(f"{field.seed}:graph")
    for _ in range(degree // 2):  # each ring gives everybody two neighbours, and holds all together
        ring = rng.sample(places, len(places))
        for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            field.wires.connect(one, other)
    if degree % 2:
        pairs = rng.sample(places, len(places))
        for one, other in zip(pairs[::2], pairs[1::2], strict=False):
            field.wires.connect(one, other)


def _connect_all(field: Field) -> None:
    for one in range(len(field.names)):
        for other in range(one):
            field.wires.connect(one, other)


def start_all(field: Field, core: str) -> None:
    """One after the other, evenly; those of the gossip all at once, since it knows no joining."""
    gap_s = 0.0 if core == "gossip" else min(START_GAP_S, START_MAX_S / len(field.names))
    for place in range(len(field.names)):
        field.start(place)
        field.run_for(gap_s)


def run(
    core: str,
    faults: Iterable[Fault] = (),
    *,
    nodes: int,
    seed: int,
    seconds: float,
    warm_s: float = 5.0,
    options: Options | None = None,
    on_second: Callable[[float], None] | None = None,
) -> Outcome:
    """Start all brokers, let them find each other for ``warm_s``, then let faults come for ``seconds``: their
    times count from there, as in a scenario.

    Raises:
        ValueError: no such core, too many brokers, a fault that means nothing here.
    """
    field = build(core, nodes=nodes, seed=seed, options=options)
    field.on_second = on_second
    start_all(field, core)
    field.run_for(warm_s)
    Striking(field).schedule(faults, began_s=field.now_s)
    field.run_for(seconds)
    return finish(field, core)


def finish(field: Field, core: str) -> Outcome:
    """What there is to be said now."""
    return Outcome(
        core,
        field.seed,
        len(field.names),
        field.now_s,
        field.history.digest,
        field.messages,
        tuple(field.changes),
        field.counts.total(),
        field.counts["dead"],
        tuple(field.dead),
        tuple(_wrong(field)),
    )


def _wrong(field: Field) -> Iterator[str]:
    for place, name in enumerate(field.names):
        if field.states[place] is PlaceState.DOWN:
            yield f"{name} is down"
            continue
        view = field.core.view(place)
        others = view if field.core.sparse else field.names
        for other in others:
            state = view.get(other, "unknown")
            if state != "alive":
                yield f"{name} holds {other} for {state}"
