"""Fakes for level stored: homes that answer when a test tells them to, and a client that sends frames by
hand."""

from __future__ import annotations

from typing import Any, cast

from mesh.dataplane.home import Home, HomeHooks
from mesh.dataplane.home_for_peers import Told
from mesh.wire import blocks
from mesh.wire.blocks import STORED, open_block
from mesh.wire.capabilities import SESSION
from mesh.wire.durable_frames import Durable, Kept
from mesh.wire.session_frames import AGAIN, Kind, data_head, decode
from mesh.wire.session_opening import client_id, hello, verified
from tests.mesh.dataplane.neighbourhood import FakeMesh, FakePipe, Node


class Copy:
    """One block that a home was asked to keep, and the callback for its answer."""

    def __init__(self, block: bytes, source: tuple[int, int], first: int, last: int, told: Told) -> None:
        self.block = block
        self.source = source
        self.first = first
        self.last = last
        self.told = told


class FakeHome(Home):
    """The home of a node. ``prompt``: it keeps blocks at once; otherwise when the test says so."""

    def __init__(self, mesh: FakeMesh, node: int, *, prompt: bool = True) -> None:
        super().__init__(f"node{node}", cast(HomeHooks, mesh.nodes[node]))
        self.mesh = mesh
        self.id = node
        self.prompt = prompt
        self.disk: dict[tuple[tuple[int, int], int], dict[int, bytes]] = {}
        """Blocks by their offsets, by publisher and first number."""
        self.asked: list[Copy] = []
        self.lowest: list[int] = []
        self.agains: list[bool] = []
        mesh.nodes[node].exchange.home = self

    def keep(
        self,
        block: bytes,
        publisher: int,
        boot: int,
        first: int,
        last: int,
        lowest: int,
        offset: int,
        told: Told,
        again: bool = False,
    ) -> None:
        assert type(block) is bytes and blocks.offset_of(block) == offset
        self.lowest.append(lowest)
        self.agains.append(again)
        self.asked.append(Copy(block, (publisher, boot), first, last, told))
        if self.prompt:
            self.answer()

    def answer(self, which: int = 0, how: str = "keep") -> None:
        """Answer a copy: keep it, refuse it as a full disk does, or fail with it written or not."""
        copy = self.asked.pop(which)
        offset = blocks.offset_of(copy.block)
        pieces = self.disk.get((copy.source, copy.first), {})
        if offset in pieces and how in ("keep", "full"):
            copy.told(self._said(pieces) if pieces[offset] == copy.block else Kept.CONFLICT, "")
            return
        if how in ("keep", "fail written"):
            pieces = self.disk.setdefault((copy.source, copy.first), pieces)
            pieces[offset] = copy.block
        if how == "keep":
            copy.told(self._said(pieces), "")
        elif how == "full":
            copy.told(Kept.REFUSED, f"the disk of node{self.id} is full")
        else:
            copy.told(Kept.DOUBT, f"the journal of node{self.id} failed")

    def say(self, verdict: Kept, sentence: str = "") -> None:
        """Answer the first copy with this verdict, whatever is on disk."""
        self.asked.pop(0).told(verdict, sentence)

    def has(self, source: tuple[int, int], first: int) -> bool:
        """True if all of a block, or large body, is on its disk."""
        pieces = self.disk.get((source, first))
        return pieces is not None and self._said(pieces) == Kept.KEPT

    @staticmethod
    def _said(pieces: dict[int, bytes]) -> Kept:
        opened = [open_block(piece) for piece in pieces.values()]
        if not opened[0].whole_size:
            return Kept.KEPT
        come = sum(len(each.bodies[0]) for each in opened)
        return Kept.KEPT if come == opened[0].whole_size else Kept.PART


