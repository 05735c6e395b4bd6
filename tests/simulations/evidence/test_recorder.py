"""The recorder's evidence of a run."""

from __future__ import annotations

from simulations.evidence import Recorder
from simulations.evidence.ledger import Ledger
from simulations.scenario import Scenario
from simulations.world import World
from tests.simulations.faults.meshes import mesh


def _dial(world: World, by: str, to: str) -> None:
    process = world.node(by).process
    assert process is not None
    address = (world.network.hosts[to].address, 7770)
    world.network.connect(process.host, process, address, lambda half, error: None)


def test_only_dials_to_brokers_that_left_are_kept() -> None:
    with mesh(3) as world:
        recorder = Recorder(world, Scenario("three", brokers=3), Ledger())
        recorder.sample()
        _dial(world, "broker-1", "broker-3")
        world.inject("stop", ["broker-3"])
        world.run_for(3)
        recorder.sample()
        for to in ("broker-2", "broker-3"):
            _dial(world, "broker-1", to)
        left_s = world.now_s
        world.run_for(1)
    url = f"tcp://{world.network.hosts['broker-3'].address}:7770"
    assert [(each.at_s, each.by, each.url) for each in recorder.finish({}).dials] == [
        (left_s, "broker-1", url)
    ]


def test_a_world_without_a_recorder_keeps_no_dials() -> None:
    with mesh(2) as world:
        assert world.network.on_attempt is None
