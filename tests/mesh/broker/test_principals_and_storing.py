"""Durable subscriptions and outboxes obey the rights of the principal, at a broker in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mesh import Broker, Client, Detached, NotAccepted, Principal
from mesh.access.credentials import KeyCredential
from simulations import Process
from tests.mesh.broker.test_principals import ALL, KEY, SHOWN, at_a_broker, client

STORING: dict[str, Any] = {"state_dir": "/state"}
ALICE = Principal("alice", keys=(SHOWN,), **ALL)


def storing(anonymous: Principal, **options: Any) -> dict[str, Any]:
    return {**STORING, "principals": (ALICE, anonymous), "anonymous": "everywhere", **options}


def test_making_and_joining_a_durable_subscription_needs_the_right_to_all_its_patterns() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as alice, client(process, broker) as mesh:
            async with alice.subscribe("jobs.#", durable="jobs") as work:
                for patterns in ((), ("jobs.#",)):
                    with pytest.raises(NotAccepted, match=r"principals\.anonymous\.subscribe has no pattern"):
                        async with mesh.subscribe(*patterns, durable="jobs"):
                            pass
                with pytest.raises(NotAccepted, match=r"may not subscribe to 'jobs\.#'"):
                    async with mesh.subscribe("jobs.#", durable="mine"):
                        pass
                with pytest.raises(NotAccepted, match=r"may not subscribe to 'jobs\.#'"):
                    async with mesh.subscribe(durable="$dlq.jobs"):
                        pass
                async with mesh.subscribe("jobs.small", durable="small"):
                    pass
                await alice.publish("jobs.one", b"1", level="stored")
                job = await anext(work)
                assert job.body == b"1"
                job.done()

    at_a_broker(act, **storing(Principal("anonymous", subscribe=("jobs.small",))))


def test_a_reload_ends_durable_work_without_the_right_and_loses_no_message() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as alice:
            async with client(process, broker) as mesh, mesh.subscribe("jobs", durable="jobs") as work:
                await alice.publish("jobs", b"1", level="stored")
                assert (await anext(work)).body == b"1"
                nothing = Principal("anonymous", publish=("x",))
                broker.reload(replace(broker.options, principals=(ALICE, nothing)))
                with pytest.raises(Detached, match=r"principals\.anonymous\.subscribe has no pattern"):
                    await anext(work)
            async with alice.subscribe(durable="jobs") as work:
                job = await anext(work)
                assert job.body == b"1"
                job.done()

    at_a_broker(act, **storing(Principal("anonymous", subscribe=("#",))))


def test_the_limits_of_a_principal_hold_for_durable_subscriptions() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker) as mesh, mesh.subscribe("a", durable="a", window=100) as work:
            with pytest.raises(NotAccepted, match=r"principals\.anonymous\.subscriptions_max is 1"):
                async with mesh.subscribe("b", durable="b"):
                    pass
            await mesh.publish_many("a", [b"%d" % number for number in range(10)], level="stored")
            await anext(work)
            await asyncio.sleep(1.0)
            (queue,) = broker.statistics()["queues"]
            assert queue["in_flight"] == 2, "window_max"
        async with client(process, broker) as mesh, mesh.subscribe("b", durable="b"):
            pass

    at_a_broker(act, **storing(Principal("anonymous", **ALL, subscriptions_max=1, window_max=2)))


def test_an_outbox_keeps_a_message_until_its_principal_has_the_right_to_publish_it() -> None:
    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as alice:
            async with alice.subscribe("jobs.#", durable="jobs") as work:
                async with client(process, broker, outbox="/outbox.db") as mesh:
                    await mesh.publish("jobs.a", b"kept", level="outbox")
                    await asyncio.sleep(5.0)
                    assert mesh.outbox is not None and mesh.outbox.messages == 1
                    assert "principals.anonymous.publish has no pattern" in mesh.outbox.why
                    await mesh.publish("open.b", b"2", level="outbox")
                    more = Principal("anonymous", publish=("jobs.#",))
                    broker.reload(replace(broker.options, principals=(ALICE, more)))
                    job = await anext(work)
                    assert job.body == b"kept"
                    job.done()

    at_a_broker(act, 300.0, **storing(Principal("anonymous", publish=("open.#",))))


def test_an_outbox_of_a_principal_publishes_under_the_principals_id_and_each_message_once() -> None:
    """Its blocks are sealed on disk before any broker tells the client its principal."""

    async def act(process: Process, broker: Broker) -> None:
        async with client(process, broker, KeyCredential(KEY)) as alice:
            async with alice.subscribe("jobs", durable="jobs") as work:
                for number in range(3):
                    mesh: Client = client(process, broker, KeyCredential(KEY), outbox="/outbox.db")
                    async with mesh:
                        await mesh.publish("jobs", b"%d" % number, level="outbox")
                        await mesh.drained(60.0)
                        drains = mesh._outbox
                        assert drains is not None
                        assert drains._connection.conversation.principal == "alice"
                got = []
                for _ in range(3):
                    job = await anext(work)
                    got.append(job.body)
                    job.done()
                assert got == [b"0", b"1", b"2"]
            assert broker.statistics()["journal"]["stored"] == 3
            assert broker.statistics()["journal"]["duplicates"] == 0

    at_a_broker(act, **STORING, principals=ALICE)
