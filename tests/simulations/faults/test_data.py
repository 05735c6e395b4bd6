"""Foreign input: strangers and liars lose their connection, and no other broker is affected."""

from __future__ import annotations

import pytest

from simulations.world import World
from tests.simulations.faults.meshes import all_alive, incarnation, inspect, mesh, states


def refused(world: World, name: str) -> dict[str, int]:
    return {reason: times for reason, times in inspect(world, name).peering.refused.items() if times}


@pytest.mark.parametrize(
    ("kind", "counted", "said"),
    [
        (
            "garbage",
            {"malformed": 2},
            ["closed", "not a broker's greeting", "closed", "not a broker's greeting"],
        ),
        (
            "truncated_frame",
            {"malformed": 2},
            ["no msgpack", "left inside a frame", "no msgpack", "left inside a frame"],
        ),
        ("huge_frame", {}, ["closed"] * 4),
        ("wrong_key", {"key": 4}, ["the peer has another mesh key"] * 4),
        ("wrong_version", {"version": 4}, ["no common version of the link: the peer speaks version 3"] * 4),
        ("replayed_admission", {"key": 4}, ["the peer has another mesh key"] * 4),
    ],
)
def test_strangers_are_refused_each_time_and_counted(
    kind: str, counted: dict[str, int], said: list[str]
) -> None:
    with mesh() as world:
        world.inject(kind, ["broker-2"], value=4)
        stranger = world.node("stranger-1")
        world.run_until(lambda: not stranger.alive, timeout_s=20, what="the end of the stranger")
        assert stranger.process is not None
        outcomes = stranger.process.exposed
        assert len(outcomes) == 4
        assert all(word in outcome for word, outcome in zip(said, outcomes, strict=True)), outcomes
        assert refused(world, "broker-2") == counted
        assert not refused(world, "broker-1")
        assert all_alive(world) and "stranger-1" not in states(world, "broker-2")
        world.heal()
        assert not stranger.alive


def test_a_replayed_admission_was_a_good_one_the_first_time() -> None:
    """Otherwise its refusal would prove nothing: one connection is admitted, and one repeats it."""
    with mesh() as world:
        world.inject("replayed_admission", ["broker-2"], value=1)
        seen: list[str] = []
        while world.node("stranger-1").alive:
            world.run_for(0.001)
            seen += inspect(world, "broker-2").admissions
        assert "bind" in seen


def test_a_host_that_is_down_is_skipped() -> None:
    with mesh() as world:
        world.inject("crash", ["broker-2"])
        world.inject("garbage", ["broker-2"])
        assert "stranger-1" not in world.nodes


def test_a_forged_death_of_a_member_that_answers_is_a_suspicion_until_it_refutes() -> None:
    with mesh() as world:
        world.inject("forged_dead", ["broker-2"], ["broker-3"])
        seen = []
        for _ in range(100):
            world.run_for(0.00005)
            seen.append(states(world, "broker-1")["broker-2"])
        assert "suspect" in seen and "dead" not in seen and seen[-1] == "alive"
        assert incarnation(world, "broker-2") == 2
        assert states(world, "broker-3")["broker-2"] == "alive"
        world.run_for(5)
        assert all_alive(world)


def test_an_incarnation_out_of_reach_is_refused_by_all_brokers_that_receive_it() -> None:
    with mesh() as world:
        world.inject("huge_incarnation", ["broker-2"], ["broker-3"])
        world.run_for(5)
        assert [inspect(world, name).peering.refused_records for name in world.nodes] == [1, 1, 0]
        assert all_alive(world) and incarnation(world, "broker-2") == 1


def test_an_incarnation_that_no_record_can_carry_costs_the_liar_its_links_for_a_moment() -> None:
    with mesh() as world:
        world.inject("huge_incarnation", ["broker-2"], ["broker-3"], value=64)
        world.run_for(0.1)
        assert refused(world, "broker-1") == refused(world, "broker-2") == {"malformed": 1}
        world.run_for(5)
        assert all_alive(world) and len(inspect(world, "broker-3").linked) == 2


def test_old_news_changes_nothing() -> None:
    with mesh() as world:
        world.inject("replayed_news", ["broker-1"], ["broker-3"], value=6)
        world.inject("forged_dead", ["broker-2"], ["broker-1"])
        world.run_for(5)
        frames = inspect(world, "broker-3").frames_out.bus
        world.run_for(2)
        assert inspect(world, "broker-3").frames_out.bus > frames
        assert all_alive(world) and incarnation(world, "broker-2") == 2
