"""A mesh of cores on a field for tests of membership: brokers are numbers, faults are calls.

The brokers are those of `simulations.cores`: the production core of the cluster over a network that can be
broken. Its own tests check its fidelity.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from mesh.cluster.membership import Membership, State
from simulations.cores import Change, Field, Options, Striking
from simulations.cores.field import PlaceState
from simulations.cores.meshed import Life, Meshed
from simulations.faults import Fault
from simulations.kernel.scheduler import nanoseconds

PLACES = 16
LEAVE_S = 0.1


def name(id: int) -> str:
    return f"broker-{id}"


def number(name: str) -> int:
    return int(name.removeprefix("broker-"))


@dataclass(frozen=True)
class Node:
    """One broker over all its runs."""

    world: World
    id: int

    @property
    def life(self) -> Life:
        """Its last run."""
        return self.world.meshed.lives[self.id - 1]

    @property
    def membership(self) -> Membership:
        return self.life.membership

    @property
    def issued(self) -> int:
        """The greatest incarnation that it ever gave itself."""
        return self.world.meshed.identities[self.id - 1].incarnation

    @property
    def dead(self) -> bool:
        return self.world.field.states[self.id - 1] is PlaceState.DOWN

    @property
    def paused(self) -> bool:
        return self.world.field.states[self.id - 1] is PlaceState.PAUSED

    @property
    def links(self) -> set[int]:
        return {self.world.number_of(member) for member in self.life.links}

    @property
    def changes(self) -> list[Change]:
        """The changes of others that it saw, in all its runs."""
        mine = name(self.id)
        return [each for each in self.world.field.changes if each.observer == mine != each.subject]

    def states(self) -> dict[int, str]:
        return {number(name): state for name, state in self.life.view().items()}

    def view(self) -> set[int]:
        return {id for id, state in self.states().items() if state in ("alive", "suspect")}

    def said(self, subject: int, state: State) -> list[float]:
        """When it saw a member enter a state."""
        return [each.at_s for each in self.changes if (each.subject, each.to_state) == (name(subject), state)]


class World:
    """Places for brokers, none of them started. With ``loss`` every link loses this share of its packets."""

    def __init__(self, seed: int = 0, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.field = field = Field(seed, Options(latency_s=0.001, jitter_s=0.0))
        for id in range(1, PLACES + 1):
            field.add(name(id))
        for one in range(PLACES):
            for other in range(one):
                field.wires.connect(one, other)
        self.meshed = field.core = Meshed(field)
        self.striking = Striking(field)
        self.nodes: dict[int, Node] = {}
        for wire in range(len(field.wires.targets) if loss else 0):
            field.wires.suffer(wire).loss.append(loss)
            field.wires.judge(wire)

    # --- time

    @property
    def now(self) -> float:
        return self.field.now_s

    def run(self, seconds: float) -> None:
        self.field.run_for(seconds)

    def run_until(self, condition: Callable[[], bool], within_s: float, step_s: float = 0.05) -> float:
        """Run until it is true; returns how long that took."""
        start = self.now
        while not condition():
            assert self.now - start < within_s, f"not within {within_s} s"
            self.run(step_s)
        return self.now - start

    # --- brokers

    def start(self, id: int, *join: int) -> Node:
        node = self.nodes.setdefault(id, Node(self, id))
        self.meshed.joins[id - 1] = tuple(name(other) for other in join)
        self.field.start(id - 1)
        return node

    def mesh(self, count: int) -> list[Node]:
        nodes = [self.start(1)]
        for id in range(2, count + 1):
            self.run(0.1)
            nodes.append(self.start(id, 1))
        self.run_until(self.converged, 10)
        return nodes

    def number_of(self, member: int) -> int:
        """The number of the broker with this member id."""
        ids = [identity.id for identity in self.meshed.identities]
        return ids.index(member) + 1

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.dead]

    def converged(self) -> bool:
        """All see exactly the living brokers, alive, with a link to each, and all digests are equal."""
        live = self.live()
        ids = {node.id for node in live}
        return (
            all(node.view() == ids and node.links == ids - {node.id} for node in live)
            and all(record.state is State.ALIVE for node in live for record in node.membership.live())
            and len({node.membership.digest for node in live}) == 1
        )

    def crash(self, id: int, *, silent: bool = False) -> None:
        """Kill the process. ``silent``: the host vanishes without a sign."""
        self.field.kill(id - 1, power=not silent)

    def pause(self, id: int) -> None:
        self.field.pause(id - 1)

    def resume(self, id: int) -> None:
        self.field.resume(id - 1)

    def leave(self, id: int) -> None:
        self.nodes[id].life.leave()
        self.field.after(nanoseconds(LEAVE_S), self.field.kill, id - 1)

    # --- links

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        self.striking.do(Fault(0.0, "cut_one_way" if one_way else "partition", (name(a),), (name(b),)))

    def split(self, left: list[int], right: list[int]) -> None:
        self.striking.do(Fault(0.0, "partition", tuple(map(name, left)), tuple(map(name, right))))

    def heal(self) -> None:
        self.striking.do(Fault(0.0, "heal"))

    def drop(self, id: int, to: int) -> None:
        """A broker closes its link to another one."""
        self.nodes[id].life.drop(self.meshed.identities[to - 1].id)
