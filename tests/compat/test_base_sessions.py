"""Present clients in sessions with a broker of the base, and what the base does not support."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mesh import BlockingClient, Client
from mesh.wire.capabilities import Agreed, VersionMismatch
from tests.compat.base import base_broker

MANY = [f"device.{number:06}.temperature" for number in range(80_000)]


async def test_a_present_client_publishes_subscribes_and_asks_at_a_broker_of_the_base(
    base: Path, tmp_path: Path
) -> None:
    async with base_broker(base, tmp_path, "alpha") as url, Client(url, name="new") as mesh:
        assert mesh._conversation.agreed == Agreed(1, frozenset())
        async with mesh.subscribe("t.#", answers=True) as subscription:
            receipt = await mesh.publish("t.1", b"one", headers={"n": 1})
            assert (receipt.broker, receipt.seq) == ("alpha", 1)
            assert ((await anext(subscription)).headers) == {"n": 1}
            asking = asyncio.create_task(mesh.request("t.2", b"question", timeout=30.0))
            (await anext(subscription)).done(b"answer")
            assert await asking == b"answer"


async def test_a_missing_capability_of_the_base_is_named_and_the_session_continues(
    base: Path, tmp_path: Path
) -> None:
    async with base_broker(base, tmp_path, "alpha") as url, Client(url) as mesh:
        with pytest.raises(VersionMismatch, match="broker alpha speaks version 1 without 'pattern-parts'"):
            await mesh.subscribe(*MANY)
        async with mesh.subscribe("t") as subscription:
            await mesh.publish("t", b"still here")
            assert (await anext(subscription)).body == b"still here"


async def test_a_present_blocking_client_works_with_a_broker_of_the_base(base: Path, tmp_path: Path) -> None:
    def program(url: str) -> bytes:
        with BlockingClient(url) as mesh, mesh.subscribe("t") as subscription:
            mesh.publish("t", b"blocking")
            delivery = subscription.receive(30.0)
            assert delivery is not None
            return delivery.body

    async with base_broker(base, tmp_path, "alpha") as url:
        assert await asyncio.to_thread(program, url) == b"blocking"


async def test_a_client_falls_back_again_when_its_broker_is_replaced_by_one_of_the_base(
    base: Path, tmp_path: Path
) -> None:
    async with base_broker(base, tmp_path, "alpha") as url, Client(url) as mesh:
        pipe = mesh._writer.pipe
        assert pipe is not None
        sessions = mesh.statistics().sessions
        pipe.close("lost")
        await mesh.publish("t", b"after", timeout=60.0)
        assert mesh.statistics().sessions == sessions + 1 and mesh._conversation.agreed.version == 1
