"""Peerings without brokers: real sockets and listeners in one process, and all their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mesh.cluster.durable_interest import HomeChanged
from mesh.cluster.membership import MemberRecord, NodeState, State
from mesh.cluster.peering import Peering
from mesh.cluster.remote_interest import Change
from mesh.environment import Environment
from mesh.storage import Storage
from mesh.wire.capabilities import Agreed
from mesh.wire.session_frames import Kind, encode
from protocols import Pipe, SharedListener
from tests.support import waiting

PERIOD_S = 0.2
DEADLINE_S = 0.1
PING, PONG = encode(Kind.PING, 0), encode(Kind.PONG, 0)


async def until(condition: Callable[[], object], what: str, timeout_s: float | None = None) -> None:
    """Wait until ``condition()`` is true; fail with ``what`` otherwise."""
    loop = asyncio.get_running_loop()
    timeout_s = timeout_s or waiting.patience_s
    deadline = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(f"never happened within {timeout_s} s: {what}")
        await asyncio.sleep(0.01)


@dataclass
class Known:
    """A peer of an earlier run."""

    url: str
    id: int = 0
    name: str = "of an earlier run"


@dataclass
class Who:
    """An identity that lives in memory."""

    id: int
    boot: int
    incarnation: int = 1
    peers: Sequence[Any] = ()


def environment() -> Environment:
    """An environment without a disk, since a peering needs none."""
    return replace(Environment.real(), storage=cast(Storage, None))


@dataclass
class Peer:
    """One broker's peering. It records the calls of its hooks."""

    who: Who
    name: str
    options: dict[str, Any]
    changes: list[tuple[str, str, str, str]] = field(default_factory=list)
    ups: list[tuple[int, Pipe]] = field(default_factory=list)
    downs: list[tuple[int, str]] = field(default_factory=list)
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    interests: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    barriers: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    durable: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    unknown_homes: tuple[str, ...] = ()
    durable_barriers: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    absent: tuple[str, ...] = ()
    separations: int = 0
    live: list[tuple[int, str]] = field(default_factory=list)
    surveys: list[tuple[int, int]] = field(default_factory=list)
    answers: list[tuple[int, int, float]] = field(default_factory=list)
    selves: list[MemberRecord] = field(default_factory=list)
    node_states: list[NodeState] = field(default_factory=list)
    routes_at: list[float] = field(default_factory=list)

    async def start(self, listen: str = "tcp://127.0.0.1:0") -> None:
        self.peering = Peering(
            identity=self.who,
            name=self.name,
            hooks=self,
            admit=lambda pipe: None,
            **{"mesh": "test", "period_s": PERIOD_S, "deadline_s": DEADLINE_S, **self.options},
        )
        self.listener = SharedListener(listen)
        for socket in self.peering.sockets:
            await socket.listen(self.listener)
        await self.listener.start()
        self.peering.durable.set_own({})
        await self.peering.start([self.listener.url], [self.listener.url])

    def set_interest(self, patterns: Iterable[tuple[str, int]]) -> int:
        """Want exactly these."""
        wanted = dict(patterns)
        removed = [pattern for pattern, _ in self.peering.interest.own if pattern not in wanted]
        return self.peering.change_interest(wanted.items(), removed)

    async def crash(self) -> None:
        """End without a goodbye, as a killed process does."""
        await self.listener.aclose()
        for socket in self.peering.sockets:
            for pipe in socket.pipes:
                pipe.connection.abort()
        await self.peering.aclose()

    async def leave(self) -> None:
        await self.listener.aclose()
        await self.peering.leave()
        await self.peering.aclose()

    @property
    def url(self) -> str:
        return self.peering.url

    def states(self) -> dict[str, str]:
        return {view.record.name: str(view.record.state) for view in self.peering.view.members()}

    def linked(self) -> set[int]:
        return {link.peer for link in self.peering.view.links()}

    # --- PeeringHooks

    def member_changed(self, record: MemberRecord, from_state: State, reason: str, via: int) -> None:
        self.changes.append((record.name, str(from_state), str(record.state), reason))

    def live_changed(self, live: list[tuple[int, str]]) -> None:
        self.live = live

    def link_up(self, member: int, boot: int, name: str, pipe: Pipe, rtt_s: float, agreed: Agreed) -> None:
        self.ups.append((member, pipe))

    def link_down(self, member: int, reason: str, dialed: bool) -> None:
        self.downs.append((member, reason))

    def link_frames(self, member: int, frames: list[bytes]) -> None:
        for frame in frames:
            if frame == PING:  # as a session does
                self.peering.link_manager.up[member].bus.send(PONG)
            elif frame != PONG:
                self.frames.append((member, frame))

    def link_writable(self, pipe: Pipe) -> None: ...

    def interest_changed(self, member: int, change: Change) -> None:
        held = dict(self.interests.get(member, ()))
        for pattern in change.removed:
            del held[pattern]
        held.update(change.added)
        self.interests[member] = list(held.items())

    def absent_changed(self, names: tuple[str, ...]) -> None:
        self.absent = names

    def separation_over(self) -> None:
        self.separations += 1

    def barrier_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        self.barriers.append((version, unreached))

    def home_changed(self, change: HomeChanged) -> None:
        held = self.durable.setdefault(change.home, {})
        for name in change.removed:
            del held[name]
        held.update(change.added)

    def unknown_homes_changed(self, names: tuple[str, ...]) -> None:
        self.unknown_homes = names

    def durable_unsaved(self) -> None:
        self.peering.durable.saved(self.peering.durable.versions())

    def durable_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        self.durable_barriers.append((version, unreached))

    def heard_survey(self, member: int, round: int, now: float) -> None:
        self.surveys.append((member, round))

    def heard_answer(self, member: int, round: int, rtt_s: float, now: float) -> None:
        self.answers.append((member, round, rtt_s))

    def self_changed(self, record: MemberRecord) -> None:
        self.selves.append(record)
        self.who.incarnation = record.incarnation

    def state_changed(self, state: NodeState) -> None:
        self.node_states.append(state)

    def may_route(self) -> None:
        self.routes_at.append(asyncio.get_running_loop().time())


