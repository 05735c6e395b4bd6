"""The read-only view of a broker agrees with its status, and has the further parts that checks of a whole
mesh need."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mesh import Client
from mesh.broker.identity import format_id
from mesh.broker.inspection import Inspection
from simulations import Mesh, World

MUTABLE = (list, set, bytearray)


async def subscribe(client: Client) -> None:
    async with client.subscribe("news.#") as subscription:
        async for _ in subscription:
            pass


def parts(view: Inspection) -> dict[str, Any]:
    """Every public part of a view."""
    return {name: getattr(view, name) for name in dir(view) if not name.startswith("_")}


def test_a_view_agrees_with_the_status_and_with_the_view_of_the_other_broker() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("reader", subscribe, at="broker-2")
        world.run_for(3)
        first, second = mesh.broker("broker-1"), mesh.broker("broker-2")
        view, status = first.inspect(), first.statistics()
        assert (format_id(view.id), format_id(view.boot)) == (status["id"], status["boot"])
        assert (view.name, view.state, view.incarnation) == ("broker-1", "ready", status["incarnation"])
        assert (view.mesh, view.url, list(view.listeners)) == (
            status["mesh"],
            status["url"],
            status["listeners"],
        )
        assert [format_id(record.id) for record in view.records] == [each["id"] for each in status["members"]]
        assert view.linked == (second.inspect().id,) and view.admissions == ()
        assert view.digest == second.inspect().digest
        assert view.interest.held[second.inspect().id].patterns == second.inspect().interest.own
        assert "news.#" in dict(second.inspect().interest.own)
        assert second.inspect().addresses.join == (first.url,)
        assert view.exchange.questions == view.exchange.queued == 0
        assert view.peering.rounds > 1 and view.last_void_round is None and view.frames_out.control > 0
        mesh.finish()


def test_a_part_of_a_view_does_not_change_afterwards_and_cannot_be_changed() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        broker = mesh.broker("broker-1")
        before = parts(broker.inspect())
        rounds = before["peering"].rounds
        world.run_for(5)
        assert before["peering"].rounds == rounds < broker.inspect().peering.rounds
        for name, part in before.items():
            assert not isinstance(part, MUTABLE), name
            if dataclasses.is_dataclass(part):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(part, dataclasses.fields(part)[0].name, None)
        mesh.finish()


def test_a_broker_that_has_left_can_still_be_inspected() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        broker = mesh.broker("broker-1")
        world.inject("stop", ["broker-1"])
        world.run_for(5)
        assert not world.node("broker-1").alive
        assert set(parts(broker.inspect())) > {"records", "load", "interest"}
        assert broker.inspect().state == "leaving" and broker.inspect().linked == ()
