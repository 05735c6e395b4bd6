"""Push/pull, pair, bus, star and pub/sub while peers come and go, queues fill, and frames are spoilt."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber, Subscriptions
from protocols.patterns.star import Star

from .world import MACHINE, RUN_MAX, Clock, Node, QueueNode, Wire, options, rng

ENDS = st.integers(0, 1)
ANY = st.integers(0, 11)
"""A node or wire, counted round."""


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
            self.nodes.append(node(made, self.clock, limit=3, weighed=weighed))
        self.received = {place: [] for place in range(len(self.nodes))}

    def body(self) -> bytes:
        self.number += 1
        return b"%08d" % self.number

    def node(self, which: int) -> QueueNode:
        return self.nodes[which % len(self.nodes)]

    def wire(self, which: int) -> Wire | None:
        alive = [wire for wire in self.wires if wire.alive]
        return alive[which % len(alive)] if alive else None

    # --- the world

    @rule(which=ANY)
    def join(self, which: int) -> None:
        first, second = self.partners[which % len(self.partners)]
        wire = Wire(self.nodes[first], self.nodes[second], f"wire {len(self.wires)}")
        if not wire.refused:
            self.wires.append(wire)

    @rule(which=ANY)
    def cut(self, which: int) -> None:
        if (wire := self.wire(which)) is not None:
            wire.cut()

    @rule(which=ANY, end=ENDS)
    def hold(self, which: int, end: int) -> None:
        if (wire := self.wire(which)) is not None:
            wire.ends[end].held = not wire.ends[end].held

    @rule(which=ANY, end=ENDS)
    def flush(self, which: int, end: int) -> None:
        if (wire := self.wire(which)) is not None and wire.ends[end].due:
            wire.ends[end].flush()

    @rule(which=ANY, end=ENDS, count=st.integers(1, RUN_MAX))
    def carry(self, which: int, end: int, count: int) -> None:
        if (wire := self.wire(which)) is not None:
            wire.carry(end, count)

    @precondition(lambda self: self.spoilt)
    @rule(which=ANY, end=ENDS, what=ANY)
    def spoil(self, which: int, end: int, what: int) -> None:
        if (wire := self.wire(which)) is not None:
            wire.inject(end, [self.spoilt[what % len(self.spoilt)]])

    # --- those who read and write

    @rule(which=ANY)
    def write(self, which: int) -> None:
        node = self.node(which)
        if not isinstance(node, Pulling):
            node.write(self.body(), woken=False)

    @rule(which=ANY, count=st.integers(1, 8))
    def write_many(self, which: int, count: int) -> None:
        node = self.node(which)
        if not isinstance(node, Pulling):
            bodies = [self.body() for _ in range(count)]
            if node.put_many(bodies) < count:
                node.writers.asleep += 1

    @rule(which=ANY, cancelled=st.booleans())
    def wake_writer(self, which: int, cancelled: bool) -> None:
        node = self.node(which)
        if node.writers.awake and cancelled:
            node.writers.cancel_one()
        elif node.writers.awake:
            node.write(self.body(), woken=True)

    @rule(which=ANY)
    def read(self, which: int) -> None:
        node = self.node(which)
        if not isinstance(node, Pushing):
            self.note(node, node.take(woken=False))

    @rule(which=ANY, cancelled=st.booleans())
    def wake_reader(self, which: int, cancelled: bool) -> None:
        node = self.node(which)
        if node.readers.awake and cancelled:
            node.readers.cancel_one()
        elif node.readers.awake:
            self.note(node, node.take(woken=True))

    def note(self, node: QueueNode, body: bytes | None) -> None:
        if body is not None and body.isdigit():
            self.received[self.nodes.index(node)].append(body)

    # --- what always holds

    @invariant()
    def every_message_is_somewhere(self) -> None:
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
        """Nothing to say: two wires between the same nodes carry everything twice."""


class StarMachine(BusMachine):
    nodes_of = ((Star, OnStar),) * 3
    spoilt = (b"", b"\0\0\0", b"\0\0\0\x02x", b"\0\0\0\x03x", b"\x01\0\0\x01x")

    def in_order(self, frames: list[bytes]) -> bool:
        """Of several ways to a node one may be slower; hops tell how far a message came."""
        return all(len(frame) >= 4 and frame[3] < 4 for frame in frames)


class PublishingNode(QueueNode):
    spreads = True
    out_drops = ("peer lost", "peer slow")
    in_drops = ("unsolicited",)


class SubscribingNode(Node):
    in_drops = ("inbox full", "unsubscribed")

    def __init__(self, pattern: Subscriber, clock: Clock) -> None:
        super().__init__(pattern, clock, limit=3)
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
        self.publisher = PublishingNode(Publisher(options(), rng()), self.clock, limit=3)
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
            assert all(len(lane.inbox) <= 4 for lane, _ in node.lanes)

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
    [PipelineMachine, PairMachine, PairWithHopsMachine, BusMachine, StarMachine, PubSubMachine],
)
def test_messages_are_conserved_and_nobody_waits_beside_work(machine: type[RuleBasedStateMachine]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=MACHINE)
