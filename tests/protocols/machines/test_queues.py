"""Push/pull, pair, bus, star and pub/sub while peers come and go, queues fill, and frames are spoilt."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber, Subscriptions
from protocols.patterns.star import Star

from .world import MACHINE, QUEUE, RUN_MAX, Clock, Node, QueueNode, Wire, options, rng

ENDS = st.integers(0, 1)
ANY = st.integers(0, 5)
"""A node or wire, counted modulo their number."""
WORLD = ("join", "cut", "hold", "flush", "carry", "spoil")
WRITING = ("write", "write many", "write woken", "write woken", "write cancelled")
READING = ("read", "read", "read all", "read woken", "read woken", "read cancelled")


class Pushing(QueueNode):
    out_drops = ("peer lost", "no peer", "peer slow")
    in_drops = ("unsolicited",)


class Pulling(QueueNode):
    stops_reading = True


class Paired(QueueNode):
    stops_reading = True
    out_drops = ("peer lost", "no peer", "peer slow")


class PairedWithHops(Paired):
    in_drops = ("over ttl", "malformed")


class OnBus(QueueNode):
    spreads = True
    out_drops = ("peer lost", "peer slow")
    in_drops = ("inbox full",)


class OnStar(OnBus):
    in_drops = ("inbox full", "over ttl", "malformed")

    def note_arrival(self, frames: list[bytes]) -> None:
        super().note_arrival(frames)
        ttl = self.pattern.options.ttl
        passed = sum(len(frame) >= 4 and frame[:3] == bytes(3) and frame[3] < ttl for frame in frames)
        self.offered += passed * (len(self.pipes) - 1)


class QueueMachine(RuleBasedStateMachine):
    """Nodes of one pattern. Bodies are numbers, so that order and repetition show."""

    nodes_of: ClassVar[tuple[tuple[type[Any], type[QueueNode]], ...]]
    partners: ClassVar[tuple[tuple[int, int], ...]]
    """Which nodes may be joined."""
    spoilt: ClassVar[tuple[bytes, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.nodes: list[QueueNode] = []
        self.wires: list[Wire] = []
        self.number = 0
        self.received: dict[int, list[bytes]] = {}

    @initialize(best_effort=st.booleans(), weighed=st.booleans())
    def begin(self, best_effort: bool, weighed: bool) -> None:
        for pattern, node in self.nodes_of:
            made = pattern(options(best_effort=best_effort, ttl=3), rng())
            self.nodes.append(node(made, self.clock, limit=QUEUE, weighed=weighed))
        self.received = {place: [] for place in range(len(self.nodes))}
        self.join(0)
        self.join(1)

    def body(self) -> bytes:
        self.number += 1
        return b"%08d" % self.number

    def wire(self, which: int) -> Wire | None:
        alive = [wire for wire in self.wires if wire.alive]
        return alive[which % len(alive)] if alive else None

    # --- events; several at a time, since each of them alone does little

    @rule(happenings=st.lists(st.tuples(st.sampled_from(WORLD), ANY, ENDS), min_size=1, max_size=6))
    def disturb(self, happenings: list[tuple[str, int, int]]) -> None:
        for what, which, end in happenings:
            if what == "join":
                self.join(which)
            elif (wire := self.wire(which)) is not None:
                self.happen(what, wire, end, which)
            self.check()

    def join(self, which: int) -> None:
        first, second = self.partners[which % len(self.partners)]
        wire = Wire(self.nodes[first], self.nodes[second], f"wire {len(self.wires)}")
        if not wire.refused:
            self.wires.append(wire)

    def happen(self, what: str, wire: Wire, end: int, which: int) -> None:
        if what == "cut":
            wire.cut()
        elif what == "hold":
            wire.ends[end].held = not wire.ends[end].held
        elif what == "flush":
            wire.ends[end].flush()
        elif what == "carry":
            wire.carry(end, 1 + which % RUN_MAX)
        elif self.spoilt:
            wire.inject(end, [self.spoilt[which % len(self.spoilt)]])

    def carry_everything(self) -> None:
        for wire in self.wires:
            for end in (0, 1):
                wire.ends[end].flush()
                wire.carry(end, RUN_MAX)

    @rule(deeds=st.lists(st.tuples(st.integers(0, 7), ANY), min_size=3, max_size=12))
    def people(self, deeds: list[tuple[int, int]]) -> None:
        for deed, which in deeds:
            if deed == 7:
                self.carry_everything()
            else:
                self.do(self.nodes[which % len(self.nodes)], deed)
            self.check()

    def do(self, node: QueueNode, deed: int) -> None:
        if isinstance(node, Pushing):
            self.write(node, WRITING[deed % len(WRITING)])
        elif isinstance(node, Pulling) or deed % 2:
            self.read(node, READING[deed % len(READING)])
        else:
            self.write(node, WRITING[deed % len(WRITING)])

    def write(self, node: QueueNode, what: str) -> None:
        if what == "write woken":
            node.write(self.body(), woken=node.writers.awake > 0)
        elif what == "write cancelled":
            node.writers.cancel_one()
        elif what == "write many":
            bodies = [self.body() for _ in range(2 * QUEUE + 1)]
            node.writers.asleep += node.put_many(bodies) < len(bodies)
        elif what == "write":
            node.write(self.body(), woken=False)

    def read(self, node: QueueNode, what: str) -> None:
        if what == "read woken":
            self.note(node, node.take(woken=node.readers.awake > 0))
        elif what == "read cancelled":
            node.readers.cancel_one()
        elif what == "read all":
            while node.lane.inbox:
                self.note(node, node.take(woken=False))
        elif what == "read":
            self.note(node, node.take(woken=False))

    def note(self, node: QueueNode, body: bytes | None) -> None:
        if body is not None and body.isdigit():
            self.received[self.nodes.index(node)].append(body)

    # --- invariants

    @invariant()
    def check(self) -> None:
        """Every message is somewhere, and nobody waits beside work."""
        for wire in self.wires:
            wire.tell_ends()
        for node in self.nodes:
            node.check()

    @invariant()
    def order_is_kept_on_every_wire(self) -> None:
        for wire in self.wires:
            for run in wire.carried:
                assert self.in_order(run), f"out of order: {run}"

    def in_order(self, frames: list[bytes]) -> bool:
        return frames == sorted(set(frames))

    def teardown(self) -> None:
        self.nobody_hears_twice()

    def nobody_hears_twice(self) -> None:
        for heard in self.received.values():
            assert len(heard) == len(set(heard))


class PipelineMachine(QueueMachine):
    nodes_of = ((Pusher, Pushing), (Pusher, Pushing), (Puller, Pulling), (Puller, Pulling))
    partners = ((0, 2), (0, 3), (1, 2), (1, 3))
    spoilt = ()

    @rule(which=ANY)
    def puller_speaks(self, which: int) -> None:
        if (wire := self.wire(which)) is not None:
            wire.inject(0, [b"unsolicited", b""])

    def nobody_hears_twice(self) -> None:
        everywhere = [body for heard in self.received.values() for body in heard]
        assert len(everywhere) == len(set(everywhere)), "a message went to two pullers"


class PairMachine(QueueMachine):
    nodes_of = ((Pair, Paired), (Pair, Paired), (Pair, Paired))
    partners = ((0, 1), (1, 2), (0, 2))

    @invariant()
    def nobody_has_two_partners(self) -> None:
        assert all(len(node.pipes) <= 1 for node in self.nodes)


class PairWithHopsMachine(PairMachine):
    nodes_of = ((PairWithHops, PairedWithHops),) * 3
    spoilt = (b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x03x", b"\0\0\0\x04x", b"\x01\0\0\x01x", b"\0\0\0\0x")


class BusMachine(QueueMachine):
    nodes_of = ((Bus, OnBus),) * 3
    partners = ((0, 1), (1, 2), (0, 2))

    def nobody_hears_twice(self) -> None:
        """Always true: two wires between the same nodes carry everything twice."""


class StarMachine(BusMachine):
    nodes_of = ((Star, OnStar),) * 3
    spoilt = (b"", b"\0\0\0", b"\0\0\0\x02x", b"\0\0\0\x03x", b"\x01\0\0\x01x")

    def in_order(self, frames: list[bytes]) -> bool:
        """If there are several ways to a node, one may be slower; hops show how far a message came."""
        return all(len(frame) >= 4 and frame[3] < 4 for frame in frames)


class PublishingNode(QueueNode):
    spreads = True
    out_drops = ("peer lost", "peer slow")
    in_drops = ("unsolicited",)


class SubscribingNode(Node):
    in_drops = ("inbox full", "unsubscribed")

    def __init__(self, pattern: Subscriber, clock: Clock) -> None:
        super().__init__(pattern, clock, limit=QUEUE)
        self.lanes: list[tuple[Subscriptions, set[bytes]]] = [(pattern.lane, set())]

    def note_arrival(self, frames: list[bytes]) -> None:
        for _, topics in self.lanes:
            self.arrived += sum(frame.startswith(tuple(topics)) for frame in frames)

    def waiting_in(self) -> int:
        return sum(len(lane.inbox) for lane, _ in self.lanes)


TOPICS = st.sampled_from([b"", b"a", b"ab", b"b", b"abc"])


class PubSubMachine(RuleBasedStateMachine):
    """One publisher, two subscribers with contexts."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.publisher = PublishingNode(Publisher(options(), rng()), self.clock, limit=QUEUE)
        self.subscribers = [
            SubscribingNode(Subscriber(options(prefer_new=prefer_new), rng()), self.clock)
            for prefer_new in (True, False)
        ]
        self.wires: list[Wire] = []
        self.number = 0

    @rule(which=ENDS)
    def join(self, which: int) -> None:
        self.wires.append(Wire(self.publisher, self.subscribers[which], "wire"))

    @rule(which=ANY, what=st.sampled_from(["cut", "hold", "flush", "speak"]))
    def disturb(self, which: int, what: str) -> None:
        alive = [wire for wire in self.wires if wire.alive]
        if not alive:
            return
        wire = alive[which % len(alive)]
        if what == "cut":
            wire.cut()
        elif what == "hold":
            wire.ends[0].held = not wire.ends[0].held
        elif what == "speak":
            wire.inject(0, [b"a subscriber speaks"])
            assert not wire.alive
        else:
            wire.ends[0].flush()

    @rule(which=ANY, count=st.integers(1, RUN_MAX))
    def carry(self, which: int, count: int) -> None:
        if self.wires:
            self.wires[which % len(self.wires)].carry(0, count)

    @rule(topics=st.lists(TOPICS, min_size=1, max_size=6), many=st.booleans())
    def publish(self, topics: list[bytes], many: bool) -> None:
        bodies = []
        for topic in topics:
            self.number += 1
            bodies.append(topic + b"%08d" % self.number)
        if many:
            assert self.publisher.put_many(bodies) == len(bodies), "a publisher never waits"
        else:
            assert all(self.publisher.put(body) for body in bodies)

    @rule()
    def carry_everything(self) -> None:
        for wire in self.wires:
            wire.ends[0].flush()
            wire.carry(0, RUN_MAX)

    @rule(which=ENDS)
    def open_context(self, which: int) -> None:
        node = self.subscribers[which]
        if len(node.lanes) < 4:
            lane = node.pattern.open_lane()
            assert isinstance(lane, Subscriptions)
            node.lanes.append((lane, set()))

    @rule(which=ENDS, place=ANY)
    def close_context(self, which: int, place: int) -> None:
        node = self.subscribers[which]
        if len(node.lanes) > 1:
            lane, _ = node.lanes.pop(1 + place % (len(node.lanes) - 1))
            node.arrived -= len(lane.inbox)  # its reader gave it up unread
            lane.close()

    @rule(which=ENDS, place=ANY, topic=TOPICS)
    def subscribe(self, which: int, place: int, topic: bytes) -> None:
        node = self.subscribers[which]
        lane, topics = node.lanes[place % len(node.lanes)]
        lane.subscribe(topic)
        topics.add(topic)

    @rule(which=ENDS, place=ANY, topic=TOPICS)
    def unsubscribe(self, which: int, place: int, topic: bytes) -> None:
        node = self.subscribers[which]
        lane, topics = node.lanes[place % len(node.lanes)]
        if topic in topics:
            lane.unsubscribe(topic)
            topics.remove(topic)

    @rule(which=ENDS, place=ANY)
    def read(self, which: int, place: int) -> None:
        node = self.subscribers[which]
        lane, topics = node.lanes[place % len(node.lanes)]
        body = lane.take()
        assert body is None or body.startswith(tuple(topics)), "an unwanted message was queued"
        node.read += body is not None

    @invariant()
    def every_message_is_somewhere(self) -> None:
        for wire in self.wires:
            wire.tell_ends()
        self.publisher.check()
        for node in self.subscribers:
            node.check()
            assert all(len(lane.inbox) <= QUEUE for lane, _ in node.lanes)

    @invariant()
    def what_is_queued_is_wanted_and_in_order_of_each_wire(self) -> None:
        for wire in self.wires:
            numbers = [frame[-8:] for frame in wire.carried[0]]
            assert numbers == sorted(set(numbers))
        for node in self.subscribers:
            for lane, topics in node.lanes:
                assert all(body.startswith(tuple(topics)) for body in lane.inbox)


@pytest.mark.parametrize(
    "machine",
    [
        PipelineMachine,
        PairMachine,
        PairWithHopsMachine,
        BusMachine,
        StarMachine,
        PubSubMachine,
    ],
)
def test_messages_are_conserved_and_no_reader_waits_beside_a_message(
    machine: type[RuleBasedStateMachine],
) -> None:
    run_state_machine_as_test(machine, settings=MACHINE)
