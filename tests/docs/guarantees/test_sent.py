"""The limits of level sent."""

from __future__ import annotations

from mesh import Client
from simulations import Mesh, World
from tests.docs.guarantees.parties import TOPIC, Listener, Program, bodies, publishing


def test_sent_is_lost_when_the_broker_dies_before_it_has_read() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        listener, program = Listener(mesh, "broker-2"), Program(mesh, "broker-1")
        world.inject("pause", ["broker-1"])
        receipt = program.do(publishing(*bodies(3), level="sent"))
        assert (receipt.level, receipt.count) == ("sent", 3)
        world.inject("crash", ["broker-1"])
        world.inject("start", ["broker-1"])
        mesh.wait_whole()
        program.do(publishing(b"later", level="sent"))
        world.run_until(lambda: bool(listener.got), timeout_s=5, what="the later message")
        assert listener.got == [b"later"]


def test_sent_has_no_room_while_the_broker_reads_nothing() -> None:
    async def fill(client: Client) -> tuple[bool, int]:
        while client.publish_nowait(TOPIC, b"x" * 10_000):
            pass
        return client.publish_nowait(TOPIC, b"x"), client.statistics().dropped

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        program = Program(mesh)
        world.inject("pause", ["broker-1"])
        assert program.do(fill) == (False, 2)


def test_sent_without_a_subscriber_reaches_no_client() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        assert mesh.run(publishing(b"early", level="sent")).level == "sent"
        listener = Listener(mesh, "broker-2")
        mesh.run(publishing(b"late", level="sent"))
        world.run_until(lambda: bool(listener.got), timeout_s=5, what="the late message")
        assert listener.got == [b"late"]
