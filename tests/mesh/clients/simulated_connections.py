"""A `BlockingClient` without sockets, threads and clocks: its waits advance the time of a `FakeMesh`.

Everything of a blocking client runs but its connection, dialer, lock and clock; `FakeWire`, `FakeDialer` and
`Lock` replace them. While a client polls, waits for news or dials, time passes: the mesh works, and planned
events (`Broker.plan`) happen. There is one thread only; interactions of threads are tested over real sockets
(`test_blocking_session.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TypeVar

import pytest

from mesh.clients import (
    blocking_client,
    blocking_publishing_soon,
    blocking_session,
    blocking_subscription,
)
from protocols.errors import ConnectionRefused
from tests.mesh.dataplane.neighbourhood import FakeMesh, FakePipe, Node

STEP_S = 0.05
T = TypeVar("T")


class Broker:
    """A node at an address, and the events of connections there."""

    def __init__(self, mesh: FakeMesh, node: Node) -> None:
        self.mesh = mesh
        self.node = node
        self.wires: list[FakeWire] = []
        self.away = ""
        """How a dial fails: ``refused`` at once, or ``silent`` until its time is over."""
        self.reads = True
        """True if the broker reads; otherwise frames wait in kernels, which take two of them."""
        self._plans: list[tuple[float, Callable[[], None]]] = []

    def plan(self, in_s: float, act: Callable[[], None]) -> None:
        self._plans.append((self.mesh.now + in_s, act))

    def carry(self) -> None:
        """Move frames until nothing moves."""
        moved = True
        while moved:
            moved = False
            for wire in list(self.wires):
                moved |= wire.carry(self.node)
            self.mesh.pump()
            moved |= any(wire.pipe.queued for wire in self.wires)

    def pass_time(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; True if the condition came true in that time."""
        end = self.mesh.now + seconds
        while True:
            self.carry()
            if until():
                return True
            if self.mesh.now >= end:
                return False
            due = min((at for at, _ in self._plans), default=end)
            self.mesh.turn(max(0.0, min(STEP_S, end - self.mesh.now, due - self.mesh.now)))
            for plan in [each for each in self._plans if each[0] <= self.mesh.now]:
                self._plans.remove(plan)
                plan[1]()

    def cut(self, *, read: bool, answered: bool) -> None:
        """Break all connections. The flags say whether frames in flight were read, and whether their answers
        arrived."""
        for wire in list(self.wires):
            if read:
                wire.carry(self.node)
                self.mesh.pump()
            if read and answered:
                wire.carry(self.node)
            else:
                wire.inbox.clear()
            wire.broken = True
            wire.end()


class FakeWire:
    """Replaces a `BlockingConnection`."""

    KERNEL_FRAMES = 2

    def __init__(self, broker: Broker) -> None:
        self.pipe = FakePipe()
        self.inbox: list[bytes] = []
        self.broken = False
        self.closed = False
        self.watchers = 0
        self._broker = broker
        self._out: list[bytes] = []
        self._refused: list[bytes] = []
        broker.wires.append(self)

    @property
    def unsent(self) -> list[bytes]:
        """Frames that the kernel has not taken; of a broken connection, those that it never will."""
        waiting = [] if self._broker.reads and not self.broken else self._out[self.KERNEL_FRAMES :]
        return waiting + self._refused

    def send(self, frames: list[bytes]) -> None:
        if self.broken:
            self._refused += frames
            raise ConnectionResetError("cut")
        self._out += frames

    def receive(self) -> list[bytes]:
        """Return a part at a time, as reads of a socket may end anywhere."""
        if self.inbox:
            return [self.inbox.pop(0)]
        if self.broken:
            raise ConnectionResetError("cut")
        return []

    def carry(self, node: Node) -> bool:
        if self.broken or not self._broker.reads:
            return False
        out, self._out = self._out, []
        if out:
            node.exchange.client_frames(self.pipe, out, self._broker.mesh.now)
        came = self.pipe.take()
        self.inbox += came
        if came:
            node.exchange.pipe_writable(self.pipe, self._broker.mesh.now)
        return bool(out or came)

    def ready(self) -> bool:
        self._broker.carry()
        return bool(self.inbox) or self.broken

    def poll(self, events: int, beside: FakeWire | None = None) -> Callable[[float], bool]:
        assert beside is None, "there is one broker"
        return self._poll

    def _poll(self, milliseconds: float) -> bool:
        if self.closed:
            raise ValueError("file descriptor cannot be a negative integer (-1)")
        waits_to_write = bool(self.unsent)
        return self._broker.pass_time(
            milliseconds / 1000,
            lambda: bool(self.inbox) or self.broken or (waits_to_write and not self.unsent),
        )

    def unwatched(self) -> None:
        pass

    def close(self) -> None:
        """Close; frames that the kernel took still go out."""
        self.closed = True
        self.carry(self._broker.node)
        self.end()

    def end(self) -> None:
        if self in self._broker.wires:
            self._broker.wires.remove(self)
            self._broker.node.exchange.client_gone(self.pipe, self._broker.mesh.now)
            self._broker.mesh.pump()


class FakeDialer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def connect(self, timeout: float) -> FakeWire:
        broker = self._broker
        if broker.away == "silent":
            broker.pass_time(timeout, lambda: not broker.away)
        if broker.away:
            raise ConnectionRefused(f"nobody is there ({broker.away})")
        return FakeWire(broker)


class Lock:
    """Replaces a `BlockingLock` for the one thread that there is."""

    foreign = False
    owned = False
    told = 0

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.held = nullcontext()

    def without(self, call: Callable[[], T]) -> T:
        return call()

    def notify_all(self) -> None:
        pass

    def wait(self, timeout: float, told: int) -> None:
        self._broker.pass_time(timeout)


def simulate(patch: pytest.MonkeyPatch, broker: Broker) -> None:
    """Have blocking clients made from now on use this broker, in its mesh's time."""
    numbers = itertools.count(1)
    clock = SimpleNamespace(monotonic=lambda: broker.mesh.now)
    for module in (blocking_client, blocking_publishing_soon, blocking_session, blocking_subscription):
        patch.setattr(module, "time", clock)
    patch.setattr(blocking_session, "BlockingLock", lambda whose: Lock(broker))
    patch.setattr(blocking_session, "BrokerDialer", lambda *_: FakeDialer(broker))
    random_bytes = SimpleNamespace(urandom=lambda size: next(numbers).to_bytes(size, "big"))
    patch.setattr(blocking_session, "os", random_bytes)
