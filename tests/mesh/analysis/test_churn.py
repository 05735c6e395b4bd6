"""The rules of churn, without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.churn import Boot, Death, Return, availability, complete_boots, judge
from mesh.analysis.findings import ChurnEvent, EndCause, EventKind, Session

RUN, A, B = "run", "a" * 16, "b" * 16
ONE, TWO = "1" * 16, "2" * 16


def boot(
    node: str = A, number: str = ONE, first: float = 0.0, last: float = 100.0, **more: float | int
) -> Boot:
    fields = {"rows": 10, "last_seq": 10, **more}
    return Boot(RUN, node, number, f"name-{node[0]}", first, last, **fields)  # type: ignore[arg-type]


def death(at: float, detected: float, inc: int = 0, number: str = ONE, node: str = A) -> Death:
    return Death(RUN, node, number, inc, detected, 3, at, at)


def told(
    boots: list[Boot], deaths: list[Death] | None = None, returns: list[Return] | None = None
) -> list[tuple[str, str, float, str]]:
    """Events as tuples, without the joins."""
    events, _ = judge(boots, deaths or [], returns or [], slack_s=8.0)
    return [(str(e.kind), e.node[0], e.at, e.detail) for e in events if e.kind != EventKind.JOIN]


def test_a_killed_broker_that_restarts_failed_once_and_rejoined_with_a_new_boot() -> None:
    boots = [boot(last=10.0), boot(number=TWO, first=14.0), boot(B)]
    deaths = [death(9.6, 13.0)]
    assert told(boots, deaths) == [("failure", "a", 9.6, ""), ("rejoin", "a", 14.0, "new boot")]


def test_a_paused_broker_failed_once_and_rejoined_by_refutation() -> None:
    returns = [Return(RUN, A, ONE, 0, 0.5), Return(RUN, A, ONE, 1, 28.7)]
    assert told([boot(), boot(B)], [death(21.3, 24.2)], returns) == [
        ("failure", "a", 21.3, ""),
        ("rejoin", "a", 28.7, "refutation"),
    ]


def test_deaths_told_with_two_incarnations_of_one_absence_are_one_failure() -> None:
    """One observer had not heard of the refutation that came before the crash."""
    returns = [Return(RUN, A, ONE, 1, 5.0), Return(RUN, A, ONE, 2, 30.0)]
    deaths = [death(20.0, 23.0, inc=1), death(20.0, 23.4, inc=0)]
    assert told([boot()], deaths, returns) == [
        ("failure", "a", 20.0, ""),
        ("rejoin", "a", 30.0, "refutation"),
    ]


def test_two_absences_of_one_boot_are_two_failures() -> None:
    returns = [Return(RUN, A, ONE, 1, 30.0), Return(RUN, A, ONE, 2, 50.0)]
    deaths = [death(20.0, 23.0, inc=0), death(40.0, 43.0, inc=1)]
    assert [event[:3] for event in told([boot()], deaths, returns)] == [
        ("failure", "a", 20.0),
        ("rejoin", "a", 30.0),
        ("failure", "a", 40.0),
        ("rejoin", "a", 50.0),
    ]


def test_a_failure_without_a_return_between_is_not_told_twice() -> None:
    assert len(told([boot(last=25.0), boot(B)], [death(20.0, 23.0), death(24.0, 27.0, inc=1)])) == 1


def test_a_leave_is_the_leavers_own_row_and_dead_said_afterwards_is_no_failure() -> None:
    assert told([boot(last=50.0, left=49.9), boot(B)], [death(49.8, 53.0)]) == [("leave", "a", 49.9, "")]


def test_a_broker_that_left_and_came_back_rejoined_without_a_failure() -> None:
    events, _ = judge([boot(last=10.0, left=9.9), boot(number=TWO, first=20.0)], [], [], slack_s=8.0)
    assert [(str(e.kind), e.detail, e.after) for e in events] == [
        ("join", "", ""),
        ("leave", "", ""),
        ("rejoin", "new boot", "leave"),
    ]


def test_a_failure_is_timed_by_what_is_known_best() -> None:
    assert Death(RUN, A, ONE, 0, 9.0, 1, 5.0, 6.0).at == 5.0
    assert Death(RUN, A, ONE, 0, 9.0, 1, 5.0, 8.0).at == 8.0, "its log lost its end"
    assert Death(RUN, A, ONE, 0, 9.0, 1, None, 6.0).at == 6.0
    assert Death(RUN, A, ONE, 0, 9.0, 1, None, None).at == 9.0


def test_a_broker_without_a_log_is_known_from_the_others() -> None:
    deaths = [Death(RUN, B, TWO, 0, 30.0, 2, None, 27.0)]
    returns = [Return(RUN, B, TWO, 0, 1.0)]
    boots = complete_boots([boot()], deaths, returns, {(RUN, B, TWO): "lost"}, {(RUN, B): 27.0})
    events, sessions = judge(boots, deaths, returns, slack_s=8.0)
    assert [(str(e.kind), e.name, e.at) for e in events if e.node == B] == [
        ("join", "lost", 1.0),
        ("failure", "lost", 27.0),
    ]
    assert [(s.start, s.end, s.end_cause) for s in sessions if s.node == B] == [(1.0, 27.0, EndCause.FAILURE)]


def test_a_broker_of_which_only_its_death_is_told_failed_all_the_same() -> None:
    deaths = [Death(RUN, B, TWO, 4, 3.0, 1, None, None)]
    events, _ = judge(complete_boots([boot()], deaths, [], {}, {}), deaths, [], slack_s=8.0)
    assert [(str(e.kind), e.detail) for e in events if e.node == B] == [
        ("join", "already up"),
        ("failure", ""),
    ]


def test_a_log_that_stops_early_unnoticed_ends_in_silence_and_one_that_lasts_is_censored() -> None:
    _, sessions = judge([boot(last=40.0), boot(B)], [], [], slack_s=8.0)
    assert {s.node: s.end_cause for s in sessions} == {A: EndCause.SILENCE, B: EndCause.CENSORED}


def test_a_log_that_begins_in_the_middle_is_marked() -> None:
    events, sessions = judge([boot(first_seq=500)], [], [], slack_s=8.0)
    assert events[0].detail == "already up"
    assert sessions[0].left_truncated


def test_availability_counts_absence_after_a_failure_but_not_after_a_leave() -> None:
    def session(start: float, end: float, cause: EndCause, node: str = A) -> Session:
        return Session(RUN, node, "a", ONE, 1, start, end, cause, False)

    failed, left = availability(
        [
            session(0, 60, EndCause.FAILURE),
            session(80, 100, EndCause.CENSORED),
            session(0, 50, EndCause.LEAVE, B),
        ]
    )
    assert (failed.up_s, failed.down_s, failed.availability) == (80, 20, 0.8)
    assert (failed.mttf_s, failed.mttr_s) == (60, 20)
    assert (left.up_s, left.down_s, left.away_s, left.availability) == (50, 0, 50, 1.0)


times = st.floats(0, 100, allow_nan=False)


@given(
    st.lists(st.tuples(times, st.sampled_from("AB"), st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(times, st.sampled_from("AB"), st.integers(0, 3)), max_size=6),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.randoms(use_true_random=False),
)
def test_any_tale_is_told_in_order_and_up_time_never_overlaps(deaths, returns, leaves, rng) -> None:  # type: ignore[no-untyped-def]
    number = {"A": ONE, "B": TWO}
    boots = [
        boot(number=ONE, first=0.0, last=40.0, left=40.0 if leaves[0] else None),  # type: ignore[arg-type]
        boot(number=TWO, first=45.0, last=100.0, left=100.0 if leaves[1] else None),  # type: ignore[arg-type]
    ]
    dead = list({(n, inc): death(at, at + 3, inc, number[n]) for at, n, inc in deaths}.values())
    back = list({(n, inc): Return(RUN, A, number[n], inc, at) for at, n, inc in returns}.values())
    first = judge(boots, dead, back, slack_s=8.0)
    rng.shuffle(dead)
    rng.shuffle(back)
    assert judge(boots, dead, back, slack_s=8.0) == first
    events, sessions = first
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert all(session.duration_s >= 0 for session in sessions)
    kinds = [event.kind for event in events]
    assert kinds.count(EventKind.FAILURE) <= len(dead)
    assert kinds.count(EventKind.LEAVE) == sum(leaves)


@pytest.mark.parametrize("kind", list(EventKind))
def test_events_are_plain_values_in_json(kind: EventKind) -> None:
    assert f"{ChurnEvent(RUN, kind, A, 'a', ONE, 0.0).kind}" == kind.value
