"""One broker of the base among present ones, and clients of either version at brokers of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mesh import Broker, Client
from mesh.clients.subscription import Subscription
from tests.compat.base import LIMIT_S, base_broker, run_base
from tests.mesh.loopback import Cluster, eventually, linked, states

pytestmark = pytest.mark.process

NAMES = {"alpha", "bravo", "old"}
WHERE = """
import importlib.metadata, mesh
print(mesh.__file__, importlib.metadata.version("mangrove-mesh"))
"""
TALK = """
import asyncio, sys
from mesh import Client

async def answer(wanted, heard):
    async for delivery in wanted:
        if delivery.topic.startswith("ask."):
            delivery.done(b"the base heard " + delivery.body)
        else:
            heard.append(delivery.body.decode())
            if delivery.body == b"last":
                return

async def main():
    async with Client(sys.argv[1]) as client:
        async with client.subscribe("ask.base", "news.base", answers=True) as wanted:
            assert not wanted.unreached, wanted.unreached
            heard = []
            answering = asyncio.create_task(answer(wanted, heard))
            said = await client.request("ask.present", b"base")
            receipts = [await client.publish("news.present", b"%d" % number) for number in range(50)]
            assert not any(receipt.absent for receipt in receipts), receipts
            survey = await client.survey("ask.all", b"who", deadline=2.0)
            await client.publish("news.present", b"last")
            await answering
            print(said.decode(), len(survey.answers), survey.missing, " ".join(heard))

asyncio.run(main())
"""
"""A program of the base: it asks, publishes, surveys and answers until it has received the last message."""


@asynccontextmanager
async def mixed(base: Path, folder: Path, *, founder: str) -> AsyncIterator[tuple[list[Broker], str]]:
    """Two present brokers and one of the base. Yields the present ones and the other's URL."""
    async with Cluster() as cluster:
        if founder == "old":
            async with base_broker(base, folder, "old") as url:
                present = [await cluster.broker(name, [url]) for name in ("alpha", "bravo")]
                await together(present)
                yield present, url
        else:
            present = await cluster.mesh("alpha", "bravo")
            async with base_broker(base, folder, "old", present[0].url) as url:
                await together(present)
                yield present, url


async def together(present: list[Broker]) -> None:
    def complete() -> bool:
        return all(
            states(broker) == dict.fromkeys(NAMES, "alive") and linked(broker) == NAMES - {broker.name}
            for broker in present
        )

    await eventually(complete, "a full mesh with the base")


def test_the_base_is_the_base(base: Path, tmp_path: Path) -> None:
    where, version = run_base(base, tmp_path, WHERE).split()
    assert Path(where).is_relative_to(base) and version == "0.1.0"


async def seen_by(url: str) -> dict[str, str]:
    async with Client(url) as client:
        return {member["name"]: member["state"] for member in (await client.status())["members"]}


@pytest.mark.parametrize("founder", ["old", "alpha"])
async def test_a_broker_of_the_base_is_a_member_as_dialler_and_as_listener(
    base: Path, tmp_path: Path, founder: str
) -> None:
    async with mixed(base, tmp_path, founder=founder) as (present, url):
        alpha, bravo = present
        assert await seen_by(url) == dict.fromkeys(NAMES, "alive")
        links = alpha._running.peering.link_manager.up.values()
        assert {link.peer.name: link.agreed.version for link in links} == {"bravo": 2, "old": 1}
        await alpha.leave()
        await eventually(lambda: states(bravo)["alpha"] == "left", "bravo heard that alpha left")
        async with asyncio.timeout(LIMIT_S):
            while (await seen_by(url))["alpha"] != "left":
                await asyncio.sleep(0.1)
        assert states(bravo)["old"] == "alive"


async def test_a_broker_of_the_base_that_leaves_or_is_killed_is_noticed(base: Path, tmp_path: Path) -> None:
    async with Cluster() as cluster:
        present = await cluster.mesh("alpha", "bravo")
        async with base_broker(base, tmp_path, "old", present[0].url):
            await together(present)
        await eventually(lambda: states(present[1])["old"] == "left", "it left")
        async with base_broker(base, tmp_path, "old", present[0].url, kill=True):
            await together(present)
        await eventually(lambda: states(present[1])["old"] == "dead", "it is dead")


async def answer(wanted: Subscription, heard: list[bytes]) -> None:
    async for delivery in wanted:
        if delivery.topic.startswith("ask."):
            delivery.done(b"heard " + bytes(delivery.body))
        else:
            heard.append(bytes(delivery.body))


@pytest.mark.parametrize("founder", ["old", "alpha"])
async def test_interest_messages_and_requests_go_both_ways(base: Path, tmp_path: Path, founder: str) -> None:
    """Present clients, one of them at the broker of the base."""
    async with mixed(base, tmp_path, founder=founder) as (present, url):
        async with Client(present[0].url) as ours, Client(url) as theirs, Client(present[1].url) as third:
            async with (
                ours.subscribe("news.#", "ask.ours", answers=True) as here,
                theirs.subscribe("news.#", "ask.theirs", answers=True) as there,
            ):
                assert not here.unreached and not there.unreached
                heard: tuple[list[bytes], list[bytes]] = ([], [])
                answering = [
                    asyncio.create_task(answer(each, bodies))
                    for each, bodies in zip((here, there), heard, strict=True)
                ]
                for client, topic in ((ours, "ask.theirs"), (theirs, "ask.ours"), (third, "ask.theirs")):
                    assert await client.request(topic, b"you") == b"heard you"
                for number in range(20):
                    for client in (ours, theirs, third):
                        receipt = await client.publish("news.uk", b"%d" % number, headers={"n": number})
                        assert not receipt.absent
                await eventually(lambda: [len(each) for each in heard] == [60, 60], "60 of 60, twice")
                for task in answering:
                    task.cancel()
                await asyncio.gather(*answering, return_exceptions=True)


@pytest.mark.parametrize("at", ["old", "alpha"])
async def test_a_client_of_the_base_is_served_by_either_broker(base: Path, tmp_path: Path, at: str) -> None:
    async with mixed(base, tmp_path, founder="alpha") as (present, url):
        client_url = url if at == "old" else present[0].url
        async with Client(present[1].url) as ours:
            heard: list[bytes] = []
            async with ours.subscribe("news.present", "ask.present", "ask.all", answers=True) as wanted:
                answering = asyncio.create_task(answer(wanted, heard))
                running = asyncio.create_task(asyncio.to_thread(run_base, base, tmp_path, TALK, client_url))
                await eventually(lambda: b"last" in heard, "its last message")
                assert await ours.request("ask.base", b"present") == b"the base heard present"
                for body in (b"one", b"two", b"last"):
                    await ours.publish("news.base", body)
                assert (await running).split() == "heard base 1 [] one two last".split()
                assert heard == [b"%d" % number for number in range(50)] + [b"last"]
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
