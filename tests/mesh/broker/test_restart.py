"""Whether receipts are true while brokers are killed and restarted."""

from __future__ import annotations

import pytest

from tests.mesh.broker.restarts import restart_under_load


@pytest.mark.parametrize("seed", range(3))
def test_what_is_accepted_around_a_restart_is_delivered_or_names_who_is_absent(seed: int) -> None:
    load = restart_under_load(seed)
    assert len(load.accepted) > 1000
    assert load.unkept() == []
