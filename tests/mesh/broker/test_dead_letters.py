"""Dead letters are a durable subscription of their own, even before there are any."""

from __future__ import annotations

import pytest

from mesh import Client
from mesh.errors import NotAccepted
from tests.mesh.loopback import Cluster, home_of

pytestmark = pytest.mark.virtual


async def test_a_consumer_that_attaches_before_the_first_dead_letter_receives_it() -> None:
    """It was refused until the first existed, so nobody could wait for it."""
    async with Cluster() as cluster:
        home, other = await cluster.mesh("home", "other", state_dir="/state")
        async with Client(home.url) as client, Client(other.url) as there:
            async with client.subscribe("jobs.#", durable="mail") as jobs:
                async with there.subscribe(durable="$dlq.mail") as letters:
                    assert letters.home == "home" and letters.waiting == 0 and letters.patterns == ()
                    await there.publish("jobs.a", b"broken", level="stored")
                    assert (await anext(jobs)).drop("no such customer")
                    letter = await anext(letters)
                    assert (letter.body, letter.topic) == (b"broken", "jobs.a")
                    assert letter.headers["dead-reason"] == "no such customer" and letter.done()
                async with client.subscribe(durable="$dlq.mail") as letters:
                    assert letters.waiting == 0
        names = sorted(home_of(home).table)
        assert names == ["$dlq.mail", "mail"] and home_of(other).table == {}


async def test_dead_letters_of_nothing_and_with_patterns_are_refused() -> None:
    async with Cluster() as cluster:
        home = await cluster.broker("home", state_dir="/state")
        async with Client(home.url) as client:
            for name in ("$dlq.mail", "$dlq.", "$dlq.$dlq.mail"):
                with pytest.raises(NotAccepted, match=r"there is no durable subscription '\$dlq\."):
                    async with client.subscribe(durable=name):
                        pass
            async with client.subscribe("jobs.#", durable="mail"):
                pass
            with pytest.raises(NotAccepted, match="names that begin with '\\$' are the mesh's own"):
                async with client.subscribe("jobs.#", durable="$dlq.mail"):
                    pass
        assert home_of(home).table == {"mail": ("jobs.#",)}
