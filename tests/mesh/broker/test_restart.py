"""Receipts are true while brokers are killed and restarted."""

from __future__ import annotations

import pytest

from tests.mesh.broker.restarts import restart_under_load


@pytest.mark.parametrize("seed", range(3))
def test_messages_accepted_around_a_restart_are_delivered_or_name_the_absent_brokers(seed: int) -> None:
    load = restart_under_load(seed)
    assert len(load.accepted) > 1000
    assert load.unkept() == []
