"""WebSocket in virtual time: the production transport over the simulated network, cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from protocols import Pull0, Push0, Rep0, Req0, SocketOptions
from simulations.world import Process, World
from tests.support.certificates import authority, config

PORT = 7000
BODIES = (b"one", bytes(range(256)) * 1000, b"three")


def two_listeners(scheme: str) -> Any:
    """A rep and a pull socket at two paths of one port."""

    tls = config(authority().sign("server"))

    async def main(process: Process) -> None:
        options = SocketOptions(tls=tls, recv_size_max=0)
        url = f"{scheme}://0.0.0.0:{PORT}"
        async with Rep0(listen=f"{url}/rep", options=options, rng=process.stream("rep")) as rep:
            async with Pull0(listen=f"{url}/pull", options=options, rng=process.stream("pull")) as pull:
                process.exposed = pulled = []
                while not process.stopping.is_set():
                    await rep.send((await rep.recv())[::-1])
                    pulled.append(await pull.recv())

    return main


def peer(scheme: str, answers: list[bytes]) -> Any:
    tls = config()

    async def main(process: Process) -> None:
        options = SocketOptions(tls=tls, recv_size_max=0, resend_s=1.0)
        url = f"{scheme}://server:{PORT}"
        async with Req0(dial=f"{url}/rep", options=options, rng=process.stream("req")) as req:
            async with Push0(dial=f"{url}/pull", options=options, rng=process.stream("push")) as push:
                for body in BODIES:
                    await push.send(body)
                    await req.send(body)
                    answers.append(await req.recv())
                await process.stopping.wait()

    return main


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@pytest.mark.parametrize("chunked", [False, True])
def test_two_patterns_share_a_port_for_any_cuts_of_the_stream(scheme: str, chunked: bool) -> None:
    answers: list[bytes] = []
    with World(3, chunked=chunked) as world:
        world.add_node("server", two_listeners(scheme)).start()
        world.add_node("client", peer(scheme, answers)).start()
        world.run_until(lambda: len(answers) == 3, timeout_s=60, what="three answers")
        assert answers == [body[::-1] for body in BODIES]
        world.run_until(
            lambda: len(world.node("server").exposed) == 3, timeout_s=60, what="three pushed messages"
        )
        assert world.node("server").exposed == list(BODIES)
        assert not world.failures
