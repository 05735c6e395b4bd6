"""Clients of a broker that is not the home go on to the home, over real sockets and a real disk.

All other tests of following use homes that the test plays (`homes.Home`), in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mesh import BlockingClient, Broker, Client, NotAccepted, OtherPatterns, Receipt
from tests.mesh.loopback import LOCAL, ROOMY, eventually, whole

LARGE = 300_000
"""Bytes of a body that travels in pieces."""


@asynccontextmanager
async def home_at(folder: Path, join: Broker | None = None) -> AsyncIterator[Broker]:
    others = [] if join is None else [join]
    async with Broker(
        name="home", listen=LOCAL, state_dir=folder, join=[broker.url for broker in others], **ROOMY
    ) as home:
        await whole([home, *others])
        yield home


@asynccontextmanager
async def entry_to(home: Broker, folder: Path) -> AsyncIterator[Broker]:
    async with Broker(name="entry", listen=LOCAL, state_dir=folder, join=home.url, **ROOMY) as entry:
        await whole([home, entry])
        yield entry


async def stored(client: Client, body: bytes) -> Receipt:
    """Publish again until the client's broker knows what a returned home keeps."""
    while True:
        try:
            return await client.publish("jobs.a", body, level="stored")
        except NotAccepted as error:
            assert "does not know yet what is kept at home" in str(error)


async def make_mail(home: Broker) -> None:
    async with Client(home.url) as client, client.subscribe("jobs.#", durable="mail"):
        pass


async def test_a_client_follows_to_the_home_and_again_when_that_is_back_elsewhere(tmp_path: Path) -> None:
    async with AsyncExitStack() as first:
        home = await first.enter_async_context(home_at(tmp_path / "home"))
        await make_mail(home)
        async with entry_to(home, tmp_path / "entry") as entry, Client(entry.url) as client:
            with pytest.raises(OtherPatterns):
                async with client.subscribe("other.#", durable="mail"):
                    pass
            async with client.subscribe("jobs.#", durable="mail") as jobs:
                assert jobs.home == "home" and client.broker == "entry"
                for body in (b"small", bytes(LARGE)):
                    assert (await client.publish("jobs.a", body, level="stored")).homes == ("home",)
                    job = await anext(jobs)
                    assert job.body == body and job.done()
                await eventually(lambda: not home.statistics()["queues"][0]["waiting"], "both are settled")
                before = home.url
                await first.aclose()
                async with home_at(tmp_path / "home", join=entry) as home:
                    assert home.url != before
                    assert (await stored(client, b"later")).homes == ("home",)
                    job = await anext(jobs)
                    assert job.body == b"later" and job.done()
                    assert jobs.home == "home" and jobs.interrupted == 1


async def test_a_blocking_client_follows_to_the_home(tmp_path: Path) -> None:
    def program(url: str) -> None:
        with BlockingClient(url) as client:
            with pytest.raises(OtherPatterns):
                client.subscribe("other.#", durable="mail")
            with client.subscribe("jobs.#", durable="mail") as jobs:
                assert jobs.home == "home" and client.broker == "entry"
                for body in (b"small", bytes(LARGE)):
                    assert client.publish("jobs.a", body, level="stored").homes == ("home",)
                    job = jobs.receive(60)
                    assert job is not None and job.body == body and job.done()

    async with home_at(tmp_path / "home") as home:
        await make_mail(home)
        async with entry_to(home, tmp_path / "entry") as entry:
            await asyncio.to_thread(program, entry.url)
