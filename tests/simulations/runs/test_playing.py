"""A run's phases, the actions in them, and the content of a result."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from simulations.faults import Fault
from simulations.kernel.network import LinkQuality
from simulations.runs import wholeness
from simulations.runs.playing import BROKERS_MAX, DRAIN_S, SETTLE_S, Play, play
from simulations.scenario import AFTERMATH_S, Expectation, Scenario, Workload
from simulations.scenarios.scenario_file import parse, write
from simulations.world import NodeState, World

SMALL = Scenario(
    "small", brokers=3, warm_s=1.0, quiet_s=2.0, workload=Workload(publishers=1, subscribers=2, pause_s=0.2)
)


def with_faults(*faults: Fault, **more: Any) -> Scenario:
    return replace(SMALL, faults=faults, **more)


def test_phases_come_in_their_order_and_last_as_long_as_they_should() -> None:
    scenario = with_faults(Fault(1.0, "pause", ("1 of brokers",), for_s=1.0))
    result = play(scenario, seed=1)
    assert result.ok, result.verdicts
    at_s = dict(result.phases)
    assert list(at_s) == [
        "clients_s",
        "warm_s",
        "safety_s",
        "healed_s",
        "whole_s",
        "held_s",
        "quiet_from_s",
        "quiet_until_s",
        "drained_s",
        "end_s",
    ]
    assert at_s["safety_s"] - at_s["warm_s"] == pytest.approx(1.0)
    assert at_s["healed_s"] - at_s["safety_s"] == pytest.approx(2.0 + AFTERMATH_S)
    assert at_s["whole_s"] - at_s["healed_s"] == pytest.approx(result.whole_in_s)
    assert at_s["held_s"] - at_s["whole_s"] == pytest.approx(3.5, abs=0.06)
    assert at_s["quiet_from_s"] - at_s["whole_s"] == pytest.approx(SETTLE_S)
    assert at_s["quiet_until_s"] - at_s["quiet_from_s"] == pytest.approx(2.0)
    assert at_s["drained_s"] - at_s["quiet_until_s"] >= DRAIN_S


def test_faults_come_at_their_times_since_the_safety_phase_began() -> None:
    scenario = with_faults(
        Fault(2.0, "crash", ("broker-2",)), Fault(0.5, "partition", ("broker-1",), ("broker-3",), 1.0)
    )
    run = Play(scenario, seed=1)
    result = run.run()
    safety_s = dict(result.phases)["safety_s"]
    done = {span.fault.kind: span for span in run.world.ongoing.spans}
    assert done["crash"].start_s == pytest.approx(safety_s + 2.0)
    assert done["partition"].start_s == pytest.approx(safety_s + 0.5)
    assert done["partition"].end_s == pytest.approx(safety_s + 1.5)


def test_the_heal_starts_processes_that_are_down_and_ends_lasting_faults() -> None:
    scenario = with_faults(
        Fault(0.0, "crash", ("broker-2", "sub-1")),
        Fault(0.0, "pause", ("broker-3",)),
        Fault(0.0, "partition", ("broker-1",), ("broker-2",)),
    )
    told: list[tuple[float, str]] = []
    run = Play(scenario, seed=2, say=lambda now_s, text: told.append((now_s, text)))
    result = run.run()
    assert result.whole_in_s is not None and result.whole_in_s < 30
    assert run.world.node("broker-2").lives == 2 and run.world.node("sub-1").lives == 2
    texts = [text for _, text in told if text]
    assert texts.index("crash broker-2 sub-1") < texts.index("heal") < texts.index("quiet for 2 s")
    assert any(text.startswith("heal: whole in ") for text in texts)
    assert [text for _, text in told].count("") >= 10  # a virtual second each


def test_an_impossible_fault_is_skipped_and_reported() -> None:
    scenario = with_faults(
        Fault(0.0, "crash", ("broker-2",)),
        Fault(1.0, "pause", ("broker-2",)),
        Fault(2.0, "crash", ("broker-2", "broker-3")),
        Fault(3.0, "resume", ("broker-1",)),
    )
    told: list[str] = []
    result = play(scenario, seed=3, say=lambda now_s, text: told.append(text))
    assert "pause broker-2: passed over, since it cannot be done now" in told
    assert "resume broker-1: passed over, since it cannot be done now" in told
    assert "crash broker-3" in told
    assert not any("pause" in fault or "resume" in fault for fault in result.faults)


def test_a_mesh_that_is_not_whole_in_time_fails_and_the_run_continues() -> None:
    result = play(with_faults(Fault(0.0, "crash", ("broker-2",)), bound_s=0.001), seed=1)
    assert result.whole_in_s is None
    assert "whole_s" not in dict(result.phases) and "end_s" in dict(result.phases)
    assert "converged" in result.failed


def test_a_mesh_that_is_whole_for_a_moment_only_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a heal all may see each other alive while a death is on its way."""

    healed_s: dict[World, float] = {}

    def whole(world: World, brokers: Iterable[str]) -> bool:
        since_s = world.now_s - healed_s.setdefault(world, world.now_s)
        return not 0.2 < since_s < 1.5

    monkeypatch.setattr(wholeness, "is_whole", whole)
    result = play(with_faults(Fault(0.0, "crash", ("broker-2",))), seed=1)
    assert result.whole_in_s == pytest.approx(1.5, abs=0.06)
    late = play(with_faults(Fault(0.0, "crash", ("broker-2",)), bound_s=1.0), seed=1)
    assert late.whole_in_s is None and "whole_s" not in dict(late.phases)


