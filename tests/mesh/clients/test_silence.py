"""When a waiting thread probes a silent broker, and when it gives it up."""

from __future__ import annotations

from math import inf

from hypothesis import example, given
from hypothesis import strategies as st

from mesh.clients.silence import Next, Silence
from mesh.wire.session_frames import LAPSES


def test_a_waiting_thread_probes_once_an_interval_and_gives_up_after_three() -> None:
    silence, heard_at, said = Silence(5.0), 100.0, []
    now = heard_at
    while (step := silence.next(now, heard_at)) is not Next.GIVE_UP:
        said.append((now, step))
        now = silence.due(heard_at)
    asked = [(105.0, Next.ASK), (110.0, Next.ASK)]
    assert said == [(100.0, Next.WAIT), *asked] and now == 115.0


def test_a_sign_begins_a_new_silence() -> None:
    silence = Silence(5.0)
    assert silence.next(5.0, 0.0) is Next.ASK
    assert silence.due(5.1) == 10.1 and silence.next(10.0, 5.1) is Next.WAIT
    assert silence.next(10.1, 5.1) is Next.ASK
    assert silence.next(20.1, 5.1) is Next.GIVE_UP


def test_a_thread_that_did_not_wait_for_an_hour_probes_before_it_gives_up() -> None:
    silence = Silence(5.0)
    assert silence.next(3600.0, 0.0) is Next.ASK
    assert silence.due(0.0) == 3605.0


def test_a_thread_that_finds_unread_bytes_probes_again() -> None:
    silence = Silence(5.0)
    silence.next(5.0, 0.0)
    assert silence.next(3600.0, 0.0) is Next.GIVE_UP
    silence.again(3600.0)
    assert silence.next(3600.0, 0.0) is Next.WAIT and silence.due(0.0) == 3605.0


def test_no_probe_is_sent_without_an_interval() -> None:
    silence = Silence(0.0)
    assert silence.due(0.0) == inf and silence.next(1e9, 0.0) is Next.WAIT


@given(
    st.floats(0.1, 60.0),
    st.lists(st.tuples(st.floats(0.0, 200.0), st.booleans()), max_size=30),
)
@example(1.8277359885652853, [(63.0, True), (1.8277359885652853, False)])  # 63 + that rounds down
def test_a_broker_is_given_up_only_after_a_probe_is_unanswered_for_two_intervals(
    interval_s: float, waits: list[tuple[float, bool]]
) -> None:
    silence, now, heard_at, asked_at = Silence(interval_s), 0.0, 0.0, inf
    for length, hears in waits:
        now += length
        if hears:
            heard_at, asked_at = now, inf
        step = silence.next(now, heard_at)
        if step is Next.ASK:
            assert now >= heard_at + interval_s
            asked_at = min(asked_at, now)
        elif step is Next.GIVE_UP:
            assert now >= asked_at + (LAPSES - 1) * interval_s
            return
        assert silence.due(heard_at) > now
