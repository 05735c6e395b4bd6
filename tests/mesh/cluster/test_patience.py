"""A broker that was late is as strict with strangers as ever, once it is on time again."""

from __future__ import annotations

import asyncio

from protocols.wire.handshake import ProtocolNumber, encode_header
from simulations import Mesh, Process, World


def test_who_says_nothing_is_closed_soon_after_a_late_broker_is_on_time_again() -> None:
    """A deadline that was set while the broker was late must not keep the patience of that moment."""

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
