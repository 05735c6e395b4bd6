"""Blocking clients of homes that the test plays, at several addresses, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mesh.clients import blocking_session, blocking_work
from mesh.clients.blocking_client import BlockingClient
from tests.mesh.clients.homes import Home
from tests.mesh.clients.simulated_connections import Broker, FakeDialer, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh


class Homes:
    """A clock, and the homes that use it, each at its URL."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[str, Broker] = {}

    def add(self, url: str, home: Home | None = None) -> Home:
        home = home or Home(lambda: self.now, url)
        node = SimpleNamespace(exchange=_Exchange(home))
        self.at[url] = Broker(cast(FakeMesh, self), cast(Any, node))
        return home

    def pump(self) -> None:
        for broker in self.at.values():
            cast(Any, broker.node.exchange).home.work()

    def turn(self, seconds: float) -> None:
        self.now += seconds
        self.pump()


class _Exchange:
    """The calls of a `FakeWire` to a node, passed on to a home."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def client_frames(self, pipe: Any, frames: Sequence[bytes], now: float) -> None:
        if pipe not in self.home.pipes:
            self.home.pipe_attached(pipe)
        self.home.frames_received(pipe, frames)

    def client_gone(self, pipe: Any, now: float) -> None:
        if pipe in self.home.pipes:
            self.home.pipe_detached(pipe, "gone")

    def pipe_writable(self, pipe: Any, now: float) -> None:
        pass


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> Homes:
    """One home, at tcp://h:1."""
    made = Homes()
    made.add("tcp://h:1")
    simulate(monkeypatch, made.at["tcp://h:1"])
    monkeypatch.setattr(blocking_work, "time", SimpleNamespace(monotonic=lambda: made.now))
    nobody = Broker(cast(FakeMesh, made), cast(Any, None))
    nobody.away = "refused"
    monkeypatch.setattr(
        blocking_session, "BrokerDialer", lambda url, *_: FakeDialer(made.at.get(url, nobody))
    )
    return made


@pytest.fixture
def client(homes: Homes) -> Iterator[BlockingClient]:
    with BlockingClient("tcp://h:1", name="blocking") as client:
        yield client
