"""The default messages to an operator: few warnings, whatever happens, and a report when each trouble
ends."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from mesh import Broker, Client
from mesh.broker.notices import ADVICE, BACK_S, BURST, NAMESAKES_MAX, OVER_S, PAUSE_S, Notices
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of


class Log:
    """A clock, and the warnings so far."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self._caplog = caplog
        self.notices = Notices("alpha", lambda: self.now)

    def take(self) -> list[str]:
        """The warnings since the last call, without the broker's name."""
        found = [record for record in self._caplog.records if record.levelno == logging.WARNING]
        lines = [record.getMessage().removeprefix("broker alpha: ") for record in found]
        self._caplog.clear()
        return lines


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def test_a_death_and_its_end_are_reported_and_a_suspicion_is_not(log: Log) -> None:
    log.notices.member("beta", "alive", "suspect", "missed 1")
    log.notices.member("beta", "suspect", "alive", "answered")
    assert log.take() == []
    log.notices.member("beta", "suspect", "dead", "missed 3")
    log.notices.member("beta", "dead", "alive", "a new boot")
    assert log.take() == [
        "beta is dead: missed 3; if nobody stopped it, check its process, host and network",
        "beta, which was dead, is alive again",
    ]


def test_a_link_that_ends_in_order_is_no_warning(log: Log) -> None:
    for reason in ("left", "duplicate", "replaced", "connection reset"):
        log.notices.link_lost("beta", reason)
    assert log.take() == ["the link to beta is lost: connection reset; it is made again if both are alive"]


def test_a_link_that_the_other_broker_replaced_is_no_warning(log: Log) -> None:
    """Two of sixteen brokers that started at once warned of a lost link that was there all the time."""
    for name in ("beta", "gamma"):
        log.notices.link_lost(name, "heartbeat connection lost: closed by the peer")
    log.notices.link_up("1", "2", "beta")
    log.now += BACK_S / 2
    log.notices.tick()
    assert log.take() == []
    log.now += BACK_S / 2
    log.notices.tick()
    log.notices.tick()
    assert log.take() == [
        "the link to gamma is lost: heartbeat connection lost: closed by the peer; it is made again if both"
        " are alive"
    ]


def test_isolation_and_its_end_are_reported_once(log: Log) -> None:
    for state in ("joining", "ready", "isolated", "ready", "ready"):
        log.notices.state(state)
    assert log.take() == [
        "no other broker answers; this broker is isolated: check its network",
        "other brokers answer again; this broker is no longer isolated",
    ]


def test_dropped_messages_are_reported_by_interval_and_reason(log: Log) -> None:
    log.notices.drops({"slow_subscriber": 3, "duplicate": 7}, 5.0)
    log.notices.drops({"slow_subscriber": 3, "duplicate": 9}, 5.0)
    log.notices.drops({"slow_subscriber": 13, "slow_link": 1, "duplicate": 9}, 5.0)
    assert log.take() == [
        "messages dropped within 5 s, by reason: slow_subscriber 3; " + ADVICE["slow_subscriber"],
        "messages dropped within 5 s, by reason: slow_subscriber 10, slow_link 1; "
        + ADVICE["slow_subscriber"],
    ]


def test_another_broker_of_the_same_name_is_reported_once_with_both_ids(log: Log) -> None:
    log.notices.link_up("00aa", "00bb", "beta")
    assert log.take() == []
    for id in ("00cc", "00cc", "00dd"):
        log.notices.link_up("00aa", id, "alpha")
    told = log.take()
    assert ["00cc" in line for line in told] == [True, False] and "00dd" in told[1]
    assert all("the same name" in line and "00aa" in line for line in told)


def test_the_ids_of_brokers_of_the_same_name_are_bounded(log: Log) -> None:
    for number in range(NAMESAKES_MAX + 1):
        log.now += PAUSE_S
        log.notices.link_up("00aa", f"{number:04x}", "alpha")
    assert len(log.take()) == NAMESAKES_MAX + 1 and len(log.notices._namesakes) == NAMESAKES_MAX


def test_warnings_of_a_kind_are_bounded_and_omitted_ones_are_counted(log: Log) -> None:
    for number in range(1000):
        log.notices.member(f"b-{number}", "suspect", "dead", "missed 3")
    assert len(log.take()) == BURST
    log.notices.link_lost("beta", "reset")
    assert len(log.take()) == 1, "another kind has its own limit"
    log.now += PAUSE_S
    log.notices.member("gamma", "suspect", "dead", "missed 3")
    log.notices.member("delta", "suspect", "dead", "missed 3")
    assert log.take() == [
        "gamma is dead: missed 3; if nobody stopped it, check its process, host and network"
        " (990 more warnings of deaths were left out before this one)"
    ]
    log.now += 3600
    for number in range(1000):
        log.notices.member(f"b-{number}", "suspect", "dead", "missed 3")
    assert len(log.take()) == BURST


