"""Unix sockets in virtual time: their files exist on simulated hosts and nowhere else."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from protocols import Pull0, Push0, SocketOptions
from simulations.programs.environment import environment_of
from simulations.world import Process, World
from tests.simulations.echoing import wait_exposed

SOCKET = "/run/mesh.sock"


def broker(url: str) -> Any:
    async def main(process: Process) -> None:
        async with Broker(
            name=process.name,
            listen=url,
            mesh="here",
            mesh_key="a key of the test",
            state_dir="/state",
            log_dir="/log",
            environment=environment_of(process),
        ) as running:
            process.exposed = running
            await process.stopping.wait()

    return main


def client(url: str) -> Any:
    """Publishes until it is heard, and exposes what it has received."""

    async def main(process: Process) -> None:
        async with Client(url, name=process.name, environment=environment_of(process)) as mesh:
            async with mesh.subscribe("news") as subscription:
                await mesh.publish("news", b"hello", timeout=10)
                async for delivery in subscription:
                    process.exposed = bytes(delivery.body)
                    break
            await process.stopping.wait()

    return main


def test_a_broker_serves_its_host_by_a_unix_socket_and_comes_back_over_the_stale_file() -> None:
    url = f"ipc://{SOCKET}"
    with World(1) as world:
        world.add_node("broker", broker(url), host="one").start()
        wait_exposed(world, "broker")
        world.add_node("near", client(url), host="one").start()
        wait_exposed(world, "near")
        assert world.node("near").exposed == b"hello"
        file = world.network.hosts["one"].unix[SOCKET]
        assert file.mode == 0o600 and file.listener is not None
        world.inject("crash", ["broker", "near"])
        assert file.listener is None
        world.inject("start", ["broker"])
        wait_exposed(world, "broker")
        assert world.network.hosts["one"].unix[SOCKET].inode != file.inode
        world.inject("start", ["near"])
        wait_exposed(world, "near")
        world.inject("stop", ["near"])
        world.inject("stop", ["broker"])
        world.run_for(10)
        assert world.network.hosts["one"].unix == {}
        assert not world.failures and not world.fence.escapes
    assert not os.path.exists(SOCKET)


def test_a_real_file_of_the_same_path_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mesh.sock"
    path.write_text("precious")
    os.chmod(path, 0o644)
    url = f"ipc://{path}"

    async def main(process: Process) -> None:
        options = SocketOptions(ipc_permissions=0o600)
        async with (
            Pull0(listen=url, options=options, rng=process.stream("pull")) as pull,
            Push0(dial=url, rng=process.stream("push")) as push,
        ):
            await push.send(b"hello")
            process.exposed = await pull.recv()
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("one", main).start()
        wait_exposed(world, "one")
        assert world.node("one").exposed == b"hello"
        world.run_for(1)
        assert not world.failures and not world.fence.escapes
    assert path.read_text() == "precious"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_programs_see_the_files_of_sockets_on_their_own_host_only() -> None:
    async def server(process: Process) -> None:
        await process.loop.create_unix_server(asyncio.Protocol, SOCKET)
        os.chmod(SOCKET, 0o640)
        os.chown(SOCKET, -1, 7)
        found = os.lstat(SOCKET)
        process.exposed = (
            stat.S_ISSOCK(found.st_mode),
            stat.S_IMODE(found.st_mode),
            found.st_uid,
            found.st_gid,
        )
        await process.stopping.wait()
        os.unlink(SOCKET)

    async def other(process: Process) -> None:
        with pytest.raises(FileNotFoundError):
            os.stat(SOCKET)
        process.exposed = "seen nothing"
        await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", server, host="one").start()
        wait_exposed(world, "server")
        world.add_node("other", other, host="two").start()
        wait_exposed(world, "other")
        assert world.node("server").exposed == (True, 0o640, 0, 7)
        world.inject("stop", ["server"])
        world.run_for(1)
        assert world.network.hosts["one"].unix == {}
        assert not world.failures


def test_an_abstract_name_has_no_file_and_is_free_when_its_listener_is_gone() -> None:
    results: list[Any] = []

    async def main(process: Process) -> None:
        server = await process.loop.create_unix_server(asyncio.Protocol, "\0mesh")
        with pytest.raises(OSError, match="in use"):
            await process.loop.create_unix_server(asyncio.Protocol, "\0mesh")
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await process.loop.create_unix_connection(asyncio.Protocol, "\0mesh")
        again = await process.loop.create_unix_server(asyncio.Protocol, "\0mesh")
        transport, _ = await process.loop.create_unix_connection(asyncio.Protocol, "\0mesh")
        transport.close()
        again.close()
        results.append("done")

    with World(1) as world:
        world.add_node("one", main).start()
        world.run_for(1)
        assert not world.failures and results == ["done"]
        assert world.network.hosts["one"].unix == {}
