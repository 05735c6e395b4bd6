"""A broker that was late has no more patience than usual once it is on time again."""

from __future__ import annotations

import asyncio

from protocols.wire.handshake import ProtocolNumber, encode_header
from simulations import Mesh, Process, World
from simulations.kernel.network.hosts import Address


def test_a_silent_connection_is_closed_soon_after_a_late_broker_is_on_time_again() -> None:
    """A deadline set while the broker was late must not keep the patience of that moment."""

    async def silent(process: Process) -> None:
        reader, writer = await asyncio.open_connection("broker-1", 7770)
        writer.write(encode_header(ProtocolNumber.BUS0))
        while await reader.read(100):
            pass
        process.exposed = process.world.now_s
        writer.close()

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        for number in range(4):
            world.add_node(f"stranger-{number}", silent, once=True).start()
            world.run_for(0.4)
        for _ in range(4):
            world.node("broker-1").stall(1.5)
            world.run_for(1.6)
        on_time_s = world.now_s
        world.run_for(30)
        gone = [world.node(f"stranger-{number}").process for number in range(4)]
        assert all(process is not None and not process.alive for process in gone)
        assert max(process.ended_s or 0.0 for process in gone if process is not None) < on_time_s + 9
        mesh.finish()


def test_a_broker_that_hung_soon_gives_up_dials_that_it_began_late() -> None:
    """Each had the patience of its first moment: half a minute after a pause of four seconds. That kept its
    address from being dialled again. Swarm seed 5295754949."""
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        dials: list[float] = []
        silent = world.network.hosts["broker-1"].address

        def attempted(by: str, whither: Address) -> None:
            if by == "broker-3" and whither[0] == silent:
                dials.append(world.now_s)

        world.network.on_attempt = attempted
        world.inject("power_off", "broker-1")
        world.run_for(7.0)
        world.inject("pause", "broker-3", for_s=4.0)
        world.run_for(4.0)
        went_on_s = world.now_s
        world.run_for(8.0)
        begun = [at_s - went_on_s for at_s in dials if at_s >= went_on_s]
        assert begun[0] < 0.1, "it goes on by dialling the broker that it was told to join"
        assert any(after_s > 1.0 for after_s in begun)
        world.heal()
        mesh.wait_whole()
        mesh.finish()