def test_the_number_of_omitted_warnings_is_reported_when_they_have_ended(log: Log) -> None:
    """The count came with the next warning of the kind, so that of the last flood was never reported."""
    for number in range(100):
        log.notices.member(f"b-{number}", "suspect", "dead", "missed 3")
    log.take()
    log.now += OVER_S - 1
    log.notices.tick()
    assert log.take() == []
    log.now += 1
    log.notices.tick()
    assert log.take() == ["90 more warnings of deaths were left out; there are none now"]
    log.now += OVER_S
    log.notices.tick()
    assert log.take() == []


def test_one_omitted_warning_is_told_in_the_singular(log: Log) -> None:
    for number in range(BURST + 1):
        log.notices.member(f"b-{number}", "suspect", "dead", "missed 3")
    log.take()
    log.now += OVER_S
    log.notices.tick()
    assert log.take() == ["1 more warning of deaths was left out; there are none now"]


def test_a_notice_names_its_broker_and_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    Notices("alpha", lambda: 0.0).link_lost("beta", "reset")
    [record] = caplog.records
    assert (record.__dict__["broker"], record.__dict__["kind"]) == ("alpha", "lost links")


def told_by(name: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of one broker since the last call, without its name."""
    start = f"broker {name}: "
    found = [record for record in caplog.records if record.levelno == logging.WARNING]
    lines = [
        record.getMessage().removeprefix(start) for record in found if record.getMessage().startswith(start)
    ]
    caplog.clear()
    return lines


def test_a_death_and_a_lost_link_are_warnings_of_real_brokers(caplog: pytest.LogCaptureFixture) -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.run_for(3)
        caplog.clear()
        world.inject("crash", ["broker-2"])
        world.run_for(10)
        lost, dead = told_by("broker-1", caplog)
        assert lost.startswith("the link to broker-2 is lost: ") and dead.startswith("broker-2 is dead: ")
        world.inject("start", ["broker-2"])
        world.run_for(10)
        assert told_by("broker-1", caplog) == ["broker-2, which was dead, is alive again"]
        mesh.finish()


def test_two_brokers_of_one_name_both_warn_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    """They linked silently; only the console showed that there were two."""
    ids: list[str] = []

    async def twin(process: Process, join: str | None = None) -> None:
        environment = environment_of(process)
        url = url_of(process.address)
        async with Broker(name="twin", listen=url, join=join or (), environment=environment) as twin:
            ids.append(twin.statistics()["id"])
            await process.stopping.wait()

    with World(1) as world:
        world.add_node("one", twin)
        world.inject("start", ["one"])
        world.run_for(2.0)
        world.add_node("two", partial(twin, join=url_of("10.0.0.1")))
        world.inject("start", ["two"])
        world.run_for(3.0)
        world.inject("reset", ["one"], ["two"])
        world.run_for(5.0)
    told = [line for line in told_by("twin", caplog) if "the same name" in line]
    assert len(told) == len(ids) == 2 and all(id in line for id in ids for line in told)
    assert told[0] != told[1]


def test_isolation_and_its_end_are_warnings_of_a_real_broker(caplog: pytest.LogCaptureFixture) -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=4)
        world.run_for(3)
        caplog.clear()
        world.inject("isolate", ["broker-1"])
        world.run_for(10)
        assert any(line.startswith("no other broker answers") for line in told_by("broker-1", caplog))
        world.heal()
        world.run_for(15)
        end = "other brokers answer again; this broker is no longer isolated"
        assert end in told_by("broker-1", caplog)
        mesh.finish()


def test_a_broker_that_leaves_causes_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        world.run_for(3)
        caplog.clear()
        mesh.finish()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_slow_subscriber_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def sleep(client: Client) -> None:
        async with client.subscribe("news.#", window=1, window_bytes=1):
            await asyncio.sleep(1e6)

    async def flood(client: Client) -> None:
        for _ in range(40):
            await client.publish_many("news.uk", [b"x" * 1000] * 1000, level="sent")

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        mesh.client("sleeper", sleep, at="broker-2")
        world.run_for(2)
        mesh.client("flooder", flood, at="broker-1")
        world.run_for(30)
        dropped = mesh.broker("broker-2").statistics()["drops"].get("slow_subscriber", 0)
        assert dropped
        told = [record.getMessage() for record in caplog.records if "messages dropped" in record.getMessage()]
        assert told[0].startswith("broker broker-2: messages dropped within 5 s, by reason: slow_subscriber")
        mesh.finish()
