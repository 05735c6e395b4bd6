"""A home whose state folder is removed while it runs stores nothing more, and says so."""

from __future__ import annotations

import pytest

from mesh.errors import NotAccepted, Unknown
from simulations import World
from tests.docs.guarantees.parties import publishing, with_a_queue

HOME = "broker-1"


def test_a_home_with_a_removed_journal_refuses_stored_messages() -> None:
    """In the simulator it went on: a lost file could still be found by its name."""
    with World(1) as world:
        mesh = with_a_queue(world, brokers=2)
        mesh.run(publishing(b"1"), at="broker-2")
        world.inject("lost_files", [HOME])
        with pytest.raises(Unknown):
            mesh.run(publishing(b"2"), at="broker-2")
        with pytest.raises(NotAccepted, match="it was removed, or another was put in its place"):
            mesh.run(publishing(b"3"), at="broker-2")
