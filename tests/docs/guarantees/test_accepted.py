"""The limits of level accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mesh import Client, Receipt
from mesh.errors import Unknown
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.docs.guarantees.parties import TOPIC, Listener, Program, bodies, publishing


def test_accepted_outlives_its_publisher() -> None:
    """The promise of the level; the other tests show its limits."""
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        listener = Listener(mesh, "broker-2", window=1, reads=False)
        program = Program(mesh, "broker-1")
        for body in bodies(5):
            assert program.do(publishing(body, level="accepted")).level == "accepted"
        world.inject("crash", [program.name])
        world.run_for(5)
        listener.reads = True
        world.run_until(lambda: listener.got == bodies(5), timeout_s=5, what="all five")


def test_accepted_once_although_its_acknowledgement_is_lost_with_the_broker() -> None:
    receipts: list[Receipt] = []

    async def publish_from_afar(process: Process) -> None:
        url = url_of(process.network.hosts["broker-1"].address)
        async with Client(url, environment=environment_of(process)) as client:
            await asyncio.sleep(1)
            receipts.append(await client.publish(TOPIC, b"1", timeout=60))

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        listener = Listener(mesh, "broker-2")
        world.add_node("publisher", publish_from_afar, host="afar").start()
        world.run_for(0.5)
        world.inject("cut_one_way", ["broker-1"], ["afar"])
        world.run_until(lambda: bool(listener.got), timeout_s=5, what="the message")
        world.inject("crash", ["broker-1"])
        world.heal()
        world.run_until(lambda: bool(receipts), timeout_s=60, what="the receipt of another broker's life")
        world.run_for(5)
        assert listener.got == [b"1"]


def accepted_and_killed(world: World, addresses: Callable[[list[str]], str | list[str]]) -> list[bytes]:
    """A broker acknowledges a message and is killed before another one has it; what came of it there.
    ``addresses``: those of the publisher, given all."""
    mesh = Mesh(world, brokers=2)
    listener = Listener(mesh, "broker-2")
    urls = [url_of(world.network.hosts[name].address) for name in mesh.brokers]
    accepted: list[Receipt] = []
    go = asyncio.Event()

    async def publish_from_afar(process: Process) -> None:
        async with Client(addresses(urls), environment=environment_of(process)) as client:
            while client.broker != "broker-1":
                world.inject("reset", ["afar"], [client.broker])
                await asyncio.sleep(1)
            process.exposed = client
            while not go.is_set():
                await asyncio.sleep(0.01)
            accepted.append(await client.publish(TOPIC, b"1"))
            await process.stopping.wait()

    node = world.add_node("publisher", publish_from_afar, host="afar")
    node.start()
    world.run_until(lambda: node.exposed is not None, timeout_s=60, what="a session")
    world.inject("partition", ["broker-1"], ["broker-2"])
    go.set()
    world.run_until(lambda: bool(accepted), timeout_s=5, what="the receipt")
    assert accepted[0].absent == () and accepted[0].broker == "broker-1"
    world.inject("crash", ["broker-1"])
    world.heal()
    world.run_for(10)
    return listener.got


def test_accepted_is_lost_with_a_broker_that_had_not_passed_it_on() -> None:
    with World(1) as world:
        assert accepted_and_killed(world, lambda urls: urls[0]) == []


def test_accepted_outlives_its_broker_if_its_client_has_other_addresses() -> None:
    with World(1) as world:
        assert accepted_and_killed(world, lambda urls: urls) == [b"1"]


def test_accepted_without_a_subscriber_reaches_no_client() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        assert mesh.run(publishing(b"early", level="accepted")).absent == ()
        listener = Listener(mesh, "broker-2")
        mesh.run(publishing(b"late", level="accepted"))
        world.run_until(lambda: bool(listener.got), timeout_s=5, what="the late message")
        assert listener.got == [b"late"]


def test_accepted_dies_with_its_broker_while_a_subscriber_is_slow() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        listener = Listener(mesh, "broker-1", window=1, reads=False)
        for body in bodies(5):
            assert mesh.run(publishing(body, level="accepted")).level == "accepted"
        world.inject("crash", ["broker-1"])
        world.inject("start", ["broker-1"])
        world.run_for(10)
        listener.reads = True
        world.run_for(10)
        assert listener.got == [b"1"], "its window is one: the others waited at the broker"
        assert listener.subscription is not None and listener.subscription.interrupted == 1


def test_accepted_is_dropped_for_a_subscriber_that_takes_nothing_for_ten_seconds() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        listener = Listener(mesh, "broker-1", window=1, reads=False)
        program = Program(mesh)
        first, last = 1, 0
        while not (dropped := mesh.broker("broker-1").statistics()["drops"].get("slow_subscriber", 0)):
            last = first + 999
            receipt = program.do(
                publishing(
                    *(b"%d " % n + b"x" * 1000 for n in range(first, last + 1)), level="accepted", timeout=30
                )
            )
            first = last + 1
            assert receipt.level == "accepted"
        assert world.now_s > 10
        listener.reads = True
        world.run_for(30)
        assert len(listener.got) < last and listener.got[-1].startswith(b"%d " % last)
        assert listener.subscription is not None and listener.subscription.lost and dropped


def test_accepted_misses_the_subscribers_of_a_broker_that_is_cut_off() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        listener = Listener(mesh, "broker-2")
        program = Program(mesh, "broker-1")
        world.inject("partition", ["broker-1"], ["broker-2"])
        world.run_for(8)
        assert program.do(publishing(b"1", level="accepted")).absent == ("broker-2",)
        world.heal()
        mesh.wait_whole()
        world.run_for(5)
        program.do(publishing(b"2", level="accepted"))
        world.run_until(lambda: bool(listener.got), timeout_s=5, what="the second message")
        assert listener.got == [b"2"] and listener.subscription is not None
        assert listener.subscription.interrupted == 1


def test_accepted_comes_twice_if_it_is_published_again_after_unknown() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        listener, program = Listener(mesh, "broker-2"), Program(mesh, "broker-1")
        world.inject("pause", ["broker-1"])
        with pytest.raises(Unknown):
            program.do(publishing(b"1", level="accepted", timeout=1))
        world.inject("resume", ["broker-1"])
        mesh.wait_whole()
        program.do(publishing(b"1", level="accepted"))
        world.run_for(5)
        assert listener.got == [b"1", b"1"]
