"""The cores alone tell the same story as full brokers: the same deaths and returns, in order and time."""

from __future__ import annotations

import math
from functools import cache

import pytest

from simulations import cores, programs
from simulations.cores import Change
from simulations.evidence import truth
from simulations.evidence.logs import log_rows
from simulations.faults import Fault
from simulations.world import World

BROKERS = 5
WARM_S = 5.0
NAMES = [f"broker-{number}" for number in range(1, BROKERS + 1)]
EPSILON_S = 1.1
"""Rounds of the two runs begin at other moments of a period, so a verdict may differ by one round plus the
latency.
"""

SCENARIOS = {
    "a crash and a restart": (
        [Fault(2.0, "crash", ("broker-3",)), Fault(12.0, "start", ("broker-3",))],
        25.0,
    ),
    "a host without power": (
        [Fault(2.0, "power_off", ("broker-4",)), Fault(12.0, "start", ("broker-4",))],
        25.0,
    ),
    "a pause and then a crash of another": (
        [Fault(2.0, "pause", ("broker-2",), for_s=8.0), Fault(20.0, "crash", ("broker-5",))],
        30.0,
    ),
    "one broker cut off": (
        [Fault(2.0, "isolate", ("broker-1",), for_s=8.0)],
        30.0,
    ),
    "a split of three and two": (
        [Fault(2.0, "partition", ("broker-1", "broker-2"), for_s=8.0)],
        30.0,
    ),
    "two crashes at once": (
        [Fault(2.0, "crash", ("broker-2", "broker-3")), Fault(12.0, "start", ("broker-2", "broker-3"))],
        25.0,
    ),
    "one broker three times": (
        [Fault(at_s, "crash", ("broker-3",), for_s=6.0) for at_s in (2.0, 14.0, 26.0)],
        40.0,
    ),
    "one broker after another": (
        # No power_off: it removes rows from logs, and with them the next broker's view of the one before.
        [Fault(2.0 + 10 * n, "crash", (name,), for_s=6.0) for n, name in enumerate(NAMES)],
        60.0,
    ),
    "one edge cut": (
        [Fault(2.0, "partition", ("broker-1",), ("broker-4",), for_s=10.0)],
        30.0,
    ),
    "a broker that hears nothing": (
        [Fault(2.0, "cut_one_way", (), ("broker-2",), for_s=8.0)],
        30.0,
    ),
    "a bridge, and a crash": (
        [
            Fault(2.0, "bridge", ("broker-3",), for_s=20.0),
            Fault(12.0, "restart", ("broker-4",), value=6.0),
        ],
        40.0,
    ),
    "one broker after another alone": (
        [Fault(2.0, "rolling_partition", value=8.0, more=(("gap_s", 6.0),))],
        80.0,
    ),
    "slow links, and a crash": (
        [
            Fault(1.0, "slow_link", ("broker-1",), value=0.1, for_s=25.0),
            Fault(5.0, "crash", ("broker-3",), for_s=8.0),
        ],
        30.0,
    ),
}


@cache
def full(name: str, seed: int) -> list[Change]:
    """The event logs of real brokers, beginning with the faults."""
    faults, seconds = SCENARIOS[name]
    with World(seed) as world:
        for index, broker in enumerate(NAMES):
            known = [world.network.hosts[NAMES[index - 1]].address] if index else []
            world.add_node(broker, programs.broker("mangrove", known)).start()
            world.run_for(0.2)
        world.run_for(WARM_S)
        began_s = world.now_s
        world.schedule([Fault(f.at_s + began_s, f.kind, f.a, f.b, f.for_s, f.value, f.more) for f in faults])
        world.run_for(seconds)
        assert not world.failures and not world.fence.escapes
        rows = [row for row in log_rows(truth.log_files(world)) if row["kind"] == "mem"]
    writers = {row["subject"]: row["subject_name"] for row in rows}
    changes = [
        Change(
            row["at_s"] - began_s,
            writers[row["node"]],
            row["subject_name"],
            row["from_state"],
            row["to_state"],
            row["reason"],
        )
        for row in rows
        if row["at_s"] >= began_s
    ]
    return sorted(changes, key=lambda change: change.at_s)


def alone(name: str, seed: int) -> list[Change]:
    faults, seconds = SCENARIOS[name]
    outcome = cores.run(faults, nodes=BROKERS, seed=seed, seconds=seconds, warm_s=WARM_S)
    began_s = outcome.virtual_s - seconds
    return [
        Change(c.at_s - began_s, c.observer, c.subject, c.from_state, c.to_state, c.reason)
        for c in outcome.changes
        if c.at_s >= began_s and c.observer != c.subject
    ]


def story(changes: list[Change]) -> dict[tuple[str, str, int], float]:
    """When a member first, secondly ... entered a state in any view but its own.

    A death or a return counts once, however many see it: others' reports of it follow within seconds. The
    members that a restarted broker meets are no change: it knew nobody.
    """
    times: dict[tuple[str, str, int], float] = {}
    latest: dict[str, str] = {}
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        if change.to_state == "suspect" or change.from_state == "unknown":
            continue
        if latest.get(change.subject) == change.to_state:
            continue
        latest[change.subject] = change.to_state
        key = (change.subject, change.to_state)
        counts[key] = counts.get(key, 0) + 1
        times[(*key, counts[key])] = change.at_s
    return times


def apart(
    times: dict[tuple[str, str, int], float],
) -> list[tuple[tuple[str, str, int], tuple[str, str, int]]]:
    """The order of events where it does not depend on chance."""
    return [
        (one, other)
        for one, at_s in times.items()
        for other, later_s in times.items()
        if later_s - at_s > EPSILON_S
    ]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_see_the_same_deaths_and_returns_in_the_same_order_at_about_the_same_time(
    name: str, seed: int
) -> None:
    expected, found = story(full(name, seed)), story(alone(name, seed))
    print(name, seed, expected, found, sep="\n")
    assert sorted(found) == sorted(expected)
    for one, other in apart(expected):
        assert found[one] < found[other], (one, other)
    for event, at_s in expected.items():
        assert found[event] == pytest.approx(at_s, abs=EPSILON_S), event


def deaths_seen(changes: list[Change], faults: list[Fault]) -> dict[str, list[str]]:
    """The deaths that each broker saw while a fault lasted. After it, reports of a death and its refutation
    race.
    """
    spans = [(fault.at_s, fault.at_s + (fault.for_s or math.inf)) for fault in faults]
    seen: dict[str, dict[str, None]] = {}
    for change in changes:
        if change.to_state == "dead" and any(began_s <= change.at_s <= end_s for began_s, end_s in spans):
            seen.setdefault(change.subject, {})[change.observer] = None
    return {subject: sorted(observers) for subject, observers in sorted(seen.items())}


@pytest.mark.parametrize("name", SCENARIOS)
def test_deaths_and_returns_are_seen_by_the_same_brokers(name: str) -> None:
    faults, _ = SCENARIOS[name]
    assert deaths_seen(alone(name, 1), faults) == deaths_seen(full(name, 1), faults)