class StoredClient:
    """A publisher of level stored that sends its frames by hand, and reads the broker's answers."""

    def __init__(self, mesh: FakeMesh, node: int = 1, *, secret: bytes = b"s" * 16) -> None:
        self.mesh = mesh
        self.secret = secret
        self.boot = 7
        self.source = (verified(client_id(secret)), self.boot)
        self.sealed: dict[int, list[bytes]] = {}
        """The blocks of each message or large body, by the first number."""
        self.waits_for: dict[int, None] = {}
        """First numbers of messages that were neither acknowledged nor refused."""
        self.next = 1
        self.connect(node)

    @property
    def prefix(self) -> bytes:
        return b"\x80\0\0\x01"

    @property
    def node(self) -> Node:
        return self.mesh.nodes[self.at]

    def connect(self, node: int) -> None:
        self.at = node
        self.pipe = FakePipe()
        self.acked: list[tuple[list[list[int]], list[str], list[str]]] = []
        """Ranges, absent brokers and homes of each ACK."""
        self.refused: list[tuple[list[list[int]], str]] = []
        self.pending: list[tuple[int, int, list[str], list[str]]] = []
        self.past: list[tuple[int, int, list[str]]] = []
        self.errors: list[str] = []
        self.credit = 0
        """Messages of credit given back since the beginning."""
        self.say(hello(SESSION, self.secret, self.boot, "publisher", 0.0))

    def lose(self) -> None:
        self.node.exchange.client_gone(self.pipe, self.mesh.now)
        self.mesh.pump()

    def say(self, *frames: bytes) -> None:
        said = [self.prefix + frame for frame in frames]
        assert not self.node.exchange.client_frames(self.pipe, said, self.mesh.now)
        self.read()

    def read(self) -> None:
        """Let everything happen that follows, and read the results."""
        self.mesh.pump()
        while frames := self.pipe.take():
            for frame in frames:
                self._heard(decode(frame, len(self.prefix)))
            self.node.exchange.pipe_writable(self.pipe, self.mesh.now)
            self.mesh.pump()

    def turn(self, seconds: float) -> None:
        self.mesh.turn(seconds)
        self.read()

    def _heard(self, frame: list[Any]) -> None:
        match frame:
            case [Kind.ACK, level, ranges, absent, homes]:
                assert level == STORED
                self.acked.append((ranges, absent, sorted(homes)))
                self._is_over(ranges)
            case [Kind.REFUSED, ranges, reason]:
                self.refused.append((ranges, reason))
                self._is_over(ranges)
            case [Durable.PENDING, first, last, kept, waiting]:
                self.pending.append((first, last, kept, waiting))
            case [Durable.PAST, first, last, homes]:
                self.past.append((first, last, homes))
                self._is_over([[first, last]])
            case [Kind.CREDIT, 0, messages, _]:
                self.credit += messages
            case [Kind.ERROR, _, sentence]:
                self.errors.append(sentence)

    def seal(self, topic: str, *bodies: bytes) -> int:
        """Seal messages of level stored as a block, or as the pieces of a large body. Returns its first
        number."""
        first, self.next = self.next, self.next + len(bodies)
        named = {"publisher": self.source[0], "boot": self.boot, "sequence": first, "level": STORED}
        if len(bodies) == 1 and len(bodies[0]) > blocks.SPLIT:
            self.sealed[first] = blocks.seal_pieces(topic.encode(), bodies[0], **named)
        else:
            self.sealed[first] = [blocks.seal(topic.encode(), bodies, **named)]
        return first

    def publish(self, topic: str, *bodies: bytes, behind: int | None = None) -> int:
        first = self.seal(topic, *bodies)
        self.send(first, behind=behind)
        return first

    def send(
        self, first: int, *, again: bool = False, behind: int | None = None, follows: bool = False
    ) -> None:
        self.say(*self.frames(first, again=again, behind=behind, follows=follows))

    def frames(
        self, first: int, *, again: bool = False, behind: int | None = None, follows: bool = False
    ) -> list[bytes]:
        """``behind`` replaces the distance to its lowest pending number."""
        self.waits_for[first] = None
        if behind is None:
            behind = first - min(self.waits_for)
        flags = AGAIN if again else 0
        return [data_head(0, flags, behind, follows, len(block)) + block for block in self.sealed[first]]

    def _is_over(self, ranges: list[list[int]]) -> None:
        for first, last in ranges:
            for number in range(first, last + 1):
                self.waits_for.pop(number, None)

    @property
    def window(self) -> Any:
        """The receive window of its session at the broker."""
        return next(
            session.ingress.window
            for session in self.node.exchange._sessions.all()
            if session.port.pipe is self.pipe
        )


def made(mesh: FakeMesh, home: int, name: str, *patterns: str) -> None:
    """A durable subscription was made at a node, and all nodes know it."""
    for node in mesh.nodes.values():
        node.exchange.home_changed(home, f"node{home}", "", {name: patterns})


def removed(mesh: FakeMesh, home: int, *names: str) -> None:
    for node in mesh.nodes.values():
        node.exchange.home_changed(home, f"node{home}", "", {}, names)
