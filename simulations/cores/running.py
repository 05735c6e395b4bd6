"""Runs the cores alone: builds a field of brokers, lets faults come, and says what happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulations.cores.field import Change, Field, Options, Place
from simulations.cores.gossip import Gossip
from simulations.cores.meshed import Identity, Meshed
from simulations.faults import Fault

CORES: Final = {
    "membership": "the machines of today's full mesh: mesh.membership and mesh.overlay; some hundreds",
    "gossip": "a heartbeat over a graph of bounded degree: a workload for thousands, not our membership",
}
"""Name and what it is."""
MEMBERSHIP_MAX: Final = 500
"""Links grow with the square of the brokers."""
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


def build(core: str, *, nodes: int, seed: int, options: Options | None = None, **more: Any) -> Field:
    """A field with so many brokers, called broker-1, broker-2 ..., none of them started.

    Raises:
        ValueError: there is no such core, or it cannot be run with so many.
    """
    if core not in CORES:
        raise ValueError(f"there is no core {core!r}; there are {', '.join(CORES)}")
    if nodes < NODES_MIN:
        raise ValueError(f"a mesh needs at least {NODES_MIN} brokers, got {nodes}")
    if core == "membership" and nodes > MEMBERSHIP_MAX:
        raise ValueError(
            f"a full mesh of {nodes} brokers has {nodes * (nodes - 1) // 2} links; at most {MEMBERSHIP_MAX}"
            " brokers are run. The core gossip has a bounded degree"
        )
    field = Field(seed, options, **more)
    (_add_gossip if core == "gossip" else _add_membership)(field, nodes)
    return field


def _add_gossip(field: Field, nodes: int) -> None:
    def make(place: Place) -> Gossip:
        rng = random.Random(f"{field.seed}:node:{place.name}:{place.lives}")
        return Gossip(field, place, list(place.wires.values()), rng)

    places = [field.add(f"broker-{number}", make) for number in range(1, nodes + 1)]
    rng = random.Random(f"{field.seed}:graph")
    if nodes <= 16:
        _connect_all(field, places)
        return
    for _ in range(degree_of(nodes) // 2):  # each ring gives everybody two neighbours, and holds all together
        ring = rng.sample(places, nodes)
        for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            field.connect(one, other)
    if degree_of(nodes) % 2:
        pairs = rng.sample(places, nodes)
        for one, other in zip(pairs[::2], pairs[1::2], strict=False):
            field.connect(one, other)


def _add_membership(field: Field, nodes: int) -> None:
    rng = random.Random(f"{field.seed}:joins")
    names = [f"broker-{number}" for number in range(1, nodes + 1)]
    known = {
        name: (rng.choice(names[max(0, index - 2) : index]),) if index else ()
        for index, name in enumerate(names)
    }
    identities = {
        name: Identity(number, random.Random(f"{field.seed}:id:{name}"))
        for number, name in enumerate(names, 1)
    }

    def make(place: Place) -> Meshed:
        life = random.Random(f"{field.seed}:node:{place.name}:{place.lives}")
        return Meshed(field, place, identities[place.name], join=known[place.name], rng=life)

    _connect_all(field, [field.add(name, make) for name in names])


def _connect_all(field: Field, places: list[Place]) -> None:
    for index, one in enumerate(places):
        for other in places[:index]:
            field.connect(one, other)


def start_all(field: Field, core: str) -> None:
    """One after the other, evenly; those of the gossip all at once, since it knows no joining."""
    gap_s = 0.0 if core == "gossip" else min(START_GAP_S, START_MAX_S / len(field.places))
    for place in field.places.values():
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
    field.schedule(_later(fault, field.now_s) for fault in faults)
    field.run_for(seconds)
    return finish(field, core)


def finish(field: Field, core: str) -> Outcome:
    """What there is to be said now."""
    return Outcome(
        core,
        field.seed,
        len(field.places),
        field.now_s,
        field.history.digest,
        field.messages,
        tuple(field.changes),
        tuple(_wrong(field)),
    )


def _wrong(field: Field) -> Iterator[str]:
    for place in field.places.values():
        if place.core is None:
            yield f"{place.name} is down"
            continue
        view = place.core.view()
        assumed = "alive" if place.core.sparse else "unknown"
        for name in field.places:
            state = view.get(name, assumed)
            if state != "alive":
                yield f"{place.name} holds {name} for {state}"


def _later(fault: Fault, by_s: float) -> Fault:
    return Fault(fault.at_s + by_s, fault.kind, fault.a, fault.b, fault.for_s, fault.value, fault.more)
