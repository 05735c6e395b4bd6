"""Clients that demand too much, at brokers in virtual time: the mesh stays whole, and every loss is
counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh import Broker, Client
from mesh.dataplane.options import ExchangeOptions
from mesh.errors import MeshError
from mesh.limits import Limits
from mesh.wire.session_frames import BYTES_MAX, MESSAGES_MAX
from protocols import Bus0, Push0, Req0, Respondent0, Socket, SPError, Sub0, Surveyor0
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.mesh.traffic import Flood, Reader


def stock(mesh: Mesh, name: str, program: Any, at: str = "broker-1") -> None:
    """Run a program with stock sockets on a broker's host."""
    mesh.world.add_node(name, program, host=at)
    mesh.world.node(name).start()


def drops(mesh: Mesh, name: str = "broker-1") -> dict[str, int]:
    found: dict[str, int] = mesh.broker(name).statistics()["drops"]
    return found


def test_a_window_of_two_to_the_31_without_reading_costs_a_bounded_number_of_bytes() -> None:
    async def greedy(client: Client) -> None:
        async with client.subscribe("t", window=MESSAGES_MAX, window_bytes=BYTES_MAX):
            await asyncio.sleep(1000)

    largest = 0

    async def flood(client: Client) -> None:
        nonlocal largest
        exchange = mesh.broker("broker-1")._running.exchange
        for _ in range(1500):
            await client.publish("t", bytes(60_000), level="sent", timeout=30.0)
            for pipe, place in exchange._pipes.items():
                largest = max(largest, sum(map(len, [*place.port.ready, *pipe._output])))  # type: ignore

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("greedy", greedy)
        world.run_for(1.0)
        world.inject("slow_reader", ["greedy"], value=0, for_s=300.0)
        mesh.run(flood, timeout_s=200.0)
        world.run_for(30.0)
        bound = ExchangeOptions().unwritten_bytes_max
        assert bound / 2 < largest < bound + 200_000
        lost = drops(mesh)
        assert set(lost) <= {"slow_subscriber", "subscriber_gone"} and sum(lost.values()) > 500


def test_clients_with_more_patterns_than_other_brokers_take_are_refused_and_the_mesh_stays_whole() -> None:
    refused: list[str] = []

    async def greedy(client: Client) -> None:
        held = [client.subscribe(*(f"a{number}.{i}" for i in range(30_000))) for number in range(3)]
        for subscription in held:
            try:
                await subscription
            except MeshError as error:
                refused.append(str(error))
        await asyncio.sleep(1000)

    async def still_served(client: Client) -> int:
        async with client.subscribe("news") as subscription:
            await client.publish("news", b"x")
            return len((await anext(subscription)).body)

    with World(2) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("greedy", greedy)
        world.run_for(30.0)
        assert mesh.whole and len(refused) == 2
        assert "above the 32768 that a session may have" in refused[0]
        assert mesh.run(still_served, at="broker-2") == 1


def test_limits_are_the_brokers_own() -> None:
    async def main(process: Process) -> None:
        limits = Limits(session_patterns_max=2)
        url, environment = url_of(process.address), environment_of(process)
        async with Broker(listen=url, limits=limits, environment=environment):
            async with Client(url, environment=environment) as client:
                with pytest.raises(MeshError, match="above the 2 that a session may have"):
                    await client.subscribe("a", "b", "c")
            said.append("refused")

    said: list[str] = []
    with World(3) as world:
        world.add_node("alone", main)
        world.inject("start", ["alone"])
        world.run_for(5.0)
    assert said == ["refused"]


def test_a_stopped_stock_subscriber_costs_bounded_memory_and_no_message_of_others() -> None:
    async def stopped(process: Process) -> None:
        async with Sub0(rng=process.stream("stock")) as sub:
            sub.subscribe(b"")
            sub.dial(url_of(process.address))
            await process.stopping.wait()

    reader = Reader()

    async def flood(client: Client) -> None:
        for _ in range(600):
            await client.publish("t", bytes(100_000))

    with World(4) as world:
        mesh = Mesh(world, brokers=1)
        stock(mesh, "stopped", stopped)
        mesh.client("reads", reader)
        world.run_for(1.0)
        world.inject("slow_reader", ["stopped"], value=0, for_s=300.0)
        mesh.run(flood, timeout_s=200.0)
        world.run_for(2.0)
        assert len(reader.got) == 600
        assert drops(mesh)["slow_stock_subscriber"] > 100


