"""Level stored under all kinds of events: homes, links, sessions and entry brokers that come and go.

Homes answer in any order, or never. These invariants must hold. Nothing is acknowledged unless each of its
homes has it on disk. A refused message is at no home. All credit returns, once. Live subscribers get each
message at most once. When all works again, everything that a publisher waits for is acknowledged.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.clients.feeds import Feed
from mesh.dataplane.options import DeliveryOptions, ExchangeOptions
from mesh.wire import blocks
from tests.mesh.dataplane.neighbourhood import FakeClient, FakeMesh, Node
from tests.mesh.dataplane.storing import FakeHome, StoredClient, made

ENTRIES = (1, 2)
"""Nodes that die and start again. The second is also a home."""
HOMES = (2, 3, 4)
KEPT_AT = {"a": {2}, "b": {3}, "c": {2, 3}, "d": {3, 4}, "e": {2, 3, 4}}
OPTIONS = ExchangeOptions(
    session_messages=30,
    session_bytes=20_000,
    link_messages=20,
    link_bytes=20_000,
    link_delivery=DeliveryOptions(messages_max=15, bytes_max=10_000),
)
SPLIT = 1000
"""Bytes of a piece here."""

LINKS = st.sampled_from([(a, b) for a in range(1, 5) for b in range(a + 1, 5)])
WHICH = st.integers(0, 99)


class NothingSeen:
    """Replaces a client's protection against repetition, which would hide the broker's."""

    forgotten = 0

    def add(self, publisher: int, boot: int, sequence: int, count: int) -> bool:
        return True


class Storing(RuleBasedStateMachine):
    @initialize(node=st.sampled_from(ENTRIES))
    def begin(self, node: int) -> None:
        self.split = patch.object(blocks, "SPLIT", SPLIT)
        self.split.start()
        self.mesh = FakeMesh(4, OPTIONS)
        self.homes = {home: FakeHome(self.mesh, home, prompt=False) for home in HOMES}
        for home in HOMES:
            made(self.mesh, home, "mail", *(topic for topic in KEPT_AT if home in KEPT_AT[topic]))
        self.readers: list[tuple[FakeClient, Feed]] = []
        for number in (3, 4, 1):
            reader = self.mesh.client(number)
            feed = reader.subscribe("#", window=100_000)
            feed.seen = NothingSeen()  # type: ignore[assignment]
            self.readers.append((reader, feed))
        self.client = StoredClient(self.mesh, node)
        self.topic: dict[int, str] = {}
        self.bodies: dict[int, list[bytes]] = {}
        self.sent: dict[int, int] = {}
        """How often each block was sent."""
        self.refused: dict[int, None] = {}
        """Blocks that were sent once and refused."""
        self.got: dict[tuple[int, int, bytes], int] = {}
        """How often each message came to a reader, by its node."""
        self.judged = 0, 0

    # --- the publisher

    @precondition(lambda self: self.client.window.messages_left > 0 and self.client.window.bytes_left > 0)
    @rule(topic=st.sampled_from("abcdez"), count=st.integers(1, 4), large=st.booleans())
    def publish(self, topic: str, count: int, large: bool) -> None:
        number = self.client.next
        if large and count == 1:
            bodies = [b"%d " % number + bytes(2500)]
        else:
            bodies = [b"%d" % (number + index) for index in range(count)]
        first = self.client.seal(topic, *bodies)
        self.topic[first], self.bodies[first] = topic, bodies
        self.sent[first] = 0
        self.send(first)

    def send(self, first: int) -> None:
        """Send as far as its credit reaches."""
        client = self.client
        again = self.sent[first] > 0
        self.sent[first] += 1
        for frame in client.frames(first, again=again):
            window = client.window
            if window.messages_left <= 0 or window.bytes_left <= 0:
                return  # the rest of a large body comes with the next retry
            client.say(frame)
        self.judge()

    @precondition(lambda self: self.client.waits_for)
    @rule(which=WHICH)
    def retry(self, which: int) -> None:
        waits_for = list(self.client.waits_for)
        self.send(waits_for[which % len(waits_for)])

    @precondition(lambda self: self.client.waits_for)
    @rule(which=WHICH)
    def time_out(self, which: int) -> None:
        waits_for = list(self.client.waits_for)
        del self.client.waits_for[waits_for[which % len(waits_for)]]

    @rule(node=st.sampled_from(ENTRIES), retries=st.booleans())
    def the_session_is_lost(self, node: int, retries: bool) -> None:
        self.client.lose()
        self.judge()
        self.come_back(node, retries)

    def come_back(self, node: int, retries: bool) -> None:
        self.client.connect(node)
        self.judged = 0, 0
        for first in list(self.client.waits_for) if retries else ():
            if first in self.client.waits_for:
                self.send(first)

    # --- homes

    @precondition(lambda self: any(home.asked for home in self.homes.values()))
    @rule(which=WHICH, how=st.sampled_from(["keep", "keep", "keep", "full", "fail", "fail written"]))
    def a_home_answers(self, which: int, how: str) -> None:
        asking = [home for home in self.homes.values() if home.asked]
        home = asking[which % len(asking)]
        home.answer(which % len(home.asked), how)
        self.client.read()
        self.judge()

    @rule(node=st.sampled_from((3, 4)))
    def a_home_dies_and_starts_again(self, node: int) -> None:
        """Blocks that it was asked to keep and has not answered are gone; blocks on disk stay."""
        self.homes[node].asked.clear()
        for other in self.mesh.nodes:
            if other != node:
                self.cut(min(node, other), max(node, other))
        for other in self.mesh.nodes:
            if other != node:
                self.mesh.link(min(node, other), max(node, other))
        self.client.read()
        self.judge()

    # --- links and entry brokers

    def cut(self, a: int, b: int) -> None:
        for ends in ((a, b), (b, a)):
            self.mesh.held.discard(ends)
            self.mesh.slow.discard(ends)
        if (a, b) in self.mesh.links:
            self.mesh.unlink(a, b)

    @rule(ends=LINKS)
    def a_link_ends(self, ends: tuple[int, int]) -> None:
        self.cut(*ends)

    @rule(ends=LINKS)
    def a_link_is_made_or_replaced(self, ends: tuple[int, int]) -> None:
        self.cut(*ends)
        self.mesh.link(*ends)
        self.client.read()
        self.judge()

    @rule(ends=LINKS, back=st.booleans(), how=st.sampled_from(["held", "slow", "free"]))
    def a_link_is_slow(self, ends: tuple[int, int], back: bool, how: str) -> None:
        if back:
            ends = ends[1], ends[0]
        self.mesh.held.discard(ends)
        self.mesh.slow.discard(ends)
        if how != "free":
            getattr(self.mesh, how).add(ends)
        self.client.read()
        self.judge()

    @rule(node=st.sampled_from(ENTRIES), back_at=st.sampled_from(ENTRIES))
    def an_entry_broker_dies_and_starts_again(self, node: int, back_at: int) -> None:
        mesh = self.mesh
        for other in mesh.nodes:
            if other != node:
                self.cut(min(node, other), max(node, other))
        for reader, feed in list(self.readers):
            if reader.node.id == node:
                self.take(reader, feed)
                self.readers.remove((reader, feed))
                mesh.clients.remove(reader)
        mesh.interest.pop(node, None)
        mesh.nodes[node] = Node(mesh, node, OPTIONS)
        if node in self.homes:
            self.homes[node].asked.clear()
            mesh.nodes[node].exchange.home = self.homes[node]
        mesh.tell_members()
        for home in HOMES:
            made(mesh, home, "mail", *(topic for topic in KEPT_AT if home in KEPT_AT[topic]))
        for other in mesh.nodes:
            if other != node:
                mesh.link(min(node, other), max(node, other))
        mesh.pump()
        if self.client.at == node:
            self.come_back(back_at, True)

    @rule(seconds=st.sampled_from([2.0, 24.0, 280.0]))
    def time_passes(self, seconds: float) -> None:
        self.turn(seconds)
        self.judge()

    def turn(self, seconds: float) -> None:
        """In long steps."""
        for _ in range(4):
            self.mesh.now += seconds / 4
            for node in self.mesh.nodes.values():
                node.exchange.tick(self.mesh.now)
            self.client.read()

    # --- invariants

    def judge(self) -> None:
        """Check everything that the publisher was told since the last call."""
        acked, refused = self.judged
        assert not self.client.errors
        for ranges, _, homes in self.client.acked[acked:]:
            for first in self.firsts(ranges):
                kept_at = KEPT_AT[self.topic[first]]
                assert homes == [f"node{home}" for home in sorted(kept_at)]
                for home in kept_at:
                    assert self.homes[home].has(self.client.source, first), (first, home)
                assert first not in self.refused
        for ranges, _ in self.client.refused[refused:]:
            for first in self.firsts(ranges):
                if self.sent[first] == 1:
                    self.refused[first] = None
        self.judged = len(self.client.acked), len(self.client.refused)

    def firsts(self, ranges: list[list[int]]) -> list[int]:
        return [n for first, last in ranges for n in range(first, last + 1) if n in self.topic]

    def take(self, reader: FakeClient, feed: Feed) -> None:
        for topic, body in reader.take(feed):
            if len(body) < SPLIT or reader.node.id in KEPT_AT[topic]:
                key = (id(reader), reader.node.id, body)
                self.got[key] = self.got.get(key, 0) + 1
            # otherwise repeated pieces go to brokers that keep none; their clients detect them

    @invariant()
    def no_credit_comes_back_twice(self) -> None:
        if hasattr(self, "client"):
            window = self.client.window
            assert window.messages_left + window.owed_messages <= window.messages
            assert window.bytes_left + window.owed_bytes <= window.bytes

    def teardown(self) -> None:
        if not hasattr(self, "mesh"):
            return
        try:
            self.all_is_well_again()
        finally:
            self.split.stop()

    def all_is_well_again(self) -> None:
        mesh, client = self.mesh, self.client
        mesh.held.clear()
        mesh.slow.clear()
        for a in mesh.nodes:
            for b in mesh.nodes:
                if a < b and (a, b) not in mesh.links:
                    mesh.link(a, b)
        for _ in range(30):
            for home in self.homes.values():
                while home.asked:
                    home.answer()
            self.turn(5.0)
            self.judge()
            for first in list(
                client.waits_for
            ):  # some were not sent in this session; pieces may be forgotten
                if first in client.waits_for:
                    self.send(first)
            if not client.waits_for:
                break
        assert not client.waits_for
        for home in self.homes.values():
            while home.asked:
                home.answer()
        self.turn(2.0)
        if client.node.exchange.statistics().storing == 0:
            window = client.window
            assert window.messages_left + window.owed_messages == window.messages
            assert window.bytes_left + window.owed_bytes == window.bytes
        client.lose()
        self.turn(130.0)
        self.turn(2.0)
        for node in mesh.nodes.values():
            assert node.exchange.statistics().storing == 0
        for first in self.refused:
            for home in self.homes.values():
                assert not home.has(client.source, first), "refused, and stored"
        for reader, feed in self.readers:
            self.take(reader, feed)
        assert all(count == 1 for count in self.got.values()), self.got


Storing.TestCase.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
TestStoring = Storing.TestCase


@pytest.mark.long
class TestStoringAtLength(TestStoring):
    settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
