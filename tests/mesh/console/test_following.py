"""`mesh top` follows the mesh and not one broker."""

from __future__ import annotations

import asyncio
from io import StringIO

import pytest
from rich.console import Console

from mesh import Broker
from mesh.cli.settings import connected
from mesh.config import ClientConfig
from mesh.console import app
from mesh.console.probe import Look
from mesh.console.watched import MOVED_S, Watched
from tests.mesh.console import statuses
from tests.mesh.loopback import Cluster, crash, eventually

NAMES = ("alpha", "bravo", "charlie")


def said(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.virtual
async def test_top_continues_with_another_broker_when_its_own_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed with the dead one: "5 alive" forever, although it knew four other addresses."""
    monkeypatch.setattr(app, "_clock", lambda: "09:00:00Z")
    console = Console(file=StringIO(), width=80, _environ={})
    async with Cluster() as cluster:
        alpha, *_ = brokers = await cluster.mesh(*NAMES)
        await eventually(lambda: all(len(each.members()) == 3 for each in brokers), "all know all")
        async with connected(ClientConfig(url=_address(alpha)), watching=True) as client:
            watching = asyncio.create_task(app.follow(client, console, 1.0, count=40))
            await asyncio.sleep(5)
            await crash(alpha)
            await watching
    lines = said(console)
    assert any("alive=3 suspect=0 dead=0" in line for line in lines)
    assert any("alpha does not answer any more; this is what" in line for line in lines)
    assert "alive=2 suspect=0 dead=1" in lines[-1]


def _address(broker: Broker) -> str:
    return broker.urls[0]


class FakeClient:
    broker, url, connected = "alpha", "tcp://h:1", True


def test_notes_about_its_own_broker_name_the_broker() -> None:
    """It said `no answer (for 3 s; still trying)`."""
    watched, client = Watched(), FakeClient()
    assert watched.failed(client, TimeoutError(), 5.0) == "alpha at tcp://h:1 has not answered for 0s"
    assert watched.failed(client, TimeoutError(), 8.0) == "alpha at tcp://h:1 has not answered for 3s"
    assert watched.is_stale
    client.connected = False
    told = watched.failed(client, TimeoutError(), 9.0)
    assert told == "no broker answers for 4s; looking for one at tcp://h:1"


def test_a_change_to_another_broker_is_shown_for_a_while() -> None:
    watched = Watched()
    alpha, beta = (Look((status,)) for status in statuses.calm()[:2])
    assert watched.answered(alpha, 1.0) == ""
    assert watched.answered(beta, 2.0) == "alpha does not answer any more; this is what beta says"
    assert watched.answered(beta, 2.0 + MOVED_S) == "" and not watched.is_stale
