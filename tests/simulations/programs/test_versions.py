"""Brokers of another version of the link: which code is theirs alone."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path

import mesh.broker.broker
from mesh import Client
from mesh.cluster import links
from mesh.wire import link_frames
from mesh.wire.capabilities import LINK
from mesh.wire.link_frames import LinkKind
from simulations import Mesh, World
from simulations.programs.versions import COPIED, broker_ahead


def imported(name: str) -> set[str]:
    """Modules of ours that a module imports by name."""
    tree = ast.parse(Path(str(sys.modules[name].__file__)).read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def test_all_modules_between_a_broker_and_its_version_are_copied_after_their_imports() -> None:
    loaded = [name for name in sys.modules if name.startswith("mesh.") and name != "mesh.cli"]
    below = {"mesh.broker.broker"}
    while more := {each for name in below for each in imported(name) if each in loaded} - below:
        below |= more
    found = {"mesh.wire.link_frames"}
    while more := {name for name in below if imported(name) & found} - found:
        found |= more
    assert found == set(COPIED)
    for number, name in enumerate(COPIED):
        assert imported(name) & found <= set(COPIED[:number]), name


def test_a_broker_ahead_is_a_broker_and_leaves_the_usual_code_alone() -> None:
    ahead = broker_ahead(2)
    assert issubclass(ahead, mesh.broker.broker.Broker) and ahead is broker_ahead(2)
    assert broker_ahead(0) is mesh.broker.broker.Broker
    assert sys.modules["mesh.wire.link_frames"] is link_frames and links.LINK is LINK
    assert link_frames.encode(LinkKind.READY) == b"\x91\x24"


def test_a_broker_of_a_version_ahead_is_a_member_like_any_other() -> None:
    """Its frames have unknown fields, and its HELLO unknown versions and a capability."""
    got: list[bytes] = []

    async def reads(client: Client) -> None:
        async with client.subscribe("news.#") as subscription:
            async for delivery in subscription:
                got.append(bytes(delivery.body))  # noqa: PERF401 - as they come

    async def says(client: Client) -> None:
        for number in range(20):
            receipt = await client.publish("news.uk", b"%d" % number)
            assert not receipt.absent
            await asyncio.sleep(0.1)

    with World(5) as world:
        network = Mesh(world, brokers=3)
        network.client("reader", reads, at="broker-1")
        world.inject("version_skew", ["broker-2"], value=3)
        world.run_for(5)
        network.wait_whole()
        assert not isinstance(network.broker("broker-1"), broker_ahead(3))
        assert isinstance(network.broker("broker-2"), broker_ahead(3))
        network.client("writer", says, at="broker-2")
        world.run_for(5)
        assert got == [b"%d" % number for number in range(20)]
        network.finish()
