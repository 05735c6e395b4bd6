"""A client that claims the identity of another publisher of stored messages takes nothing from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh import Client
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.capabilities import PUBLISHER_SECRET, SESSION
from mesh.wire.session_frames import Kind
from mesh.wire.session_opening import client_id, hello, verified
from tests.mesh.broker.raw_sessions import ADDRESS, raw_session
from tests.mesh.loopback import REQ, Cluster, Stranger

pytestmark = pytest.mark.virtual

SECRET = b"known to one only" * 2
PUBLISHER = verified(client_id(SECRET))
BOOT = 7


def block(first: int, *bodies: bytes, publisher: int = PUBLISHER, boot: int = BOOT) -> bytes:
    return blocks.seal(b"jobs.a", bodies, publisher=publisher, boot=boot, sequence=first, level=blocks.STORED)


async def test_another_publishers_id_is_refused_and_its_messages_stay_as_they_are() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with (
            Client(broker.url) as client,
            client.subscribe("jobs.#", durable="mail") as jobs,
            raw_session(broker.url, SECRET, BOOT) as honest,
        ):
            honest.publish(block(1, b"one"))
            assert (await honest.hear(Kind.ACK))[1] == [[1, 1]]

            without = replace(SESSION, capabilities=SESSION.capabilities - {PUBLISHER_SECRET})
            for offer, secret in ((SESSION, b"x" * 32), (without, b"x" * 32)):
                async with raw_session(broker.url, secret, BOOT, offer) as liar:
                    liar.publish(block(2, b"a lie"))
                    with pytest.raises(AssertionError, match="a block names another publisher than its"):
                        await liar.hear(Kind.ACK)
                    assert await liar.hung_up()

            stranger = await Stranger.connect(broker.url, REQ)
            said = bytearray(hello(SESSION, SECRET, BOOT, "liar", 0.0))
            said[-1] ^= 1  # of the secret
            stranger.send(ADDRESS + said)
            assert b"which does not belong to its secret" in await stranger.receive()
            assert await stranger.hung_up()
            await stranger.close()

            honest.publish(block(2, b"two"))
            assert (await honest.hear(Kind.ACK))[1] == [[2, 2]]
            assert [bytes((await anext(jobs)).body) for _ in range(2)] == [b"one", b"two"]


async def test_a_copy_of_a_publisher_conflicts_and_nothing_acknowledged_is_lost() -> None:
    """Two programs with the same secret and boot: an image of a machine that was started twice."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with (
            Client(broker.url) as client,
            client.subscribe("jobs.#", durable="mail") as jobs,
            raw_session(broker.url, SECRET, BOOT) as one,
            raw_session(broker.url, SECRET, BOOT) as copy,
        ):
            one.publish(block(1, b"one"))
            assert (await one.hear(Kind.ACK))[1] == [[1, 1]]
            for _ in range(3):
                copy.publish(block(1, b"another one"))
                ranges, sentence = await copy.hear(Kind.REFUSED)
                assert ranges == [[1, 1]] and "conflict: other messages" in sentence
            copy.publish(block(1, b"one"))
            assert (await copy.hear(Kind.ACK))[1] == [[1, 1]], "the same messages: a retry"
            copy.publish(block(2, b"two"))
            assert (await copy.hear(Kind.ACK))[1] == [[2, 2]]
            one.publish(block(2, b"its own two"))
            assert "conflict" in (await one.hear(Kind.REFUSED))[1]
            one.publish(block(3, b"three"))
            assert (await one.hear(Kind.ACK))[1] == [[3, 3]]
            assert [bytes((await anext(jobs)).body) for _ in range(3)] == [b"one", b"two", b"three"]


async def test_a_client_gets_a_conflict_error_when_another_used_its_sequence_numbers() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state")
        async with Client(broker.url) as client, client.subscribe("jobs.#", durable="mail") as jobs:
            said = client._conversation
            async with raw_session(broker.url, said.introduction._secret, said.boot) as copy:
                copy.publish(block(1, b"first", publisher=said.publisher, boot=said.boot))
                assert (await copy.hear(Kind.ACK))[1] == [[1, 1]]
            with pytest.raises(NotAccepted, match="conflict: other messages came under these numbers"):
                await client.publish("jobs.a", b"mine", level="stored")
            await client.publish("jobs.a", b"next", level="stored")
            assert [bytes((await anext(jobs)).body) for _ in range(2)] == [b"first", b"next"]
