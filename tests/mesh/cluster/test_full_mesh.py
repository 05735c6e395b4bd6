"""One place decides which members should be linked, and its callers follow."""

from __future__ import annotations

import pytest

from mesh.cluster.full_mesh import may_tell_interest, neighbours_of
from tests.mesh.cluster.membership.world import World


def test_every_member_should_be_linked_to_every_other_and_speaks_for_itself() -> None:
    assert neighbours_of(2, [1, 2, 3]) == [1, 3]
    assert may_tell_interest(2, 2) and not may_tell_interest(2, 3)


def test_brokers_that_should_have_no_link_neither_dial_nor_judge_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line of three: the ends know each other through the one between them."""
    world = World(1)
    ends = {world.meshed.identities[id - 1].id for id in (1, 3)}

    def on_a_line(one: int, other: int) -> bool:
        return one != other and {one, other} != ends

    for module in ("full_mesh", "overlay", "membership.judgement"):
        monkeypatch.setattr(f"mesh.cluster.{module}.ought_to_link", on_a_line)
    first = world.start(1)
    world.run(0.1)
    between = world.start(2, 1)
    world.run(0.1)
    last = world.start(3, 2)
    world.run(60)
    assert (first.links, between.links, last.links) == ({2}, {1, 3}, {2})
    assert first.life.core.unlinked() == []
    seen = [change.to_state for node in (first, between, last) for change in node.changes]
    assert seen == ["alive"] * 6
    world.crash(3, silent=True)
    world.run(5)
    assert first.states()[3] == between.states()[3] == "dead"
