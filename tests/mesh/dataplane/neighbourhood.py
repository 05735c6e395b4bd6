"""Fakes for the data plane: pipes that only collect, brokers that learn of each other at once, clients
without I/O.

`pump` carries everything in flight until nothing is left. Time is a number that the test advances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.access import Policy
from mesh.access.door import Door, Guest, Origin
from mesh.clients.feeds import Feed
from mesh.clients.moving_conversation import MovingConversation
from mesh.clients.questions import Question
from mesh.clients.tickets import Waitable
from mesh.dataplane.exchange import Exchange
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.ports import Port, Turn
from mesh.dataplane.session_control import messages_behind_backtrace
from mesh.errors import PeerError
from mesh.wire.session_frames import Role
from protocols.pipe import CONTROL_MAX

STILL_S: Final = 1000.0


class FakePipe:
    """Collects what is queued, as `protocols.pipe.Pipe` does, up to ``limit`` data frames."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.control: list[bytes] = []
        self.data: list[bytes] = []
        self.closed = ""
        self.remote_address = "tcp://127.0.0.1:50000"
        self.asked = False
        """True if somebody wants to know when the data is taken. `FakeMesh.pump` reports it in any case."""

    def send_many(self, frames: Sequence[bytes]) -> int:
        taken = min(len(frames), self.limit - len(self.data)) if not self.closed else 0
        self.data += frames[:taken]
        return taken

    def send_control(self, frame: bytes) -> None:
        if len(self.control) >= CONTROL_MAX:
            self.closed = self.closed or f"{CONTROL_MAX} control frames unread"
        if not self.closed:
            self.control.append(frame)

    @property
    def queued(self) -> int:
        return len(self.control) + len(self.data)

    @property
    def unsent(self) -> int:
        return len(self.data)

    def notify_writable(self) -> None:
        self.asked = True

    def flush(self) -> None:
        pass

    def close(self, reason: str, *, flush: bool = False) -> None:
        self.closed = self.closed or reason

    def take(self) -> list[bytes]:
        frames = self.control + self.data
        self.control, self.data = [], []
        return frames


def client_port(pipe: FakePipe | None = None, bytes_max: int = 1 << 30) -> Port:
    """The port of a client's pipe, with its own turn."""
    return Port(Turn(), pipe or FakePipe(), bytes_max, messages_behind_backtrace)


def stranger() -> Guest:
    """An anonymous client that may do everything."""
    return Door(Policy(anonymous="everywhere")).unproven(Origin())


class Node:
    """A broker reduced to its data plane; the interest of every other node of its mesh reaches it at once."""

    def __init__(self, mesh: FakeMesh, id: int, options: ExchangeOptions | None = None) -> None:
        self.mesh = mesh
        self.id = id
        self.name = f"node{id}"
        self.version = 0
        self.told = 0
        self.hold_barrier = False
        self.has_work = False
        self.stood_still_times = 0
        self.must_hear = True
        """True if it must hear from others before it routes again after it hung."""
        self.exchange = Exchange(
            id=id, boot=100 + id, name=self.name, mesh="test", hooks=self, options=options, still_s=STILL_S
        )

    def local_interest_changed(self, added: list[tuple[str, int]], removed: list[str]) -> int:
        self.version += 1
        held = dict(self.mesh.interest.get(self.id, ()))
        for pattern in removed:
            del held[pattern]
        held.update(added)
        self.mesh.interest[self.id] = list(held.items())
        for other in self.mesh.nodes.values():
            if other is not self:
                other.exchange.change_peer_interest(self.id, added, removed)
        return self.version

    def work_pending(self) -> None:
        self.has_work = True

    def stood_still(self) -> bool:
        self.stood_still_times += 1
        return self.must_hear


class FakeClient:
    """A conversation and its pipe to a node."""

    def __init__(
        self, mesh: FakeMesh, node: Node, name: str, prefix: bytes, keepalive_s: float = 0.0
    ) -> None:
        self.mesh = mesh
        self.node = node
        self.conversation = MovingConversation(
            secret=prefix * 4,
            boot=7,
            name=name,
            prefix=prefix,
            keepalive_s=keepalive_s,
            now=mesh.now,
        )
        self.pipe = FakePipe()
        self.woken: list[Waitable] = []
        self.ended: PeerError | None = None
        self.consuming = True
        """True if it reads what its connection brings."""
        self.received = 0
        """Messages that its connections brought, including questions."""
        self.connect(node)

    def connect(self, node: Node) -> None:
        self.node = node
        self.pipe = FakePipe()
        self.conversation.connected(self.mesh.now)
        self.mesh.clients.append(self)
        self.mesh.pump()

    def lose(self) -> None:
        """The connection breaks; frames in flight are lost."""
        self.mesh.clients.remove(self)
        self.woken += self.conversation.disconnected()
        self.node.exchange.client_gone(self.pipe, self.mesh.now)
        self.mesh.pump()

    def subscribe(self, *patterns: str, role: int = Role.LISTEN, window: int = 2048) -> Feed:
        feed = self.conversation.subscribe(patterns, role, window, 1 << 20)
        self.mesh.pump()
        return feed

    def publish(self, topic: str, *bodies: bytes, level: int = 0, headers: bytes = b"") -> object:
        """Publish and flush. Returns the ticket (level accepted)."""
        ticket, _ = self.conversation.add_many(topic, list(bodies), level, headers)
        self.conversation.flush()
        self.mesh.pump()
        return ticket

    def take(self, feed: Feed) -> list[tuple[str, bytes]]:
        """All messages that came for a subscription. Gives their credit back."""
        got: list[tuple[str, bytes]] = []
        while True:
            self.mesh.pump()
            run = self.conversation.next_run(feed, self.mesh.now)
            if run is None:
                self.mesh.pump()
                if not feed.runs:
                    return got
                continue
            got += zip(run.topics, run.bodies, strict=True)

    def ask(self, topic: str, body: bytes = b"", *, survey: bool = False, timeout_s: float = 5.0) -> Question:
        question = self.conversation.ask(
            topic, body, b"", survey=survey, timeout_s=timeout_s, now=self.mesh.now
        )
        self.mesh.pump()
        return question