class Peers:
    """Peers that end with the ``async with`` block."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.all: list[Peer] = []

    async def __aenter__(self) -> Peers:
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def peer(
        self,
        name: str,
        *join: Peer | str,
        who: Who | None = None,
        listen: str = "tcp://127.0.0.1:0",
        **options: Any,
    ) -> Peer:
        """Start one that joins others."""
        urls = [peer if isinstance(peer, str) else peer.url for peer in join]
        given = environment()
        who = who or Who(id=given.rng.getrandbits(62) + 1, boot=given.rng.getrandbits(62) + 1)
        peer = Peer(who, name, {"environment": given, "join": urls, **options})
        await peer.start(listen)
        self._stack.push_async_callback(peer.peering.aclose)
        self._stack.push_async_callback(peer.listener.aclose)
        self.all.append(peer)
        return peer

    async def mesh(self, *names: str, **options: Any) -> list[Peer]:
        """Start peers that all join the first, and wait until all are linked to all."""
        peers: list[Peer] = []
        for name in names:
            peers.append(await self.peer(name, *peers[:1], **options))
        await whole(peers)
        return peers


def is_whole(peers: Sequence[Peer]) -> bool:
    """All see each other alive and have a link to each other, and know each other's interest."""
    names = {peer.name for peer in peers}
    ids = {peer.who.id for peer in peers}
    return all(
        {name: state for name, state in peer.states().items() if name in names}
        == dict.fromkeys(names, "alive")
        and peer.linked() >= ids - {peer.who.id}
        and not peer.peering.interest.absent()
        and peer.peering.state is NodeState.READY
        for peer in peers
    )


async def whole(peers: Sequence[Peer], timeout_s: float | None = None) -> None:
    await until(lambda: is_whole(peers), f"a full mesh of {[peer.name for peer in peers]}", timeout_s)
