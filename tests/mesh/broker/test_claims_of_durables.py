"""Invalid names of durable subscriptions get one sentence, and ten thousand valid ones are no problem."""

from __future__ import annotations

import pytest

from mesh import Client
from mesh.errors import NotAccepted
from mesh.wire.durable_frames import Durable
from tests.mesh.broker.raw_sessions import raw_session
from tests.mesh.loopback import Cluster, crash, home_of, whole

pytestmark = pytest.mark.virtual

LONG = "n" * 300
MANY = 10_000


async def test_a_name_of_300_bytes_is_refused_by_the_client_and_by_the_broker() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with Client(broker.url) as client, raw_session(broker.url) as raw:
            for _ in range(3):
                with pytest.raises(ValueError, match="300 bytes, the limit is 250"):
                    client.subscribe("jobs.#", durable=LONG)
            long_in_bytes = "ä" * 150
            for _ in range(3):
                raw.say(Durable.ATTACH, 1, long_in_bytes, ["jobs.#"], 8, 1 << 20)
                number, reason, sentence, _ = await raw.hear(Durable.DETACHED)
                assert (number, reason) == (1, "bad_name") and "has 300 bytes, the limit is 250" in sentence
            await raw.lives()
            raw.say(Durable.ATTACH, 1, LONG, ["jobs.#"], 8, 1 << 20)  # no frame may contain it
            with pytest.raises(AssertionError, match="name"):
                await raw.lives()
            assert await raw.hung_up()
            async with client.subscribe("jobs.#", durable="n" * 250) as jobs:
                await client.publish("jobs.a", b"x", level="stored")
                assert (await anext(jobs)).done()
        assert home_of(broker).table == {"n" * 250: ("jobs.#",)}


@pytest.mark.long
async def test_ten_thousand_durable_subscriptions_are_made_and_known_everywhere() -> None:
    """By several sessions, since one has at most `SUBSCRIPTIONS_MAX`."""
    async with Cluster() as cluster:
        home, other = await cluster.mesh("home", "other", state_dir="/state")
        for start in range(0, MANY, 2000):
            async with raw_session(home.url) as raw:
                for number in range(start, start + 2000):
                    raw.say(Durable.ATTACH, 1 + number - start, f"q{number}", [f"jobs.{number}"], 8, 1 << 20)
                for _ in range(2000):
                    await raw.hear(Durable.ATTACHED)
        assert len(home_of(home).table) == MANY
        await crash(home)
        home = await cluster.broker("home", other, listen=home.url, state_dir="/state")
        await whole([home, other])
        assert len(home_of(home).table) == MANY
        async with Client(other.url) as client:
            receipt = await client.publish(f"jobs.{MANY - 1}", b"x", level="stored")
            assert receipt.homes == ("home",)
            with pytest.raises(NotAccepted, match="nobody keeps jobs.x"):
                await client.publish("jobs.x", b"x", level="stored")
            async with client.subscribe(durable=f"q{MANY - 1}") as jobs:
                job = await anext(jobs)
                assert job.body == b"x" and job.done()
