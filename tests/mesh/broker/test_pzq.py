"""The defects of PZQ, each with the tests that would have found it here.

PZQ (2011 to 2014) was a persistent queue on ZeroMQ and Kyoto Cabinet. These defects were found by reading its
code:

* `--hard-sync` was read but never applied, and nothing ever synced: an acknowledgement was a promise about
  memory, and the counter of syncs stayed 0.
* An acknowledgement after the reaper raised an error: a consumer slower than 5 s got its message again
  forever.
* The log line for that had two placeholders and one argument.
* "Is this node too old?" was always answered with no: a dead owner was never noticed, and its copies were
  never served.
* The wait for copies had its sign reversed: a failure of copying was reported at once.
* The copied acknowledgement had lost its body.

`ELSEWHERE` names the tests in other modules; the others are below.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mesh import Client
from mesh.broker.notices import Notices
from mesh.errors import NotAccepted, Unknown
from simulations import Mesh, World

ELSEWHERE = {
    "acknowledged before a sync": (
        "tests/docs/guarantees/test_stored.py::test_stored_outlives_a_kill_of_all_and_the_loss_of_power",
        "tests/mesh/journal/test_crash.py::test_a_journal_that_does_not_sync_fails_this_test",
        "tests/mesh/journal/test_journal.py::test_a_commit_is_synced_when_it_returns",
        "tests/mesh/journal/test_journal.py::test_a_pragma_that_did_not_take_is_an_error",
        "tests/mesh/outbox/test_crash.py::test_an_outbox_that_does_not_sync_fails_this_test",
        "tests/simulations/kernel/test_crash_points.py::test_commits_that_are_not_synced_fail_these_tests",
        "tests/simulations/programs/test_power_loss.py::test_journals_that_do_not_sync_fail_these_tests",
    ),
    "a late acknowledgement": (
        "tests/mesh/broker/test_settling_in_vain.py"
        "::test_a_message_settled_after_its_session_ended_is_counted_as_late_and_redelivered",
        "tests/mesh/dataplane/test_workers.py::test_a_former_holder_may_still_settle_a_message_that_it_gave_back",
        "tests/mesh/work/test_queue.py::test_a_late_done_counts_wherever_the_message_is_now",
    ),
    "a dead owner": (
        "tests/docs/guarantees/test_stored.py"
        "::test_stored_is_refused_while_a_home_is_away_and_its_kept_messages_wait",
        "tests/mesh/broker/test_durable_interest.py"
        "::test_a_subscription_outlives_the_death_of_its_home_and_a_restart_of_all_others",
    ),
    "failed at once": (
        "tests/mesh/dataplane/test_entry_broker.py"
        "::test_a_block_is_acknowledged_when_the_last_of_its_homes_has_kept_it",
        "tests/mesh/dataplane/test_entry_broker.py"
        "::test_a_publisher_learns_which_homes_kept_a_slow_block_and_each_change",
    ),
    "an acknowledgement without its body": (
        "tests/docs/guarantees/test_stored.py"
        "::test_stored_once_although_its_acknowledgement_is_lost_and_the_retry_uses_a_new_broker",
        "tests/mesh/dataplane/test_entry_broker.py"
        "::test_a_retry_of_an_acknowledged_block_is_acknowledged_again_while_its_home_is_away",
    ),
}
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("defect", ELSEWHERE)
def test_the_tests_for_a_defect_of_pzq_are_there(defect: str) -> None:
    for test in ELSEWHERE[defect]:
        path, name = test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


def make(name: str) -> Callable[[Client], Awaitable[None]]:
    async def made(client: Client) -> None:
        async with client.subscribe("jobs.#", durable=name):
            pass

    return made


def test_each_acknowledgement_is_a_counted_commit_and_a_failed_sync_is_not() -> None:
    """PZQ: the counter of syncs stayed 0, and every message was acknowledged."""

    async def store(client: Client) -> None:
        await client.publish("jobs.a", b"x", level="stored", timeout=3.0)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.run(make("mail"))

        def commits() -> int:
            found: int = mesh.broker("broker-1").statistics()["journal"]["commits"]
            return found

        before = commits()
        for _ in range(5):
            mesh.run(store)
        assert commits() >= before + 5
        world.inject("failing_syncs", ["broker-1"], value=1.0)
        for _ in range(3):
            with pytest.raises((NotAccepted, Unknown)):
                mesh.run(store)


def test_a_consumer_may_take_ten_minutes_for_a_message_and_gets_it_once() -> None:
    """PZQ: a consumer slower than 5 s got its message again forever."""
    taken: list[bytes] = []

    async def slow(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=1) as jobs:
            async for job in jobs:
                taken.append(bytes(job.body))
                await asyncio.sleep(600.0)
                assert job.done() and job.attempt == 1 and not job.redelivered

    async def store(client: Client) -> None:
        await client.publish("jobs.a", b"1", level="stored")

    with World(2) as world:
        mesh = Mesh(world, brokers=1, period_s=30.0, deadline_s=10.0)
        mesh.client("slow", slow)
        world.run_for(1.0)
        mesh.run(store)
        world.run_for(610.0)
        (queue,) = mesh.broker("broker-1").statistics()["queues"]
        assert taken == [b"1"] and queue["waiting"] == 0 and queue["redelivered"] == 0


def test_a_publish_waits_for_a_home_that_hangs_and_its_receipt_names_all_homes() -> None:
    """PZQ: a failure of copying was reported at once, since the wait had its sign reversed."""
    waited_s: list[float] = []

    async def store(client: Client) -> tuple[str, ...]:
        began = asyncio.get_running_loop().time()
        receipt = await client.publish("jobs.a", b"x", level="stored")
        waited_s.append(asyncio.get_running_loop().time() - began)
        return receipt.homes

    with World(3) as world:
        mesh = Mesh(world, brokers=3, period_s=10.0, deadline_s=5.0)
        mesh.run(make("one"), at="broker-1")
        mesh.run(make("two"), at="broker-2")
        world.inject("pause", ["broker-2"], for_s=3.0)
        assert sorted(mesh.run(store, at="broker-3")) == ["broker-1", "broker-2"]
        assert 2.9 < waited_s[0] < 4.0


@pytest.mark.parametrize("state", ["begins", "over"])
@pytest.mark.parametrize("kind", ["full", "stale", "poison", "idle", "damaged"])
def test_every_warning_about_a_durable_subscription_has_a_text(
    kind: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PZQ: the line about a late acknowledgement had two placeholders and one argument."""
    about = {"state": state, "refused": 3, "held": 7, "consumers": ["ann", "bob"], "for_s": 300.0}
    about |= {"dead": 2, "reason": "no such customer", "attempts": 20, "waiting": 9}
    about |= {"damaged": 9, "rows": [1, 2]}
    if kind == "idle":
        kind, about = "stale", about | {"consumers": [], "held": 0}
    Notices("alpha", lambda: 0.0).queue("mail", kind, about)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("broker alpha: ") and "'mail'" in record.getMessage()
