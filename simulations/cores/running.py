"""Runs the cores alone: builds a field of brokers, applies faults, and reports the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulations.cores.core import Change
from simulations.cores.field import Field, Options, PlaceState
from simulations.cores.meshed import Meshed
from simulations.cores.striking import Striking
from simulations.faults import Fault
from simulations.scenario import TooManyBrokers

NODES_MAX: Final = 500
"""The most brokers: links of a full mesh grow with the square of their number."""
NODES_MIN: Final = 2
START_GAP_S: Final = 0.2
START_MAX_S: Final = 10.0
"""Seconds within which all are started, however many."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run, in terms that are equal whenever seed, size, faults and code are equal."""

    seed: int
    nodes: int
    virtual_s: float
    history_hash: str
    messages: int
    changes: tuple[Change, ...]
    """The first million changes."""
    changes_seen: int
    deaths_seen: int
    dead: tuple[str, ...]
    """Members that any broker ever saw dead, in the order of first sight."""
    wrong: tuple[str, ...]
    """At the end: brokers that are down, and brokers that do not see another one alive."""

    @property
    def ok(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Any]:
        return {
            "fidelity": "cores",
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


def check_size(nodes: int) -> None:
    """Raise `ValueError` if so many brokers cannot be run."""
    if nodes < NODES_MIN:
        raise ValueError(f"a mesh needs at least {NODES_MIN} brokers, got {nodes}")
    if nodes > NODES_MAX:
        raise TooManyBrokers(
            f"a full mesh of {nodes} brokers has {nodes * (nodes - 1) // 2} links; at most {NODES_MAX}"
            " brokers are run"
        )


def build(*, nodes: int, seed: int, options: Options | None = None, **more: Any) -> Field:
    """A field with so many brokers, called broker-1, broker-2 ..., none of them started.

    Raises:
        ValueError: see `check_size`.
    """
    check_size(nodes)
    field = Field(seed, options, **more)
    for number in range(1, nodes + 1):
        field.add(f"broker-{number}")
    for one in range(nodes):
        for other in range(one):
            field.wires.connect(one, other)
    field.core = Meshed(field)
    return field


def start_all(field: Field) -> None:
    """Start them one after the other, evenly spaced."""
    gap_s = min(START_GAP_S, START_MAX_S / len(field.names))
    for place in range(len(field.names)):
        field.start(place)
        field.run_for(gap_s)


def run(
    faults: Iterable[Fault] = (),
    *,
    nodes: int,
    seed: int,
    seconds: float,
    warm_s: float = 5.0,
    options: Options | None = None,
    on_second: Callable[[float], None] | None = None,
) -> Outcome:
    """Start all brokers, let them find each other for ``warm_s``, then apply faults for ``seconds``.

    The times of faults count from that moment, as in a scenario.

    Raises:
        ValueError: too many brokers, or a fault without meaning here.
    """
    field = build(nodes=nodes, seed=seed, options=options)
    field.on_second = on_second
    start_all(field)
    field.run_for(warm_s)
    Striking(field).schedule(faults, began_s=field.now_s)
    field.run_for(seconds)
    return finish(field)


def finish(field: Field) -> Outcome:
    """The outcome so far."""
    return Outcome(
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
        for other in field.names:
            state = view.get(other, "unknown")
            if state != "alive":
                yield f"{name} holds {other} for {state}"
