"""A broker that died on a disk without room starts on it, and serves everything that needs no room."""

from __future__ import annotations

import logging

import pytest

from mesh.errors import NotAccepted
from simulations import Mesh, World
from tests.docs.guarantees.parties import Worker, bodies, publishing, settled, with_a_queue

HOME = "broker-1"


@pytest.mark.parametrize("how", ["crash", "power_off"])
def test_a_home_starts_on_a_full_disk_and_its_messages_are_processed(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended with: cannot keep state in /state/broker-1: No space left on device."""
    with World(1) as world, caplog.at_level(logging.WARNING):
        mesh = with_a_queue(world, brokers=2)
        mesh.run(publishing(*bodies(3)), at="broker-2")
        world.inject(how, [HOME])
        world.run_for(5)
        world.inject("full_disk", [HOME], value=0)
        caplog.clear()
        world.inject("start", [HOME])
        mesh.wait_whole()
        assert "cannot save /state/broker-1/identity.json (No space left on device)" in caplog.text
        with pytest.raises(NotAccepted, match="make room"):
            mesh.run(publishing(b"4"), at="broker-2")
        worker = Worker(mesh)
        assert settled(world, worker, 3) == bodies(3)
        world.heal()
        world.run_for(5)
        assert "identity.json is saved again" in caplog.text
        mesh.run(publishing(b"5"), at="broker-2")
        assert settled(world, worker, 4) == [*bodies(3), b"5"]
        world.inject("crash", [HOME])
        world.inject("start", [HOME])
        mesh.wait_whole()
        world.run_for(10)
        assert len(worker.got) == 4, "it was all written down"


def test_a_home_that_was_stopped_starts_without_its_journal_and_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SQLite creates a log, which needs room. The advice was to give the user the right to write."""
    with World(1) as world, caplog.at_level(logging.WARNING):
        mesh = with_a_queue(world)
        mesh.run(publishing(*bodies(3)))
        world.inject("stop", [HOME])
        world.run_for(5)
        world.inject("full_disk", [HOME], value=0)
        world.inject("start", [HOME])
        mesh.wait_whole()
        told = "the disk has no room for the journal /state/broker-1/journal.db; make room and start again"
        assert f"broker broker-1 stores no messages: {told}" in caplog.text
        with pytest.raises(NotAccepted, match=told):
            mesh.run(publishing(b"4"))
        world.heal()
        world.inject("stop", [HOME])
        world.run_for(5)
        world.inject("start", [HOME])
        mesh.wait_whole()
        assert settled(world, Worker(mesh), 3) == bodies(3)


def test_a_broker_without_a_saved_id_does_not_start_on_a_full_disk() -> None:
    """It would have another id at each start."""
    with World(1) as world:
        world.keep_failures = True
        mesh = Mesh(world, brokers=1)
        world.inject("crash", [HOME])
        world.inject("lost_files", [HOME])
        world.inject("full_disk", [HOME], value=0)
        world.inject("start", [HOME])
        world.run_for(5)
        assert not world.node(HOME).running
        (failure,) = world.failures
        assert "cannot keep state in /state/broker-1: No space left on device; make room" in str(failure)
        world.failures.clear()
        assert mesh.brokers == [HOME]
