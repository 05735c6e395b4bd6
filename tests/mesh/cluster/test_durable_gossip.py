"""Reports of durable interest to the data plane, and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from mesh.cluster.durable_gossip import DurableGossip
from mesh.cluster.durable_interest import HomeChanged
from mesh.cluster.durable_table import SENT_MAX
from mesh.cluster.link import Link
from mesh.wire.link_frames import LinkKind


class Told:
    """The hooks: they record their calls."""

    def __init__(self) -> None:
        self.changes: list[HomeChanged] = []
        self.unknown: list[tuple[str, ...]] = []

    def home_changed(self, change: HomeChanged) -> None:
        self.changes.append(change)

    def unknown_homes_changed(self, names: tuple[str, ...]) -> None:
        self.unknown.append(names)

    def durable_unsaved(self) -> None:
        pass

    def durable_reached(self, version: int, unreached: tuple[str, ...]) -> None:
        pass


def linked(gossip: DurableGossip, links: dict[int, Link], member: int) -> Link:
    agreed = SimpleNamespace(has=lambda capability: True)
    link: Any = SimpleNamespace(peer=SimpleNamespace(id=member), agreed=agreed, say=lambda frames: None)
    links[member] = cast(Link, link)
    gossip.link_up(links[member])
    return links[member]


async def test_a_home_is_reported_unknown_at_once_and_known_after_all_its_changes() -> None:
    """While the data plane was busy with the patterns of one home, it was not told that another one was
    unknown. Level stored continued with the earlier subscriptions of that one."""
    told, links = Told(), dict[int, Link]()
    gossip = DurableGossip(
        1, "n1", cast(Mapping[int, Link], links), wall_time=lambda: 1.0, tables={}, hooks=told
    )
    gossip.set_own({})
    gossip.members({2: "n2", 3: "n3"})
    assert told.unknown == [("n2", "n3")]
    two, three = linked(gossip, links, 2), linked(gossip, links, 3)
    gossip.received(three, [LinkKind.DURABLE_HELD, [(3, 0)]])
    gossip.received(two, [LinkKind.DURABLE_HELD, [(2, 10)]])
    subscriptions = [(f"s{number}", ("t",)) for number in range(3 * SENT_MAX)]
    for part in range(3):
        some = subscriptions[part * SENT_MAX : (part + 1) * SENT_MAX]
        gossip.received(two, [LinkKind.DURABLE, 2, 10, part, part == 2, "n2", "", some])
    assert told.unknown == [("n2", "n3")], "the data plane does not route by it yet"
    while not told.changes:
        await asyncio.sleep(0)
    linked(gossip, links, 3)
    assert len(told.changes) < 3 and told.unknown == [("n2", "n3")], "nothing was known in between"
    while told.unknown[-1] != ("n3",):
        await asyncio.sleep(0)
    assert len(told.changes) == 3
    linked(gossip, links, 2)
    assert told.unknown[-1] == ("n3", "n2"), "in this very turn"
    gossip.stop()
