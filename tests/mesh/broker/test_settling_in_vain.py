"""Settling a message that is unknown, already settled or another consumer's changes nothing, however
often."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Broker, Client
from mesh.dataplane.queue_status import QueueStatus
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import Kind
from tests.mesh.broker.raw_sessions import raw_session
from tests.mesh.loopback import Cluster, crash, home_of

pytestmark = pytest.mark.virtual


def queue(broker: Broker) -> QueueStatus:
    (found,) = home_of(broker).queues()
    return found


async def test_settling_another_consumers_message_has_no_effect_and_the_session_continues() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with (
            Client(broker.url) as client,
            client.subscribe("jobs.#", durable="mail", window=1) as jobs,
            raw_session(broker.url) as liar,
        ):
            await client.publish("jobs.a", b"one", level="stored")
            mine = await anext(jobs)
            row = mine._portion.row
            liar.say(Durable.ATTACH, 1, "mail", [], 8, 1 << 20)
            await liar.hear(Durable.ATTACHED)
            for _ in range(3):
                liar.say(Durable.DONE, 1, [[row, 0, b"\x01"]])  # another consumer's message
                # there is no such row
                liar.say(Durable.DONE, 1, [[row + 99, 0, b"\xff"], [row, 4095, b"\x01"]])
                liar.say(Durable.DONE, 9, [[row, 0, b"\x01"]])  # under a number that was never attached
                liar.say(Durable.RETRY, 1, row, 0, 0)
                liar.say(Durable.DROP, 1, row, 0, "a lie")
                liar.say(Durable.DETACH, 9)
                await liar.lives()
            assert queue(broker).waiting == 1 and not liar.work, "it is still the client's"
            counters = queue(broker).counters
            assert counters is not None
            assert (counters.settled, counters.retried, counters.buried) == (0, 0, 0)
            assert counters.not_held == 9 and counters.unknown == 27
            assert mine.done()
            for _ in range(3):
                assert not mine.done() and not mine.retry() and not mine.drop("again"), "it was settled"
            await asyncio.sleep(1)
            assert queue(broker).waiting == 0


async def test_a_retry_with_too_long_a_delay_ends_a_foreign_session_and_its_message_is_redelivered() -> None:
    """The time was cut to seven days, and nobody was told."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with Client(broker.url) as client, raw_session(broker.url) as foreign:
            foreign.say(Durable.ATTACH, 1, "mail", ["jobs.#"], 8, 1 << 20)
            await foreign.hear(Durable.ATTACHED)
            await client.publish("jobs.a", b"one", level="stored")
            await foreign.hear(Durable.WORK)
            foreign.say(Durable.RETRY, 1, foreign.work[0][1], 0, 8 * 86_400_000)
            assert "after_ms is 691200000, expected" in str(await foreign.hear(Kind.ERROR))
            assert await foreign.hung_up()
            assert broker.statistics()["refused"] == {"bad_session_frame": 1}
            async with client.subscribe(durable="mail") as jobs:
                assert bytes((await anext(jobs)).body) == b"one"


async def test_a_message_settled_after_its_session_ended_is_counted_as_late_and_redelivered() -> None:
    """A restarted home may have given the row to another consumer."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail") as jobs:
            await client.publish("jobs.a", b"one", level="stored")
            old = await anext(jobs)
            listen = broker.url
            await crash(broker)
            again = await cluster.broker("home", listen=listen, state_dir="/state")
            new = await anext(jobs)
            assert new.body == b"one" and new.id == old.id and jobs.interrupted == 1
            for _ in range(3):
                assert not old.done() and not old.retry() and not old.drop()
            assert jobs.late == 1, "the message, once; nobody was told"
            assert queue(again).waiting == 1
            assert new.done()
            await asyncio.sleep(1)
            assert queue(again).waiting == 0
