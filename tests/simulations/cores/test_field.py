"""The runner of pure cores: order, time, faults as in a world, equal runs of equal seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from simulations.cores import Change, Options, build, run
from simulations.cores.running import start_all
from simulations.cores.striking import Striking
from simulations.faults import Fault
from simulations.kernel.scheduler import SECOND
from tests.simulations.cores.echoing import BACK, ONE, OTHER, THERE, pair


def test_a_message_takes_the_latency_and_its_answer_comes_back() -> None:
    field, echo, _ = pair(Options(latency_s=0.01, jitter_s=0.005))
    field.send(THERE, ("question", 1))
    field.run_for(1)
    [[(back_s, answer)], [(there_s, _)]] = echo.heard
    assert 0.01 <= there_s <= 0.015 and there_s + 0.01 <= back_s <= there_s + 0.015
    assert answer == ("answer", 1)
    assert field.messages == 2


def test_messages_of_one_wire_keep_their_order_despite_jitter() -> None:
    field, echo, _ = pair(Options(latency_s=0.0, jitter_s=0.1))
    for number in range(50):
        field.send(THERE, ("note", number))
    field.run_for(1)
    assert [message[1] for _, message in echo.heard[OTHER]] == list(range(50))


def test_time_may_stop_anywhere_and_continues_there() -> None:
    stories = []
    for steps in (1, 7, 10_000):
        field, echo, _ = pair(Options(latency_s=0.0, jitter_s=0.001))
        for number in range(20):
            field.send(THERE, ("question", number))
        for _ in range(steps):
            field.run_for(3.5 / steps)
        stories.append((echo.heard, echo.ticks, field.messages))
    assert stories[0] == stories[1] == stories[2]
    assert stories[0][1][ONE] == [1.0, 2.0, 3.0]


def test_a_cut_holds_messages_back_until_a_retransmission_after_it() -> None:
    field, echo, striking = pair()
    striking.schedule([Fault(1.0, "cut_one_way", ("one",), ("other",), for_s=1.0)])
    field.run_for(1.5)
    field.send(THERE, ("note", 1))
    field.send(THERE, ("note", 2))
    field.run_for(2)
    times = [at_s for at_s, _ in echo.heard[OTHER]]
    # Sent at 1.5, and again at 1.7, 1.9 and 2.3 s: the cut ends at 2.
    assert len(times) == 2 and all(2.3 <= at_s <= 2.31 for at_s in times)


def test_messages_in_flight_when_a_cut_began_arrive_before_later_ones() -> None:
    field, echo, striking = pair(Options(latency_s=0.1, jitter_s=0.0))
    field.send(THERE, ("note", 1))
    striking.do(Fault(0.0, "cut_one_way", ("one",), ("other",), for_s=1.0))
    field.send(THERE, ("note", 2))
    field.run_for(1.05)
    for number in range(3, 20):  # after the cut, but behind the message that has not been retried
        field.send(THERE, ("note", number))
        field.run_for(0.05)
    field.run_for(10)
    assert [message[1] for _, message in echo.heard[OTHER]] == list(range(1, 20))


def test_a_paused_place_is_told_of_a_reset_when_it_runs_again() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "pause", ("one",), for_s=3.0))
    striking.do(Fault(0.0, "crash", ("other",)))
    field.run_for(5)
    assert echo.lost_at[ONE] == [3.0]


def test_a_cut_one_way_lets_the_other_way_pass() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "cut_one_way", ("one",), ("other",)))
    field.send(BACK, ("note", 1))
    field.send(THERE, ("note", 2))
    field.run_for(10)
    assert len(echo.heard[ONE]) == 1 and not echo.heard[OTHER]


@pytest.mark.parametrize("kind", ["partition", "isolate"])
def test_partition_and_isolate_cut_both_ways_and_end(kind: str) -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, kind, ("one",), for_s=5.0))
    for wire in (THERE, BACK):
        field.send(wire, ("note", 1))
    field.run_for(4.9)
    assert not echo.heard[ONE] and not echo.heard[OTHER]
    field.run_for(10)
    assert len(echo.heard[ONE]) == len(echo.heard[OTHER]) == 1


def test_the_killed_are_missed_at_once_and_those_without_power_are_not() -> None:
    for kind, told in (("crash", 1), ("power_off", 0)):
        field, echo, striking = pair()
        striking.do(Fault(0.0, kind, ("other",)))
        field.run_for(1)
        assert len(echo.lost_at[ONE]) == told
        field.send(THERE, ("note", 1))
        field.run_for(1)
        assert len(echo.lost_at[ONE]) == 2 * told
        striking.heal()
        field.run_for(1)
        assert field.lives[OTHER] == 2 and not echo.heard[OTHER]


def test_a_restarted_place_is_not_called_at_a_time_requested_by_its_former_life() -> None:
    field, echo, striking = pair()
    striking.schedule([Fault(0.5, "crash", ("other",), for_s=0.2)])
    field.run_for(3)
    assert echo.ticks[OTHER] == pytest.approx([1.7, 2.7])


def test_a_resumed_place_gets_arrived_messages_and_due_timers() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "pause", ("other",), for_s=3.5))
    field.send(THERE, ("note", 1))
    field.run_for(3.4)
    assert not echo.heard[OTHER] and not echo.ticks[OTHER]
    field.run_for(1.5)
    assert [at_s for at_s, _ in echo.heard[OTHER]] == [3.5]
    assert echo.ticks[OTHER] == [3.5, 4.5]


def test_a_pause_that_ends_when_a_call_is_due_loses_no_call() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "pause", ("other",), for_s=1.0))
    field.run_for(3.5)
    assert echo.ticks[OTHER] == [1.0, 2.0, 3.0]


def test_loss_is_delay_and_slowness_adds() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "slow_link", ("one",), value=1.0, for_s=100.0))
    striking.do(Fault(0.0, "lossy_link", ("one",), value=0.5, for_s=100.0))
    for number in range(100):
        field.send(THERE, ("note", number))
        field.run_for(0.5)
    field.run_for(200)
    assert len(echo.heard[OTHER]) == 100
    delays = [at_s - 0.5 * message[1] for at_s, message in echo.heard[OTHER]]
    assert min(delays) >= 1.0 and max(delays) >= 1.4
    assert not field.wires.special[THERE] and not field.wires.trouble(THERE)


def test_a_loss_that_is_over_leaves_nothing_behind() -> None:
    """Each try is lost or not when it is made: none is decided in advance."""
    field = build(nodes=5, seed=1)
    start_all(field)
    field.run_for(1.0)
    Striking(field).do(Fault(0.0, "lossy_link", ("broker-2",), value=0.8, for_s=30.0))
    field.run_for(100.0)
    arrived = [last_ns <= field.now_ns + SECOND for last_ns in field.wires.last_ns]
    assert arrived and all(arrived)
    # A message retried until then is retried again, at the latest, when as much time has passed again.
    assert [change for change in field.changes if change.at_s > 70] == []


def test_a_new_connection_waits_for_nothing_that_the_old_one_sends_again() -> None:
    field, echo, striking = pair()
    striking.do(Fault(0.0, "lossy_link", ("one",), value=0.99, for_s=1.0))
    field.send(THERE, ("note", 0))
    field.run_for(1.5)
    field.renew(THERE)
    field.send(THERE, ("note", 1))
    field.run_for(0.1)
    assert [message for _, message in echo.heard[OTHER]] == [("note", 1)]


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 brokers"):
        build(nodes=1, seed=1)
    with pytest.raises(ValueError, match="499500 links; at most 500"):
        build(nodes=1000, seed=1)


PLAN = (
    Fault(2.0, "crash", ("broker-3",), for_s=8.0),
    Fault(12.0, "partition", ("broker-1", "broker-2"), for_s=8.0),
    Fault(24.0, "swizzle", value=4.0),
    Fault(30.0, "pause", ("broker-5",), for_s=6.0),
)


def test_all_brokers_detect_the_deaths_and_all_are_alive_again_at_the_end() -> None:
    outcome = run(PLAN, nodes=8, seed=5, seconds=60)
    states: dict[tuple[str, str], str] = {}
    deaths: dict[str, dict[str, None]] = {}
    for change in outcome.changes:
        states[change.observer, change.subject] = change.to_state
        if change.to_state == "dead":
            deaths.setdefault(change.subject, {})[change.observer] = None
    others = {f"broker-{n}" for n in range(1, 9)} - {"broker-3"}
    assert set(deaths["broker-3"]) >= others - {"broker-5"}
    seen = {state for (observer, subject), state in states.items() if observer != subject}
    assert seen == {"alive"}


def test_one_seed_is_one_history_and_another_seed_is_another() -> None:
    again = [run(PLAN, nodes=8, seed=5, seconds=40) for _ in range(2)]
    assert again[0] == again[1]
    assert run(PLAN, nodes=8, seed=6, seconds=40).history_hash != again[0].history_hash


def test_the_history_is_the_same_in_another_process() -> None:
    program = (
        "from simulations.cores import run; from tests.simulations.cores.test_field import PLAN;"
        "print(run(PLAN, nodes=20, seed=5, seconds=40).history_hash)"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "77")
    ]
    assert hashes[0] == hashes[1] == run(PLAN, nodes=20, seed=5, seconds=40).history_hash


def test_changes_name_their_observer_and_subject() -> None:
    outcome = run([Fault(1.0, "power_off", ("broker-2",))], nodes=4, seed=1, seconds=10)
    seen = [change for change in outcome.changes if change.from_state != "unknown"]
    assert {change.subject for change in seen} == {"broker-2"}
    assert {change.observer for change in seen} == {"broker-1", "broker-3", "broker-4"}
    first = seen[0]
    assert isinstance(first, Change) and (first.from_state, first.to_state) == ("alive", "suspect")
    assert outcome.as_json()["changes"][outcome.changes.index(first)][1:] == [
        first.observer, "broker-2", "alive", "suspect", "missed a round",
    ]  # fmt: skip


def test_the_first_of_many_changes_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(PLAN, nodes=8, seed=5, seconds=40)
    monkeypatch.setattr("simulations.cores.field.CHANGES_MAX", 100)
    short = run(PLAN, nodes=8, seed=5, seconds=40)
    assert len(whole.changes) > 100 and short.changes == whole.changes[:100]
    assert (short.changes_seen, short.deaths_seen) == (len(whole.changes), whole.deaths_seen)
    assert set(short.dead) == {change.subject for change in whole.changes if change.to_state == "dead"}
    assert short.history_hash == whole.history_hash
