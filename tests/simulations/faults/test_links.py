"""Slow, lossy and narrow links, by bytes and seconds; each is reversed separately."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from simulations.kernel.network import LAN, Bursts, Link, LinkQuality, Network
from simulations.kernel.scheduler import SECOND, Scheduler
from simulations.world import World
from tests.simulations.echoing import Echo, Recorder, dial, serve, wait_exposed


def pair(world: World, factory: Callable[[], Any] = Echo) -> tuple[Any, Recorder]:
    world.add_node("server", serve(factory)).start()
    world.run_for(0.1)
    world.add_node("client", dial("server")).start()
    wait_exposed(world, "client")
    world.run_for(0.1)
    return world.node("server").exposed[0], world.node("client").exposed


def round_trip_s(world: World, client: Recorder) -> float:
    before = len(client.data)
    client.transport.write(b"x")
    return world.run_until(lambda: len(client.data) > before, timeout_s=2000, poll_s=0.0005)


def delays(world: World, count: int = 2000) -> list[float]:
    hosts = world.network.hosts
    link = world.network.link(hosts["client"], hosts["server"])
    return [link.delay_ns() / SECOND for _ in range(count)]


def test_delays_of_slow_links_add_up_in_one_or_both_directions_and_end() -> None:
    with World(1) as world:
        _, client = pair(world)
        assert round_trip_s(world, client) < 0.002
        world.inject("slow_link", ["client"], ["server"], 0.1)
        assert round_trip_s(world, client) == pytest.approx(0.2, abs=0.002)
        world.inject("slow_link", ["server"], ["client"], 0.05, ways="there", for_s=5)
        assert round_trip_s(world, client) == pytest.approx(0.25, abs=0.002)
        world.run_for(5)
        assert round_trip_s(world, client) == pytest.approx(0.2, abs=0.002)
        world.heal()
        assert round_trip_s(world, client) < 0.002


@pytest.mark.parametrize(("value", "takes_s"), [(0, 0.0), (None, 0.2), (0.05, 0.1)])
def test_a_slow_link_with_a_delay_of_0_does_not_get_the_default_delay(
    value: float | None, takes_s: float
) -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("slow_link", ["client"], ["server"], value)
        assert round_trip_s(world, client) == pytest.approx(takes_s, abs=0.002)


def test_one_way_slowness_affects_the_direction_from_a_to_b() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("slow_link", ["client"], ["server"], 0.1, ways="there")
        client.transport.write(b"x")
        server.transport.write(b"y")
        world.run_for(0.01)
        assert client.data == b"y" and server.data == b""
        world.run_for(0.1)
        assert server.data == b"x"


@pytest.mark.parametrize(
    ("shape", "median_s", "p99_s"),
    [("uniform", 0.05, 0.099), ("exponential", 0.0693, 0.4605), ("lognormal", 0.1, 1.024)],
)
def test_jitter_has_the_requested_shape(shape: str, median_s: float, p99_s: float) -> None:
    with World(1) as world:
        pair(world)
        world.inject("slow_link", ["client"], ["server"], 1.0, jitter_s=0.1, shape=shape)
        drawn = sorted(each - 1.0004 for each in delays(world, 20_000))
        assert drawn[10_000] == pytest.approx(median_s, rel=0.05)
        assert drawn[19_800] == pytest.approx(p99_s, rel=0.1)
        world.heal()
        assert max(delays(world)) < 0.001


def test_a_tail_takes_its_share_of_packets_and_all_behind_them_wait() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("slow_link", ["client"], ["server"], 0.0001, tail=0.01, tail_s=2)
        late = [each for each in delays(world, 20_000) if each > 2]
        assert len(late) == pytest.approx(200, rel=0.25)
        world.inject("slow_link", ["client"], ["server"], 0.0001, tail=1, tail_s=3, for_s=0.01)
        client.transport.write(b"late ")
        world.run_for(0.02)
        client.transport.write(b"behind it")
        world.run_for(2.9)
        assert server.data == b""
        world.run_for(2.2)  # the second may have had a tail itself
        assert server.data == b"late behind it"


def test_a_lossy_link_costs_retransmissions_and_loses_nothing() -> None:
    with World(1) as world:
        _, client = pair(world)
        world.inject("lossy_link", ["client"], ["server"], 0.3)
        times = [round_trip_s(world, client) for _ in range(200)]
        stalled = [each for each in times if each > 0.19]
        assert len(stalled) == pytest.approx(200 * (1 - 0.7 * 0.7), rel=0.25)
        assert all(each == pytest.approx(round(each / 0.2) * 0.2, abs=0.01) for each in stalled)
        assert len(client.data) == 200
        world.heal()
        assert max(round_trip_s(world, client) for _ in range(50)) < 0.002


def test_a_retransmission_is_subject_to_the_link_at_its_own_time() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("lossy_link", ["client"], ["server"], 0.999, for_s=10)
        client.transport.write(b"x")
        world.run_for(9)
        assert server.data == b""
        world.inject("heal")
        world.run_for(12.8 - 9 + 0.01)  # sent again after 0.2, 0.4, 0.8, 1.6, 3.2, 6.4 and 12.8 s
        assert server.data == b"x"


def test_packets_that_never_pass_time_out_like_a_cut() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("lossy_link", ["client"], ["server"], 0.999, ways="there")
        client.transport.write(b"x")
        world.run_for(1100)
        assert isinstance(client.error, TimeoutError)
        assert server.data == b""


def test_a_lost_packet_holds_back_those_behind_it_and_they_need_not_be_sent_again() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("lossy_link", ["client"], ["server"], 0.999, for_s=0.1)
        client.transport.write(b"first ")
        world.run_for(0.1)
        client.transport.write(b"second")
        world.run_for(0.05)
        assert server.data == b""
        world.run_for(0.06)
        assert server.data == b"first second"


def test_chances_of_loss_combine_and_are_taken_back_alone() -> None:
    with World(1) as world:
        pair(world)
        world.inject("lossy_link", ["client"], ["server"], 0.5, for_s=1)
        world.inject("lossy_link", ["client"], ["server"], 0.2)

        def lost() -> float:
            hosts = world.network.hosts
            link = world.network.link(hosts["client"], hosts["server"])
            return sum(link.loses() for _ in range(10_000)) / 10_000

        assert lost() == pytest.approx(0.6, abs=0.02)
        world.run_for(2)
        assert lost() == pytest.approx(0.2, abs=0.02)


def test_bursts_lose_everything_for_a_while_and_nothing_between() -> None:
    scheduler = Scheduler()
    network = Network(scheduler, 7)
    one, other = network.add_host("one"), network.add_host("other")
    link = network.link(one, other)
    link.impair(LinkQuality(0, 0, bursts=Bursts(2.0, 8.0)))
    bad: list[bool] = []
    for _ in range(100_000):
        scheduler.advance_to(scheduler.now_ns + SECOND // 50)
        bad.append(link.loses())
    assert statistics.fmean(bad) == pytest.approx(0.2, abs=0.05)
    lengths = [len(run) for run in "".join("x" if each else " " for each in bad).split()]
    assert statistics.fmean(lengths) / 50 == pytest.approx(
        2.0, rel=0.25
    )  # with even losses it would be 0.025


def test_a_packet_lost_in_a_burst_arrives_by_a_retransmission_after_it() -> None:
    with World(3) as world:
        _, client = pair(world)
        world.inject("bursty_link", ["client"], ["server"], 1.0, between_s=1.0, ways="there")
        times = []
        for _ in range(40):
            times.append(round_trip_s(world, client))
            world.run_for(0.3)
        late = [each for each in times if each > 0.1]
        assert 5 <= len(late) <= 35
        rungs_s = [0.0, *(0.2 * 2**rung for rung in range(12))]
        assert all(min(abs(each - rung_s) for rung_s in rungs_s) < 0.01 for each in times)
        world.heal()
        assert round_trip_s(world, client) < 0.002


def test_half_a_loss_within_bursts_is_half_of_the_packets_of_bursts() -> None:
    link, scheduler = _link()
    link.impair(LinkQuality(0, 0, bursts=Bursts(1000.0, 0.001, loss=0.5)))
    scheduler.advance_to(SECOND)
    drawn = [link.loses() for _ in range(4000)]
    assert statistics.fmean(drawn) == pytest.approx(0.5, abs=0.03)


def _link() -> tuple[Link, Scheduler]:
    scheduler = Scheduler()
    network = Network(scheduler, 1)
    return network.link(network.add_host("one"), network.add_host("other")), scheduler


def test_a_narrow_link_delays_bytes_by_its_rate_in_order() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("narrow_link", ["client"], ["server"], 10_000, ways="there")
        client.transport.write(b"x" * 20_000)
        world.run_for(0.5)
        client.transport.write(b"y")
        world.run_for(1.49)
        assert server.data == b""
        world.run_for(0.02)
        assert len(server.data) == 20_001
        world.heal()
        client.transport.write(b"z" * 100_000)
        world.run_for(0.01)
        assert len(server.data) == 120_001


def test_packets_lost_at_a_full_queue_are_sent_again_by_tcp() -> None:
    with World(1) as world:
        server, client = pair(world, Recorder)
        world.inject("narrow_link", ["client"], ["server"], 10_000, queue_bytes=2000)
        arrived_s = []
        expected = b""
        for number in range(20):
            client.transport.write(b"%03d," % number * 250)
            expected += b"%03d," % number * 250
        for _ in range(400):
            world.run_for(0.01)
            arrived_s.append((round(world.now_s, 2), len(server.data)))
        assert server.data == expected
        gaps = [
            later[0] - earlier[0]
            for earlier, later in zip(
                [each for each in arrived_s if each[1]],
                [each for each in arrived_s if each[1]][1:],
                strict=False,
            )
            if later[1] > earlier[1]
        ]
        assert len(gaps) >= 6  # it comes as the line carries it: three a round, then the rest again
        took_s = next(at_s for at_s, size in arrived_s if size == 20_000) - 0.2
        assert took_s > 2.0  # twenty times 0.1 s, and some rounds in which the line was idle


def test_the_narrowest_of_several_faults_counts() -> None:
    link, scheduler = _link()
    link.impair(LinkQuality(0, 0, bandwidth_bytes_s=1000))
    link.impair(LinkQuality(0, 0, bandwidth_bytes_s=100_000))
    assert (link.arrival_ns(1000) or 0) == pytest.approx(SECOND, rel=0.01)
    link.repair(LinkQuality(0, 0, bandwidth_bytes_s=1000))
    scheduler.advance_to(2 * SECOND)
    assert (link.arrival_ns(1000) or 0) == pytest.approx(2 * SECOND + SECOND // 100, rel=0.01)


def test_an_untouched_link_draws_once_a_packet_from_a_stream_of_its_own() -> None:
    link, _ = _link()
    rng = random.Random("1:net:one>other")
    assert [link.delay_ns() for _ in range(5)] == [300_000 + int(200_000 * rng.random()) for _ in range(5)]
    assert LAN.latency_s == 0.0003


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LinkQuality(loss=1), "loss in"),
        (lambda: LinkQuality(bandwidth_bytes_s=0), "above 0"),
        (lambda: LinkQuality(shape="bell"), "uniform, exponential or lognormal, got 'bell'"),
        (lambda: LinkQuality(tail=2), "tail in"),
        (lambda: Bursts(0, 1), "lengths above 0"),
    ],
)
def test_impossible_qualities_are_refused_with_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_links_between_hosts_leave_connections_within_a_host_alone() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo), host="one").start()
        world.add_node("elsewhere", serve(Echo)).start()
        world.run_for(0.1)
        world.add_node("client", dial("one"), host="one").start()
        wait_exposed(world, "client")
        for kind in ("slow_link", "lossy_link", "narrow_link", "partition", "isolate"):
            world.inject(kind, ["one"])
        assert round_trip_s(world, world.node("client").exposed) < 0.001


def test_the_same_hosts_on_both_sides_mean_each_link_among_them_once() -> None:
    with World(1) as world:
        for name in ("one", "two", "three", "away"):
            world.network.add_host(name)
        hosts = world.network.hosts

        def extra_s(source: str, target: str) -> float:
            return world.network.link(hosts[source], hosts[target]).delay_ns() / SECOND

        all_three = ["one", "two", "three"]
        world.inject("slow_link", all_three, all_three, 0.1, for_s=5)
        for source in all_three:
            for target in all_three:
                if source != target:
                    assert extra_s(source, target) == pytest.approx(0.1, abs=0.002)
        assert extra_s("one", "away") < 0.002 and extra_s("away", "one") < 0.002
        world.run_for(6)
        assert extra_s("one", "two") < 0.002
        with pytest.raises(ValueError, match="slow_link has one on both sides"):
            world.inject("slow_link", ["one", "two"], ["one", "three"], 0.1)
