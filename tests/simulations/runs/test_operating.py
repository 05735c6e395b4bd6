"""An operator's work for homes after faults, before a run is quiet."""

from __future__ import annotations

from dataclasses import replace

from simulations.faults import Fault
from simulations.runs.playing import Play
from simulations.scenario import Scenario, Workload

LOST = Scenario(
    "lost-home",
    brokers=2,
    warm_s=0.5,
    quiet_s=3.0,
    workload=Workload(
        publishers=1, subscribers=1, pause_s=0.2, stored_share=0.9, durable_subscriptions=1, workers=1
    ),
    faults=(
        Fault(1.0, "lost_files", ("broker-1",)),
        Fault(1.5, "move", ("broker-1",), value=0.5),
    ),
)
"""The home comes back at another address, as a broker that has never been one."""


def test_workers_make_forgotten_subscriptions_again_before_the_run_is_quiet() -> None:
    """Swarm seed 1795417102 with durable subscriptions: the quiet time began while workers still dialled the
    address of the forgotten home, and nobody kept published messages.
    """
    run = Play(LOST, seed=2)
    result = run.run()
    first, again = run.ledger.attached
    assert (first.home, again.home) == ("broker-1", "broker-1")
    (forgotten_s,) = run.ledger.forgotten.values()
    assert forgotten_s < again.at_s < dict(result.phases)["quiet_from_s"]
    assert result.ok, result.failed


def test_a_lost_state_folder_is_made_again_so_that_its_broker_can_be_a_home() -> None:
    """Swarm seed 2713254195 with durable subscriptions: the only worker was at a broker that could not make
    the subscription without its folder, and nobody kept published messages.
    """
    run = Play(replace(LOST, faults=LOST.faults[:1]), seed=2)
    result = run.run()
    assert run.world.disk("broker-1").paths_under("/state/broker-1")
    assert result.ok, result.failed
