"""How much a broker does at once, by how late its own loop is."""

from __future__ import annotations

from mesh.cluster.pace import DIALS_FIRST, DIALS_MAX, LATE_S, PATIENCE_MAX, Pace


def test_a_broker_that_is_on_time_dials_more_with_each_link_up_to_a_bound() -> None:
    pace = Pace()
    assert (pace.dials_max, pace.patience) == (DIALS_FIRST, 1.0)
    pace.linked()
    pace.ticked(LATE_S)
    assert (pace.dials_max, pace.patience) == (DIALS_FIRST + 2, 1.0)
    for _ in range(100):
        pace.linked()
    assert pace.dials_max == DIALS_MAX


def test_a_late_broker_dials_less_down_to_one_and_recovers_slowly() -> None:
    pace = Pace()
    for expected in (4, 2, 1, 1):
        pace.ticked(1.0)
        assert pace.dials_max == expected
    pace.ticked(0.0)
    assert pace.dials_max == 2


def test_timeouts_grow_with_lateness_at_once_and_shrink_slowly() -> None:
    pace = Pace()
    pace.ticked(0.5)
    assert pace.patience == 5.0
    pace.ticked(0.0)
    assert pace.patience == 4.0
    pace.ticked(1000.0)
    assert pace.patience == PATIENCE_MAX
    for _ in range(50):
        pace.ticked(0.0)
    assert pace.patience == 1.0


def test_a_late_broker_with_slow_attempts_waits_longer_until_links_are_made() -> None:
    pace = Pace()
    pace.gave_up()
    assert pace.patience == 1.0, "it is on time: the other side is slow, or gone"
    pace.ticked(2 * LATE_S)
    pace.gave_up()
    pace.gave_up()
    assert pace.patience == 8.0
    pace.linked()
    assert pace.patience == 4.0
    for _ in range(5):
        pace.ticked(0.0)
    pace.ticked(2 * LATE_S)
    assert pace.patience == 2.0
