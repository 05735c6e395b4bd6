"""How long a client's calls wait by default, as the guides and docstrings say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.clients.subscription import Subscription
from mesh.errors import Disconnected, MeshError, MeshTimeout, NotAccepted
from mesh.wire.blocks import SENT
from protocols import RawSocket, Rep0, SharedListener
from tests.mesh.clients.taking import LOOPBACK
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


async def ended(call: Awaitable[object]) -> tuple[type, float]:
    """How a call ended, and after how many seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await call
    except MeshError as error:
        return type(error), round(loop.time() - began, 2)
    raise AssertionError("it has a result")


async def test_calls_time_out_without_a_broker() -> None:
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
    await until(lambda: not mesh.connected)
    mesh._conversation.add_many("t", [b"gathered"], SENT)
    found = await asyncio.gather(
        ended(mesh.publish("t", b"x")),
        ended(mesh.publish("t", b"x", level="sent")),
        ended(mesh.flush()),
        ended(mesh.subscribe("t")),
        ended(mesh.request("t")),
        ended(mesh.survey("t")),
    )
    assert found == [
        (NotAccepted, 10.0),
        (MeshTimeout, 10.0),
        (MeshTimeout, 10.0),
        (MeshTimeout, 10.0),
        (MeshTimeout, 6.0),
        (MeshTimeout, 2.0),
    ], "questions a second later than the broker would end them"
    began = asyncio.get_running_loop().time()
    await mesh.aclose()
    assert asyncio.get_running_loop().time() - began < 0.1


class Silent:
    def pipe_attached(self, pipe: object) -> None: ...
    def pipe_detached(self, pipe: object, reason: str) -> None: ...
    def pipe_writable(self, pipe: object) -> None: ...
    def frames_received(self, pipe: object, frames: list[bytes]) -> None: ...


async def test_opening_times_out_at_a_listener_that_does_not_answer() -> None:
    listener = SharedListener(LOOPBACK)
    async with RawSocket(Rep0, receiver=Silent()) as rep:
        await rep.listen(listener)
        await listener.start()
        assert await ended(Client(listener.url).open()) == (Disconnected, 5.0)
        await listener.aclose()


async def test_closing_waits_a_second_for_a_broker_that_does_not_read() -> None:
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
        mesh._conversation.sync = lambda: 1 << 60  # type: ignore[method-assign]  # a sign that never comes
        began = asyncio.get_running_loop().time()
        await mesh.aclose()
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.2)


async def test_flush_waits_for_no_broker_when_nothing_is_gathered() -> None:
    """It waited ten seconds for room in the next session, which never came."""
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
    await until(lambda: not mesh.connected)
    began = asyncio.get_running_loop().time()
    await mesh.flush()
    assert asyncio.get_running_loop().time() == pytest.approx(began, abs=0.01)
    await mesh.aclose()


async def test_closing_ends_a_flush() -> None:
    """It waited until its time was over, for a client that was closed."""
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
    await until(lambda: not mesh.connected)
    mesh._conversation.add_many("t", [b"gathered"], SENT)
    flushing = asyncio.create_task(ended(mesh.flush(timeout=100.0)))
    await asyncio.sleep(0)
    await mesh.aclose()
    assert await flushing == (Disconnected, pytest.approx(0.0, abs=0.1))
    assert await ended(mesh.flush()) == (Disconnected, 0.0)


async def test_the_topics_of_a_batch_share_one_timeout() -> None:
    """Each waited for credit as long as the call may last."""
    async with (
        Broker(listen=LOOPBACK) as broker,
        Client(broker.url) as reader,
        Client(broker.url) as mesh,
    ):
        stalled = await reader.subscribe("#", window=1)
        reading = asyncio.create_task(read_slowly(stalled))
        began = asyncio.get_running_loop().time()
        many = [(f"t{number}", bytes(50_000)) for number in range(9) for _ in range(60)]
        with pytest.raises(MeshTimeout):
            await mesh.publish_many(many, level="sent", timeout=4.0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(4.0, abs=0.1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def read_slowly(subscription: Subscription) -> None:
    """Read twenty messages a second."""
    async for _ in subscription:
        await asyncio.sleep(0.05)
