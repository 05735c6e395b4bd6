"""When a client dials again, and what it warns of."""

from __future__ import annotations

import random

from mesh.clients.session_schedule import LONGEST_S, SHORTEST_S, SessionSchedule

URL = "tcp://a:1"


class Middle(random.Random):
    """Draws 0.5, so that each pause is three quarters of its longest."""

    def random(self) -> float:
        return 0.5


def pauses(schedule: SessionSchedule, count: int) -> list[float]:
    return [round(schedule.ended(0.0, "closed")[0], 6) for _ in range(count)]


def test_pauses_double_up_to_the_longest_until_a_session_outlives_its_pause() -> None:
    schedule = SessionSchedule(URL, Middle())
    assert pauses(schedule, 8) == [0.0375, 0.075, 0.15, 0.3, 0.6, 1.2, 1.5, 1.5]
    assert schedule.failures == 8
    schedule.began(100.0)
    assert schedule.ended(101.5, "closed")[0] == 0.75 * LONGEST_S, "over as soon as the pause before it"
    schedule.began(200.0)
    assert schedule.ended(201.6, "closed")[0] == 0.75 * SHORTEST_S and schedule.failures == 1
    assert pauses(schedule, 2) == [0.075, 0.15], "an attempt that brings no session is none that lasts"


def test_the_first_failure_and_each_other_reason_are_told_once() -> None:
    schedule = SessionSchedule(URL, Middle())
    told = [
        schedule.ended(0.0, why)[1] for why in ("refused", "refused", "forbidden", "forbidden", "refused")
    ]
    assert [bool(sentence) for sentence in told] == [True, False, True, False, True]
    assert told[2] == (
        "no session with the broker at tcp://a:1: forbidden; it is dialled again, at least every 2 s"
    )
    schedule.began(10.0)
    assert schedule.ended(10.01, "refused")[1] == "", "as before"
    schedule.began(20.0)
    assert "refused" in schedule.ended(30.0, "refused")[1], "again, after a session that lasted"