def test_the_founder_rejoins_even_without_its_state() -> None:
    lost = Fault(0.0, "restart", ("broker-1",), value=1.0, more=(("how", "stop"), ("state", "lost")))
    result = play(with_faults(lost), seed=1)
    assert result.whole_in_s is not None


def test_spares_are_started_by_a_fault_and_belong_to_the_mesh_from_then_on() -> None:
    scenario = replace(SMALL, spares=2, faults=(Fault(0.0, "start", ("1 of spares",)),))
    run = Play(scenario, seed=1)
    result = run.run()
    assert result.ok, result.verdicts
    assert sorted(run.world.node(name).lives for name in ("broker-4", "broker-5")) == [0, 1]
    assert run.world.node("broker-4").state is NodeState.DOWN


def test_the_same_scenario_and_seed_make_the_same_run_and_another_seed_another() -> None:
    scenario = with_faults(Fault(0.0, "crash", ("1 of brokers",), more=(("at_s:most", 2.0),)))
    one, same, other = (play(scenario, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.history_hash != other.history_hash


def test_a_played_scenario_can_be_written_and_played_again() -> None:
    scenario = with_faults(Fault(0.0, "crash", ("1 of brokers",), more=(("at_s:most", 2.0),)))
    result = play(scenario, seed=4)
    assert result.scenario.faults[0].a[0].startswith("broker-")
    again = play(parse(write(result.scenario)), seed=4)
    assert again.history_hash == result.history_hash


def test_a_result_is_plain_data() -> None:
    result = play(SMALL, seed=1)
    assert pickle.loads(pickle.dumps(result)) == result
    shown = result.as_json()
    assert shown["scenario"] == "small" and shown["nodes"] == 3 and shown["ok"] is True
    assert shown["whole_in_s"] == 0.0 and shown["phases"]["clients_s"] > 0


def test_the_full_size_is_played_on_request() -> None:
    scenario = replace(SMALL, full=(("brokers", 4), ("quiet_s", 3.0)))
    small, full = play(scenario, seed=1), play(scenario, seed=1, size="full")
    assert (small.scenario.brokers, full.scenario.brokers) == (3, 4)
    assert (small.size, full.size) == ("ci", "full")


def test_too_many_brokers_are_refused_before_the_run() -> None:
    scenario = Scenario("crowd", brokers=BROKERS_MAX + 1, waiting_for="the bounded overlay")
    with pytest.raises(ValueError, match="crowd has 129 brokers.*waits for the bounded overlay"):
        play(scenario, seed=1)


def test_heartbeats_and_links_are_as_the_scenario_has_them() -> None:
    scenario = replace(
        SMALL, period_s=0.5, deadline_s=0.25, network=LinkQuality(latency_s=0.02, jitter_s=0.0)
    )
    run = Play(scenario, seed=1)
    assert run.run().ok
    assert run.evidence is not None
    beats = [row for row in run.evidence.rows if row["kind"] == "hb" and row["msg"] == "answer"]
    assert all(39_000 < row["rtt_us"] < 45_000 for row in beats)
    meta = [row for row in run.evidence.rows if row["kind"] == "meta"]
    assert {(row["period_s"], row["deadline_s"]) for row in meta} == {(0.5, 0.25)}


def test_expectations_are_judged_beside_the_invariants_of_every_run() -> None:
    scenario = with_faults(
        Fault(0.0, "crash", ("broker-2",), for_s=8.0),
        expect=(Expectation("converged"), Expectation("detected")),
    )
    asked = [verdict.check for verdict in play(scenario, seed=1).verdicts]
    assert asked.count("converged") == asked.count("detected") == 1
    assert {"at_most_once", "in_order", "genuine", "complete", "sound"} <= set(asked)


def test_coverage_counts_the_states_that_each_fault_met() -> None:
    scenario = with_faults(
        Fault(0.0, "partition", ("broker-1",), ("broker-2",), 2.0),
        Fault(1.0, "crash", ("broker-3",)),
        Fault(1.01, "start", ("broker-3",)),
        Fault(4.0, "pause", ("broker-1",), for_s=0.5),
    )
    coverage = play(scenario, seed=1).coverage
    assert coverage["partition"] == {"under load": 1}
    assert coverage["crash"] == {"under load": 1, "partitioned": 1}
    assert coverage["start"] == {"under load": 1, "down": 1, "partitioned": 1, "struck": 1}
    assert coverage["pause"] == {"under load": 1, "healing": 1, "struck": 1}
    idle = replace(scenario, workload=Workload(publishers=0, subscribers=1))
    assert play(idle, seed=1).coverage["partition"] == {"idle": 1}


def test_links_that_are_slow_or_refuse_are_impaired_and_not_partitioned() -> None:
    scenario = with_faults(
        Fault(0.0, "slow_link", ("broker-1",), for_s=3.0),
        Fault(1.0, "pause", ("broker-2",), for_s=0.1),
        Fault(5.0, "rolling_partition", ("broker-3",), value=1.0, more=(("gap_s", 20.0),)),
        Fault(5.5, "pause", ("broker-1",), for_s=0.1),
        Fault(16.0, "pause", ("broker-1",), for_s=0.1),
    )
    coverage = play(scenario, seed=1).coverage
    assert coverage["pause"] == {"under load": 3, "impaired": 1, "partitioned": 1, "healing": 1}


def test_members_that_join_or_leave_during_a_fault_are_counted() -> None:
    scenario = with_faults(
        Fault(0.0, "stop", ("broker-3",)),
        Fault(0.001, "pause", ("broker-3",), for_s=0.1),
        Fault(2.0, "start", ("broker-3",)),
        Fault(2.001, "pause", ("broker-3",), for_s=0.1),
    )
    pauses = play(scenario, seed=1).coverage["pause"]
    assert pauses["leaving"] == 1 and pauses["joining"] == 1


def test_figures_are_of_this_run() -> None:
    result = play(with_faults(Fault(0.0, "crash", ("broker-2",), for_s=6.0)), seed=1)
    detection = result.measures.detection_s
    assert detection is not None and detection.count == 2 and 2 < detection.most < 6
    assert result.measures.false_deaths == 0 and result.measures.messages_per_broker_s is not None


def test_requests_between_clients_are_judged() -> None:
    workload = Workload(
        publishers=0, subscribers=0, askers=1, answerers=2, ask_pause_s=0.1, ask_timeout_s=0.5
    )
    pause = Fault(1.0, "pause", ("answer-1",), for_s=2.0)
    run = Play(with_faults(pause, workload=workload, expect=(Expectation("surveys_return"),)), seed=1)
    result = run.run()
    assert result.ok, result.verdicts
    questions = run.ledger.questions
    assert result.counts["asked"] == len(questions) > 50
    answers = [{answer.responder for answer in question.answers} for question in questions]
    assert {"answer-1", "answer-2"} in answers and {"answer-2"} in answers
    assert all(question.ended_s is not None for question in questions)


def test_figures_compared_with_a_paper_are_in_the_result() -> None:
    scenario = with_faults(
        Fault(0.0, "crash", ("broker-2",), for_s=6.0),
        paper="ten seconds",
        compared="detection_s, detected",
        expect=(Expectation("detected"),),
    )
    result = play(scenario, seed=1)
    detection, detected = result.ours.split("; ")
    assert re.fullmatch(r"dead after 2\.\d\d s \(median of 2\), at most 2\.\d\d s", detection)
    assert detected.startswith("detected: ")
    assert (result.as_json()["theirs"], result.as_json()["ours"]) == ("ten seconds", result.ours)
    assert play(with_faults(), seed=1).ours == ""


def test_logs_that_cannot_be_written_are_known_before_the_run() -> None:
    with pytest.raises(OSError):
        Play(SMALL, seed=1, out="/proc/nowhere")
