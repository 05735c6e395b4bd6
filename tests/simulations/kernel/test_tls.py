"""TLS in virtual time: the production transport over the simulated network, cut anywhere, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from protocols import Rep0, Req0, SocketOptions, TlsConfig
from simulations.world import Process, World
from tests.support.certificates import authority, config, stranger

PORT = 7000


def replier(tls: TlsConfig) -> Any:
    async def main(process: Process) -> None:
        options = SocketOptions(tls=tls, recv_size_max=0)
        async with Rep0(
            listen=f"tls+tcp://0.0.0.0:{PORT}", options=options, rng=process.stream("rep")
        ) as rep:
            process.exposed = rep
            while not process.stopping.is_set():
                await rep.send((await rep.recv())[::-1])

    return main


def requester(tls: TlsConfig, answers: list[bytes]) -> Any:
    async def main(process: Process) -> None:
        options = SocketOptions(tls=tls, recv_size_max=0, resend_s=1.0)
        url = f"tls+tcp://server:{PORT}"
        async with Req0(dial=url, options=options, rng=process.stream("req")) as req:
            process.exposed = req
            for body in (b"one", bytes(range(256)) * 1000, b"three"):
                await req.send(body)
                answers.append(await req.recv())
            await process.stopping.wait()

    return main


@pytest.mark.parametrize("chunked", [False, True])
def test_requests_are_answered_over_tls_for_any_cuts_of_the_stream(chunked: bool) -> None:
    answers: list[bytes] = []
    with World(3, chunked=chunked) as world:
        world.add_node("server", replier(config(authority().sign("server")))).start()
        world.add_node("client", requester(config(), answers)).start()
        world.run_until(lambda: len(answers) == 3, timeout_s=60, what="three answers")
        assert answers == [b"eno", (bytes(range(256)) * 1000)[::-1], b"eerht"]
        identity = world.node("client").exposed.pipes[0].identity
        assert identity.names == ("server",)
        assert not world.failures


def test_a_stranger_is_refused_in_virtual_time_too() -> None:
    with World(3) as world:
        world.add_node("server", replier(config(stranger().sign("server")))).start()
        world.add_node("client", requester(config(), [])).start()
        world.run_for(60)
        (dialer,) = world.node("client").exposed.dialers
        assert "not signed by an authority trusted here" in dialer.last_error
        attempts = dialer.statistics().failed["tls: untrusted certificate"]
        assert 6 <= attempts <= 13, "it lasts until one end is changed, so the pauses are the longest at once"
        (listener,) = world.node("server").exposed.listeners
        assert listener.statistics().refused.keys() == {"tls: our certificate refused"}