def test_a_stock_request_to_a_leaving_broker_gets_no_acceptance() -> None:
    replies: list[str] = []

    async def asks(process: Process) -> None:
        async with Req0(rng=process.stream("stock")) as req:
            req.dial(url_of(process.address))
            while True:
                await req.send(b"news.uk hello")
                replies.append((await req.recv()).decode())
                await asyncio.sleep(0.001)

    async def asking(process: Process) -> None:
        try:
            await asks(process)
        except SPError:
            pass

    with World(5) as world:
        mesh = Mesh(world, brokers=2)
        stock(mesh, "stock", asking)
        world.run_for(1.0)
        assert replies[-1].startswith("accepted ")
        exchange = mesh.broker("broker-1")._running.exchange
        published = exchange.statistics().published
        exchange.leave("broker broker-1 leaves", world.now_s)
        world.run_for(0.5)
        assert replies[-1] == "error: not accepted: broker broker-1 leaves"
        assert exchange.statistics().published == published


@pytest.mark.parametrize("socket", [Bus0, Surveyor0, Respondent0])
def test_a_stock_socket_that_sends_frames_of_brokers_is_disconnected_with_a_warning(
    socket: type[Socket], caplog: pytest.LogCaptureFixture
) -> None:
    async def comes(process: Process) -> None:
        async with socket(rng=process.stream("stock")) as stranger:
            stranger.dial(url_of(process.address))
            await process.stopping.wait()

    with World(6) as world:
        mesh = Mesh(world, brokers=1)
        stock(mesh, "stranger", comes)
        world.run_for(60.0)
    said = [record.getMessage() for record in caplog.records if "is not a broker" in record.getMessage()]
    (line,) = said
    assert socket.__name__.upper() in line and "REQ, PUSH, PUB or SUB" in line


def test_a_stock_publisher_that_floods_a_joining_broker_leaves_room_for_others_and_loses_nothing() -> None:
    """It has no credit. It filled the gate, its further messages were dropped, and native clients were
    refused."""
    sent = 0

    async def floods(process: Process) -> None:
        nonlocal sent
        async with Push0(rng=process.stream("stock")) as push:
            push.dial(url_of(process.address))
            for _ in range(600):
                await push.send(b"t " + bytes(100_000))
                sent += 1
            await process.stopping.wait()

    async def publishes(client: Client) -> None:
        for _ in range(5):
            await client.publish("t", b"native", timeout=20.0)
            await asyncio.sleep(0.2)

    with World(8) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("pause", ["broker-1"], for_s=20.0)  # broker-2 waits for it as long as it holds
        world.inject("crash", ["broker-2"])
        world.inject("start", ["broker-2"])
        world.run_for(0.2)
        stock(mesh, "floods", floods, at="broker-2")
        world.run_for(1.0)
        gate = mesh.broker("broker-2")._running.exchange.gate
        assert gate.closed and 0 < gate.held < 50 and sent < 600
        mesh.run(publishes, at="broker-2", timeout_s=30.0)
        world.run_for(30.0)
        assert drops(mesh, "broker-2") == {}
        assert mesh.broker("broker-2").statistics()["totals"]["published"] == 605


def test_a_stock_publisher_of_bad_topics_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def comes(process: Process) -> None:
        async with Push0(rng=process.stream("stock")) as push:
            push.dial(url_of(process.address))
            await push.send(b"bad..topic hello")
            await process.stopping.wait()

    with World(7) as world:
        mesh = Mesh(world, brokers=1)
        stock(mesh, "bad", comes)
        world.run_for(5.0)
        assert drops(mesh) == {"bad_topic": 1}
    (line,) = [r.getMessage() for r in caplog.records if "stock publisher at" in r.getMessage()]
    assert "empty token" in line and "1 messages" in line


@pytest.mark.parametrize("seed", range(3))
def test_messages_in_flight_on_a_broken_link_are_delivered_or_counted(seed: int) -> None:
    """Links are cut while a flood passes: published = delivered + dropped, exactly."""
    reader, flood = Reader(), Flood(20_000, 0.002)
    with World(seed) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("reads", reader, at="broker-2")
        world.run_for(1.0)
        mesh.client("floods", flood, at="broker-1")
        for _ in range(6):
            world.run_for(0.2)
            world.inject("reset", ["broker-1"], ["broker-2"])
        world.run_for(10.0)
        mesh.wait_whole()
        world.run_for(10.0)
        lost = drops(mesh)
        assert set(lost) <= {"no_link", "link_down", "link_lost"}
        assert flood.published == len(reader.got) + sum(lost.values()) and reader.got_once
        assert lost["link_lost"] > 0
