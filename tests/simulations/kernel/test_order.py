"""Sockets that become ready together are served in any order, if requested."""

from __future__ import annotations

import asyncio

from simulations.world import Process, World
from tests.simulations.echoing import PORT

CLIENTS = 6


def served(seed: int, *, permuted: bool) -> list[bytes]:
    """The order in which a busy server reads messages that its clients sent one after the other."""
    order: list[bytes] = []

    class Reading(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            order.append(data)

    async def server(process: Process) -> None:
        listening = await asyncio.get_running_loop().create_server(Reading, "0.0.0.0", PORT)
        async with listening:
            await process.stopping.wait()

    def client(number: int) -> object:
        async def main(process: Process) -> None:
            transport, _ = await process.loop.create_connection(asyncio.Protocol, "server", PORT)
            await asyncio.sleep(1 + number / 100)
            transport.write(b"%d" % number)
            transport.write(b"!")
            await process.stopping.wait()

        return main

    with World(seed, permuted=permuted) as world:
        world.add_node("server", server).start()
        for number in range(CLIENTS):
            world.add_node(f"client-{number}", client(number)).start()  # type: ignore[arg-type]
        world.run_for(0.9)
        world.node("server").stall(2.0)
        world.run_for(3)
    return order


def test_usually_they_are_served_in_the_order_of_arrival() -> None:
    assert {b"".join(served(seed, permuted=False)) for seed in range(3)} == {b"0!1!2!3!4!5!"}


def test_the_order_is_drawn_and_each_socket_keeps_its_own() -> None:
    runs = [b"".join(served(seed, permuted=True)) for seed in range(5)]
    assert len(set(runs)) > 2
    for read in runs:
        assert sorted(read.split(b"!")[:-1]) == [b"%d" % number for number in range(CLIENTS)]


def test_a_seed_has_one_order() -> None:
    assert served(4, permuted=True) == served(4, permuted=True)
