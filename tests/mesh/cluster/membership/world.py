"""Membership and overlay machines of many brokers under one event heap, over a network that can be broken.

A link is up at both ends or at one; TCP's manners are kept where they matter: what is sent into a cut is held
back and delivered after the cut if the link still exists, a killed process resets its links, a lost host says
nothing. A paused broker does nothing and finds all that came when it wakes.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mesh.cluster.membership import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberMoved,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeChanged,
    Redial,
    SelfChanged,
    State,
    Survey,
    Tell,
    TellAll,
)
from mesh.cluster.overlay import Dial, Overlay, OverlayOptions

LATENCY_S = 0.001
DIAL_TIMEOUT_S = 1.0


@dataclass
class Node:
    """One run of one broker."""

    world: World
    id: int
    boot: int
    incarnation: int
    join: tuple[str, ...]
    links: dict[int, int] = field(default_factory=dict)
    """Peer to the number of the link."""
    paused: bool = False
    dead: bool = False
    inbox: list[Callable[[], None]] = field(default_factory=list)
    changes: list[tuple[float, MemberChanged]] = field(default_factory=list)
    node_changes: list[tuple[float, NodeChanged]] = field(default_factory=list)
    issued: int = 0

    def __post_init__(self) -> None:
        now = self.world.now
        rng = random.Random(f"{self.world.seed}:{self.id}:{self.boot}")
        url = f"sim://{self.id}"
        me = MemberRecord(self.id, self.incarnation, State.ALIVE, self.boot, f"n{self.id}", "h", url, url)
        self.issued = self.incarnation
        self.membership = Membership(me, options=MembershipOptions(), join=bool(self.join), rng=rng, now=now)
        self.overlay = Overlay(self.id, join=self.join, options=OverlayOptions(), rng=rng, now=now)
        self.wake_at = float("inf")
        self.pump()

    # --- shell

    def pump(self) -> None:
        now = self.world.now
        for dial in self.overlay.tick(now):
            self.world.dial(self, dial)
        due = max(now, min(self.membership.next_deadline(), self.overlay.next_deadline()))
        if due < float("inf") and not self.wake_at <= due:
            self.wake_at = due
            self.world.at(due, self.tick, self)

    def tick(self) -> None:
        self.wake_at = float("inf")
        self.act(self.membership.tick(self.world.now))
        self.pump()

    def act(self, instructions: list[Instruction]) -> None:
        now, world = self.world.now, self.world
        for instruction in instructions:
            match instruction:
                case Survey(round, members):
                    for member in members:
                        world.send(self, member, ("survey", round, self.membership.digest))
                case Tell(records, but):
                    for member in list(self.links):
                        if member != but:
                            world.send(self, member, ("members", records, False))
                case TellAll(member, reply):
                    world.send(self, member, ("members", tuple(self.membership.records()), reply))
                case MemberChanged(record):
                    self.changes.append((now, instruction))
                    self.overlay.member_changed(record, now)
                case MemberMoved(record):
                    self.overlay.member_changed(record, now)
                case MemberForgotten(record):
                    self.overlay.forget(record.id)
                case SelfChanged(record):
                    self.issued = max(self.issued, record.incarnation)
                case DropLink(member):
                    world.drop(self, member)
                case Redial():
                    self.overlay.redial(now)
                case NodeChanged():
                    self.node_changes.append((now, instruction))
        self.pump()

    def received(self, sender: int, message: tuple[Any, ...]) -> None:
        now = self.world.now
        match message:
            case ("survey", round, digest):
                self.world.send(self, sender, ("answer", round, self.membership.digest))
                self.act(self.membership.heard_digest(sender, digest, now))
            case ("answer", round, digest):
                self.act(self.membership.answered(sender, round, now))
                self.act(self.membership.heard_digest(sender, digest, now))
            case ("members", records, reply):
                self.act(self.membership.heard(records, sender, now))
                if reply:
                    self.act([TellAll(sender, False)])

    def link_up(self, peer: MemberRecord, number: int, dial: Dial | None) -> None:
        self.links[peer.id] = number
        self.overlay.link_up(peer.id, dial, self.world.now)
        self.act(self.membership.link_up(peer, self.world.now))
        self.act(self.membership.joined())

    def link_down(self, peer: int, number: int) -> None:
        if self.links.get(peer) == number:
            del self.links[peer]
            self.overlay.link_down(peer, self.world.now)
            self.act(self.membership.link_down(peer, self.world.now))

    # --- what tests ask

    def states(self) -> dict[int, str]:
        return {record.id: str(record.state) for record in self.membership.records()}

    def view(self) -> set[int]:
        return {record.id for record in self.membership.records() if record.in_view}

    def said(self, subject: int, state: State) -> list[float]:
        return [at for at, c in self.changes if c.record.id == subject and c.record.state is state]


class World:
    """Brokers, wires, faults and one clock."""

    def __init__(self, seed: int = 0, loss: float = 0.0) -> None:
        self.seed = seed
        self.now = 0.0
        self.rng = random.Random(seed)
        self.nodes: dict[int, Node] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.held: list[tuple[int, int, int, tuple[Any, ...]]] = []
        self.stall = loss  # share of messages that TCP has to send again
        self.sent = 0
        self._heap: list[tuple[float, int, Callable[[], None], Node | None]] = []
        self._serial = 0
        self._boots = 0
        self._link = 0

    # --- clock

    def at(self, when: float, act: Callable[[], None], node: Node | None = None) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (when, self._serial, act, node))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            when, _, act, node = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            if node is None:
                act()
            elif node.dead:
                continue
            elif node.paused:
                node.inbox.append(act)
            else:
                act()
        self.now = end

    def run_until(self, condition: Callable[[], bool], within_s: float, step_s: float = 0.05) -> float:
        """Run until it is true; returns how long that took."""
        start = self.now
        while not condition():
            assert self.now - start < within_s, f"not within {within_s} s"
            self.run(step_s)
        return self.now - start

    # --- brokers

    def start(self, id: int, *join: int, incarnation: int = 1) -> Node:
        self._boots += 1
        node = Node(self, id, self._boots, incarnation, tuple(f"sim://{other}" for other in join))
        self.nodes[id] = node
        return node

    def mesh(self, count: int) -> list[Node]:
        nodes = [self.start(1)]
        for id in range(2, count + 1):
            self.run(0.1)
            nodes.append(self.start(id, 1))
        self.run_until(self.converged, 10)
        return nodes

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.dead]

    def converged(self) -> bool:
        """All see exactly the living, alive, with a link to each, and all digests are equal."""
        live = self.live()
        ids = {node.id for node in live}
        return (
            all(node.view() == ids and set(node.links) == ids - {node.id} for node in live)
            and all(record.state is State.ALIVE for node in live for record in node.membership.live())
            and len({node.membership.digest for node in live}) == 1
        )

    def crash(self, id: int, *, silent: bool = False) -> None:
        """Kill the process; ``silent``: lose the host, nobody is told."""
        node = self.nodes[id]
        node.dead = True
        for peer, number in list(node.links.items()):
            if not silent:
                self._reset(self.nodes[peer], id, number)

    def _reset(self, node: Node, peer: int, number: int) -> None:
        self.at(self.now + LATENCY_S, lambda: node.link_down(peer, number), node)

    def pause(self, id: int) -> None:
        self.nodes[id].paused = True

    def resume(self, id: int) -> None:
        node = self.nodes[id]
        node.paused = False
        # asyncio reads sockets first and runs timers that are due behind that, oldest first.
        acts, node.inbox = node.inbox, []
        for act in acts:
            self.at(self.now, act, node)

    def leave(self, id: int) -> None:
        node = self.nodes[id]
        node.act(node.membership.leave())

        def gone() -> None:
            for peer in list(node.links):
                self.drop(node, peer)
            node.dead = True

        self.at(self.now + 0.1, gone)

    # --- wires

    def cut(self, a: int, b: int, *, one_way: bool = False) -> None:
        self.cuts.add((a, b))
        if not one_way:
            self.cuts.add((b, a))

    def split(self, left: list[int], right: list[int]) -> None:
        for a in left:
            for b in right:
                self.cut(a, b)

    def heal(self) -> None:
        self.cuts.clear()
        held, self.held = self.held, []
        for sender, receiver, number, message in held:
            self._deliver(sender, receiver, number, message)

    def send(self, node: Node, to: int, message: tuple[Any, ...]) -> None:
        number = node.links.get(to)
        if number is not None:
            self.sent += 1
            self._deliver(node.id, to, number, message)

    def _deliver(self, sender: int, to: int, number: int, message: tuple[Any, ...]) -> None:
        if (sender, to) in self.cuts or (to, sender) in self.cuts:
            self.held.append((sender, to, number, message))  # unacknowledged one way is as good as lost
            return
        delay_s = LATENCY_S
        while self.rng.random() < self.stall:
            delay_s = max(0.2, delay_s * 2)
        receiver = self.nodes[to]

        def arrive() -> None:
            if receiver.links.get(sender) == number:
                receiver.received(sender, message)

        self.at(self.now + delay_s, arrive, receiver)

    def drop(self, node: Node, to: int) -> None:
        number = node.links.get(to)
        if number is None:
            return
        node.link_down(to, number)
        other = self.nodes[to]
        if (node.id, to) not in self.cuts and (to, node.id) not in self.cuts:
            self._reset(other, node.id, number)

    def dial(self, node: Node, dial: Dial) -> None:
        target = self.nodes.get(int(dial.url.removeprefix("sim://")))

        def failed() -> None:
            node.overlay.dial_failed(dial.url, dial.member, self.now)
            node.pump()

        if target is None or target.dead:
            self.at(self.now + LATENCY_S, failed, node)
            return
        if target.paused or (node.id, target.id) in self.cuts or (target.id, node.id) in self.cuts:
            self.at(self.now + DIAL_TIMEOUT_S, failed, node)
            return

        def met() -> None:
            if target.dead or target.paused or node.dead or node.paused:
                self.at(self.now + DIAL_TIMEOUT_S, failed, node)
                return
            self._link += 1
            number = self._link
            hello = target.membership.me
            for one, other in ((node, target), (target, node)):
                one.links.pop(other.id, None)
            target.link_up(node.membership.me, number, None)
            node.link_up(hello, number, dial)

        self.at(self.now + 3 * LATENCY_S, met)
