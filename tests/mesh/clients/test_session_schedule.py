"""When a client dials again, and its warnings about that."""

from __future__ import annotations

import random

from mesh.clients.session_schedule import LONGEST_S, SHORTEST_S, SessionSchedule

URL = "tcp://a:1"


class Middle(random.Random):
    """Draws 0.5, so that each pause is three quarters of its limit."""

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
    assert pauses(schedule, 2) == [0.075, 0.15], "an attempt without a session does not count as lasting"


def test_the_first_failure_and_each_new_reason_are_reported_once() -> None:
    schedule = SessionSchedule(URL, Middle())
    told = [
        schedule.ended(0.0, why)[1] for why in ("refused", "refused", "forbidden", "forbidden", "refused")
    ]
    assert [bool(sentence) for sentence in told] == [True, False, True, False, True]
    assert told[2] == (
        "no session with the broker at tcp://a:1: forbidden; the client dials it again, at least every 2 s"
    )
    schedule.began(10.0)
    assert schedule.ended(10.01, "refused")[1] == "", "as before"
    schedule.began(20.0)
    assert "refused" in schedule.ended(30.0, "refused")[1], "again, after a session that lasted"


def test_a_lasting_session_is_reported_once_if_its_loss_was() -> None:
    """Operators read that the session was lost, and never that it was back."""
    schedule = SessionSchedule(URL, Middle())
    schedule.began(0.0)
    assert schedule.back_at is None and schedule.back(100.0) == "", "nothing was lost"
    pause_s, _ = schedule.ended(100.0, "closed")
    schedule.began(101.0)
    assert schedule.back_at == 101.0 + pause_s
    assert schedule.back(101.0) == "", "it may be over at once, as the one before"
    assert schedule.back(102.0) == "the session with the broker at tcp://a:1 is back after 1.0 s"
    assert schedule.back_at is None and schedule.back(103.0) == "", "once"
    assert "closed" in schedule.ended(103.0, "closed")[1], "what was said last is true no more"


def test_sessions_that_end_at_once_are_not_reported_as_back() -> None:
    schedule = SessionSchedule(URL, Middle())
    schedule.ended(0.0, "closed")
    for at_s in (1.0, 2.0, 3.0):
        schedule.began(at_s)
        assert schedule.back(at_s + 0.01) == "" and schedule.ended(at_s + 0.01, "closed")[1] == ""
        assert schedule.back_at is None
    schedule.began(4.0)
    assert schedule.back(10.0, subscribed=True) == (
        "the session with the broker at tcp://a:1 is back after 4.0 s; subscriptions lack messages published"
        " meanwhile"
    )
