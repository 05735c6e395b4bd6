"""Which options a running broker applies without a restart, which it reports as impossible, and when it is
ready."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mesh import Broker, ConfigError, MeshError
from mesh.broker.options import BrokerOptions
from mesh.broker.reloading import RELOADABLE, merge
from protocols import Sub0, TlsConfig
from simulations import Mesh, World
from simulations.programs import broker as broker_program
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from simulations.world import Process
from tests.support import certificates


def options(**given: object) -> BrokerOptions:
    return Broker(**given).options  # type: ignore[arg-type]


def test_replaceable_options_are_replaced_and_the_others_are_named() -> None:
    running = options(name="alpha", export=["#"], mesh="one")
    wanted = options(name="beta", export=["news.#"], mesh="two", stats_s=1.0)
    merged, replaced, kept = merge(running, wanted)
    assert set(replaced) == {"export", "stats_s"} <= RELOADABLE and set(kept) == {"name", "mesh"}
    assert merged == replace(running, export=("news.#",), stats_s=1.0)
    assert merge(running, running) == (running, (), ())


def test_a_stock_subscriber_sees_the_patterns_that_were_reloaded() -> None:
    async def subscriber(process: Process) -> None:
        async with Sub0(rng=process.stream("sub")) as sub:
            sub.dial(url_of(process.world.network.hosts["broker-1"].address))
            sub.subscribe("")
            await process.stopping.wait()

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        world.add_node("stock", subscriber).start()
        world.run_for(2)
        broker = mesh.broker("broker-1")
        assert broker.statistics()["taps"] == ["#"]
        outcome = broker.reload(replace(broker.options, export=("news.#", "sport.*")))
        assert (outcome.replaced, outcome.kept) == (("export",), ())
        assert broker.statistics()["taps"] == ["news.# sport.*"]
        assert set(broker.statistics()["interest"]) >= {"news.#", "sport.*"}
        assert "#" not in broker.statistics()["interest"]


def test_stats_rows_follow_a_reloaded_interval() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        broker = mesh.broker("broker-1")
        broker.reload(replace(broker.options, stats_s=1000.0))
        world.run_for(5.1)
        sequence = broker.inspect().log.rows
        world.run_for(50)
        assert broker.inspect().log.rows == sequence
        broker.reload(replace(broker.options, stats_s=0.5))
        world.run_for(10)
        assert broker.inspect().log.rows >= sequence + 19


def test_heartbeats_are_summed_up_from_a_reload_on() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.run_for(3)
        broker = mesh.broker("broker-1")
        outcome = broker.reload(replace(broker.options, log_heartbeats="summary", stats_s=1000.0))
        assert outcome.replaced == ("stats_s", "log_heartbeats") and not outcome.kept
        world.run_for(6)  # until the pending stats row is written
        sequence = broker.inspect().log.rows
        world.run_for(160)
        assert 10 <= broker.inspect().log.rows - sequence <= 11, "one peer, ten windows of 16 s"


async def test_certificates_are_read_again_and_one_that_cannot_be_used_changes_nothing(
    tmp_path: Path,
) -> None:
    """The files change without the broker's knowledge. It reports the error at once instead of at the next
    handshake."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    first = certificates.local()
    cert.write_text(first.cert)
    key.write_text(first.key)
    tls = TlsConfig(cert_file=str(cert), key_file=str(key))
    async with Broker(listen=["tls+tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], tls=tls) as broker:
        assert broker.reload(broker.options).certificates == 1
        key.write_text("no key")
        with pytest.raises(ConfigError, match=r"^tls\+tcp://.*holds no private key in PEM form"):
            broker.reload(replace(broker.options, export=("news.#",)))
        assert broker.options.export == ("#",)


def test_a_broker_is_ready_when_it_has_joined_and_not_before() -> None:
    async def wait(process: Process) -> None:
        async with Broker(
            listen=url_of(process.address),
            join=url_of(process.world.network.hosts["seed"].address),
            mesh_key=process.node.settings.mesh_key,
            environment=environment_of(process),
        ) as broker:
            process.exposed = "listening"
            await broker.wait_ready()
            process.exposed = broker.statistics()["state"]
            await process.stopping.wait()

    with World(1) as world:
        seed = world.add_node("seed", broker_program("mangrove", []))
        late = world.add_node("late", wait)
        late.start()
        world.run_for(60)
        assert late.exposed == "listening"
        seed.start()
        world.run_for(10)
        assert late.exposed == "ready"


def test_wait_ready_fails_when_the_broker_leaves_while_joining() -> None:
    async def main(process: Process) -> None:
        broker = Broker(
            listen=url_of(process.address), join="tcp://10.9.9.9:7770", environment=environment_of(process)
        )
        async with broker:
            process.loop.call_later(1.0, lambda: process.loop.create_task(broker.leave()))
            with pytest.raises(MeshError, match="left before it was ready"):
                await broker.wait_ready()
            process.exposed = "told"
            await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alone", main)
        node.start()
        world.run_for(30)
        assert node.exposed == "told"
