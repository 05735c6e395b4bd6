"""Messages acknowledged as stored survive kills and power losses, in the shipped scenarios that test it.

They are played with seed 1; ``--simulation-seed 2`` plays another. A thousand power losses of all brokers are
250 seeds of ``mesh simulate stored-power-loss``, which loses power four times.
"""

from __future__ import annotations

import pytest

from simulations.faults import Fault
from simulations.runs import playing, shrinking
from simulations.scenario import Scenario, Workload
from simulations.scenarios import scenario_file

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["stored-kills", "stored-power-loss"])
def test_no_message_acknowledged_as_stored_is_lost(name: str, simulation_seed: int) -> None:
    result = playing.play(scenario_file.load(name), seed=simulation_seed)
    assert result.ok, [each.violations[:3] for each in result.verdicts if not each.ok]
    checks = {each.check for each in result.verdicts}
    assert {"stored_is_kept", "settled_once", "held_once", "work_is_genuine", "drained"} <= checks
    assert result.counts["stored"] > 100 and result.counts["redelivered"] > 10


def test_a_home_with_a_failed_disk_stores_again_after_a_restart() -> None:
    """Until then it refuses everything at level stored, by design: a quiet time with it would not be one."""
    load = Workload(1, 1, 0.1, stored_share=0.9, durable_subscriptions=1, workers=1, work_s=0.002)
    fault = Fault(1.0, "failing_syncs", ("broker-1",), for_s=1.0, value=1.0)
    scenario = Scenario(
        "failed", brokers=1, warm_s=1.0, safety_s=3.0, quiet_s=2.0, workload=load, faults=(fault,)
    )
    told: list[str] = []
    result = playing.play(scenario, seed=1, say=lambda now_s, text: told.append(text))
    assert result.ok, [each.violations[:3] for each in result.verdicts if not each.ok]
    assert "restart broker-1, which cannot store" in told
    assert result.counts["stored"] > 20


def test_a_home_that_lost_its_id_begins_anew_and_its_former_id_is_forgotten() -> None:
    """Its journal belongs to another broker, and no other home may keep messages in place of the old one."""
    load = Workload(1, 1, 0.1, stored_share=0.9, durable_subscriptions=1, workers=1, work_s=0.002)
    fault = Fault(1.0, "restart", ("broker-2",), value=1.0, more=(("how", "crash"), ("state", "torn")))
    scenario = Scenario(
        "lost-id", brokers=3, warm_s=1.0, safety_s=3.0, quiet_s=3.0, workload=load, faults=(fault,)
    )
    told: list[str] = []
    result = playing.play(scenario, seed=1, say=lambda now_s, text: told.append(text))
    assert result.ok, [each.violations[:3] for each in result.verdicts if not each.ok]
    assert "restart broker-2, which cannot store, without what it kept" in told
    assert any(text.startswith("forget broker-2 (") for text in told)
    assert result.counts["stored"] > 20


def test_a_failure_is_made_smaller_down_to_no_workers() -> None:
    """A scenario that has durable subscriptions and no workers cannot be made."""
    load = Workload(durable_subscriptions=2, workers=3, slow_workers=2)
    assert shrinking._with_clients(load, "workers", 0).durable_subscriptions == 0
    assert shrinking._with_clients(load, "workers", 1) == Workload(
        durable_subscriptions=1, workers=1, slow_workers=1
    )