class FakeMesh:
    """Nodes, links and clients in one process and no time."""

    def __init__(self, nodes: int = 1, options: ExchangeOptions | None = None) -> None:
        self.now = 0.0
        self.counts = True
        """Links have the capability to report what was received."""
        self.durable = True
        """Links have the capability to lead to homes of durable subscriptions."""
        self.interest: dict[int, list[tuple[str, int]]] = {}
        self.nodes: dict[int, Node] = {}
        self.links: dict[tuple[int, int], FakePipe] = {}
        self.clients: list[FakeClient] = []
        self.held: set[tuple[int, int]] = set()
        """Links whose pipes are not written."""
        self.slow: set[tuple[int, int]] = set()
        """Links whose pipes are written, but whose frames do not arrive."""
        self.under_way: dict[tuple[int, int], list[bytes]] = {}
        for id in range(1, nodes + 1):
            self.nodes[id] = Node(self, id, options)
        for a in self.nodes:
            for b in self.nodes:
                if a < b:
                    self.link(a, b)
        self.tell_members()

    def tell_members(self, *gone: int) -> None:
        for node in self.nodes.values():
            live = [(o.id, o.name) for o in self.nodes.values() if o is not node and o.id not in gone]
            node.exchange.members_changed(live)
            for id, _ in live:
                node.exchange.change_peer_interest(id, self.interest.get(id, []))

    def link(self, a: int, b: int) -> None:
        self.links[a, b], self.links[b, a] = FakePipe(), FakePipe()
        self.nodes[a].exchange.peer_up(
            b,
            self.nodes[b].name,
            self.links[a, b],
            0.001 * b,
            self.now,
            counts=self.counts,
            durable=self.durable,
        )
        self.nodes[b].exchange.peer_up(
            a,
            self.nodes[a].name,
            self.links[b, a],
            0.001 * a,
            self.now,
            counts=self.counts,
            durable=self.durable,
        )

    def unlink(self, a: int, b: int) -> None:
        """The link breaks; frames in flight are lost."""
        for ends in ((a, b), (b, a)):
            del self.links[ends]
            self.under_way.pop(ends, None)
        self.nodes[a].exchange.peer_down(b, self.now)
        self.nodes[b].exchange.peer_down(a, self.now)
        self.pump()

    def stand_still(self, a: int, b: int, arrives: float) -> None:
        """Broker ``b`` hung, so that ``a`` believed it dead and disconnected. Then ``b`` continues: it
        reads that share of the frames in flight to it and in the pipe, then the end of the link."""
        pipe = self.links.pop((a, b))
        del self.links[b, a]
        self.under_way.pop((b, a), None)
        self.nodes[a].exchange.peer_down(b, self.now)
        self.tell_members(b)
        frames = self.under_way.pop((a, b), []) + pipe.take()
        self.nodes[b].exchange.peer_frames(a, frames[: round(arrives * len(frames))], self.now)
        self.nodes[b].exchange.peer_down(a, self.now)
        self.pump()

    def client(self, node: int = 1, name: str = "", **options: float) -> FakeClient:
        prefix = (0x80000000 | (len(self.clients) + 1 + node * 100)).to_bytes(4, "big")
        return FakeClient(self, self.nodes[node], name or f"client{len(self.clients) + 1}", prefix, **options)

    def pump(self) -> None:
        """Carry frames until all pipes are empty. ``held`` links keep theirs; frames on ``slow`` ones do not
        arrive."""
        moved = True
        while moved:
            moved = False
            for client in list(self.clients):
                if client.conversation.gathered:
                    client.conversation.flush()
                out = client.conversation.take_control() + client.conversation.take_frames()
                if out and not client.pipe.closed:
                    moved = True
                    exchange = client.node.exchange
                    while out:
                        strays = exchange.client_frames(client.pipe, out, self.now)
                        assert not strays
                        out, exchange.reading.left = exchange.reading.left, []
                back = client.pipe.take() if client.consuming else []
                if back:
                    moved = True
                    self._deliver(client, back)
                    client.node.exchange.pipe_writable(client.pipe, self.now)
            for node in self.nodes.values():
                if node.has_work:
                    node.has_work, moved = False, True
                    node.exchange.work(self.now)
                if node.told < node.version and not node.hold_barrier:
                    node.told = node.version
                    node.exchange.barrier_reached(node.version)
                    moved = True
            for (a, b), pipe in list(self.links.items()):
                frames = pipe.take() if (a, b) not in self.held else []
                if frames:
                    moved = True
                    self.under_way.setdefault((a, b), []).extend(frames)
                    self.nodes[a].exchange.pipe_writable(pipe, self.now)
                if (a, b) not in self.slow and self.under_way.get((a, b)):
                    moved = True
                    self.nodes[b].exchange.peer_frames(a, self.under_way.pop((a, b)), self.now)

    def _deliver(self, client: FakeClient, frames: list[bytes]) -> None:
        client.received += sum(map(messages_behind_backtrace, frames))
        try:
            client.woken += client.conversation.received(frames, self.now)
        except PeerError as error:
            client.ended = error

    def turn(self, seconds: float) -> None:
        """Let time pass, in steps short enough for every machine."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.25)
            for node in self.nodes.values():
                node.exchange.tick(self.now)
            self.pump()
