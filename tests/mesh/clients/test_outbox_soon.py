"""`Client.publish_soon` and ``batch`` of level outbox: they need no broker."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Client
from mesh.errors import BatchFailed, MeshTimeout, NotAccepted, NotReady, TopicError
from mesh.wire.session_frames import Receipt
from tests.mesh.clients.test_outbox import NOWHERE, PATH
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


def appends(client: Client) -> list[int]:
    """The number of blocks in each append, as the appends come."""
    assert client._outbox is not None
    port, found = client._outbox._port, []
    append = port.append

    def counting(sealed, told):  # type: ignore[no-untyped-def]
        found.append(len(sealed))
        append(sealed, told)

    port.append = counting  # type: ignore[method-assign]
    return found


async def test_messages_of_a_turn_share_a_block_and_a_sync_without_any_broker() -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        found = appends(client)
        pending = [client.publish_soon("ab"[n % 2], b"%d" % n, level="outbox") for n in range(1000)]
        assert not pending[0].done() and len({each.place[0] for each in pending}) == 2
        receipts = [await each for each in pending]
        assert receipts[0] == Receipt("outbox", "", 1) and receipts[2].seq == 2 and receipts[1].seq == 501
        assert found == [2] and client.outbox is not None and client.outbox.messages == 1000


async def test_publish_soon_keeps_its_order_among_awaited_calls() -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        one = client.publish_soon("t", b"1", level="outbox")
        two = asyncio.create_task(client.publish("t", b"2", level="outbox"))
        await asyncio.sleep(0)
        three = client.publish_soon("t", b"3", level="outbox")
        four = client.publish_soon("t", b"4", level="outbox", headers={"n": 4})
        five = client.publish_soon("t", b"5", level="outbox", timeout=3.0)
        assert [(await each).seq for each in (one, two, three, four, five)] == [1, 2, 3, 4, 5]


async def test_ready_of_level_outbox_waits_for_the_disk_and_not_for_a_broker() -> None:
    async with Client(NOWHERE, outbox=PATH, pending_max=10) as client:
        with pytest.raises(MeshTimeout, match="no credit to publish in 1 s"):
            await client.ready(1.0)
        for number in range(100):
            try:
                client.publish_soon("t", b"%d" % number, level="outbox")
            except NotReady:
                await client.ready(level="outbox")
                client.publish_soon("t", b"%d" % number, level="outbox")
        state = client.outbox
        await until(lambda: client.outbox is not None and client.outbox.messages == 100)
        assert state is not None and state.messages >= 90


async def test_a_batch_of_level_outbox() -> None:
    async with Client(NOWHERE, outbox=PATH, pending_max=64) as client:
        async with client.batch(level="outbox") as batch:
            for number in range(1000):
                await batch.publish("t", b"%d" % number)
        assert (batch.receipt.level, batch.receipt.seq, batch.receipt.count) == ("outbox", 1, 1000)


async def test_messages_without_room_in_time_are_not_accepted() -> None:
    async with Client(NOWHERE, outbox=PATH, outbox_max_bytes=100_000) as client:
        with pytest.raises(BatchFailed, match="the outbox /program.outbox is full") as caught:
            async with client.batch(level="outbox", timeout=3.0) as batch:
                for _ in range(12):
                    await batch.publish("t", bytes(10_000))
        assert caught.value.unknown == 0 and 1 <= caught.value.not_accepted < 12
        state = client.outbox
        assert state is not None and state.messages == 12 - caught.value.not_accepted
        assert not client._outbox._filling.busy  # type: ignore[union-attr]


async def test_wrong_arguments_are_errors_of_the_call() -> None:
    async with Client(NOWHERE, outbox=PATH, outbox_max_bytes=10_000) as client:
        with pytest.raises(TopicError):
            client.publish_soon("a..b", b"", level="outbox")
        with pytest.raises(NotAccepted, match="do not fit the outbox"):
            client.publish_soon("t", bytes(20_000), level="outbox")
        assert client._conversation.pendings.count == 0
    with pytest.raises(NotAccepted, match="the client is closed"):
        client.publish_soon("t", b"", level="outbox")


async def test_closing_finishes_pending_messages() -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        pending = [client.publish_soon("t", b"%d" % n, level="outbox") for n in range(10)]
    assert [each.result().seq for each in pending] == list(range(1, 11))
    async with Client(NOWHERE, outbox=PATH) as client:
        assert client.outbox is not None and client.outbox.messages == 10
