"""A broker with a state folder is home to durable subscriptions, even after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mesh import Broker, Client
from mesh.broker.journal_opening import JOURNAL
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.durable_frames import Kept
from simulations import Mesh, World
from tests.mesh.loopback import LOCAL, home_of


async def kept(broker: Broker, first: int, *bodies: bytes) -> tuple[Kept, str]:
    """Give a broker's home one block."""
    said: asyncio.Future[tuple[Kept, str]] = asyncio.get_running_loop().create_future()
    block = blocks.seal(b"jobs.a", bodies, publisher=5, boot=1, sequence=first, level=blocks.STORED)
    home_of(broker).keep(
        block,
        5,
        1,
        first,
        first + len(bodies) - 1,
        first,
        0,
        lambda verdict, sentence: said.set_result((verdict, sentence)),
    )
    assert broker._node is not None
    broker._node.work_pending()
    return await said


async def test_a_message_of_level_stored_is_on_disk_and_reaches_its_consumer(tmp_path: Path) -> None:
    async with Broker(name="home", listen=LOCAL, state_dir=tmp_path) as broker, Client(broker.url) as client:
        async with client.subscribe("jobs.#", durable="mail") as jobs:
            receipt = await client.publish("jobs.a", b"x" * 200_000, level="stored")
            assert receipt.homes == ("home",)
            job = await anext(jobs)
            assert job.body == b"x" * 200_000 and job.done()
        with pytest.raises(NotAccepted, match="nobody keeps news"):
            await client.publish("news", b"x", level="stored")


async def works_over_a_restart(folder: Path) -> None:
    async with Broker(name="home", listen=LOCAL, state_dir=folder) as broker, Client(broker.url) as client:
        assert not list(folder.glob(f"**/{JOURNAL}*")), "none is made before it is needed"
        async with client.subscribe("jobs.#", durable="mail") as jobs:
            assert await kept(broker, 1, b"one", b"two", b"three") == (Kept.KEPT, "")
            one, two, three = [await anext(jobs) for _ in range(3)]
            assert [bytes(job.body) for job in (one, two, three)] == [b"one", b"two", b"three"]
            assert one.done() and three.done()
        assert await kept(broker, 4, b"four") == (Kept.KEPT, "")
    async with Broker(name="home", listen=LOCAL, state_dir=folder) as broker, Client(broker.url) as client:
        async with client.subscribe(durable="mail") as jobs:
            assert jobs.waiting == 2
            left = [await anext(jobs) for _ in range(2)]
            assert [bytes(job.body) for job in left] == [b"two", b"four"]
            assert await kept(broker, 4, b"four") == (Kept.KEPT, ""), "it is a duplicate"
            assert all(job.done() for job in left)
    async with Broker(name="home", listen=LOCAL, state_dir=folder) as broker:
        assert [queue.waiting for queue in home_of(broker).queues()] == [0]


async def test_stored_messages_are_processed_across_a_restart_with_real_sockets_and_disks(
    tmp_path: Path,
) -> None:
    await works_over_a_restart(tmp_path)


@pytest.mark.virtual
async def test_a_broker_without_a_state_folder_refuses_durable_subscriptions_in_one_sentence() -> None:
    async with Broker(name="home", listen=LOCAL) as broker, Client(broker.url) as client:
        with pytest.raises(NotAccepted, match="'mail' cannot be made here: it has no state folder"):
            async with client.subscribe("jobs.#", durable="mail"):
                pass
        verdict, sentence = await kept(broker, 1, b"x")
        assert verdict is Kept.REFUSED and "state_dir" in sentence


def test_an_operator_recovers_the_messages_that_precede_a_damaged_log_of_a_journal() -> None:
    """As docs/guides/running-a-mesh.md describes it."""
    folder = "/state/broker-1"

    async def make_mail(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail"):
            pass

    async def store(client: Client) -> None:
        await client.publish_many("jobs.a", [b"1", b"2"], level="stored")

    async def take(client: Client) -> list[bytes]:
        async with client.subscribe(durable="mail") as jobs:
            return [(await anext(jobs)).body for _ in range(jobs.waiting)]

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.run(make_mail)
        mesh.run(store)
        restart(mesh, "stop")
        mesh.run(store)
        mesh.run(store)
        world.inject("crash", ["broker-1"])
        disk = world.disk("broker-1")
        disk.files[f"{folder}/{JOURNAL}-wal"].content.flip(8 * 1000)
        restart(mesh, "crash")
        with pytest.raises(NotAccepted, match="its log is damaged at byte"):
            mesh.run(store)
        world.inject("stop", ["broker-1"])
        world.run_for(1)
        (aside,) = (name for name in disk.list(folder) if ".damaged-" in name and not name.endswith("-wal"))
        disk.rename(f"{folder}/{aside}", f"{folder}/{JOURNAL}")
        disk.rename(f"{folder}/{aside}-wal", f"/{aside}-wal")
        restart(mesh, "crash")
        assert mesh.run(take) == [b"1", b"2"]


def restart(mesh: Mesh, how: str) -> None:
    if mesh.world.node("broker-1").alive:
        mesh.world.inject(how, ["broker-1"])
        mesh.world.run_for(1)
    mesh.world.inject("start", ["broker-1"])
    mesh.wait_whole()
