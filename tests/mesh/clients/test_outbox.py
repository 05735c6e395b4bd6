"""Level outbox of a `Client`: messages stay on its own disk until they are stored at their homes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mesh import Broker, Client
from mesh.clients.outbox import ClientOutbox
from mesh.clients.outbox_notices import TOLD_AFTER_S
from mesh.errors import (
    Disconnected,
    Locked,
    MeshTimeout,
    NotAccepted,
    OutboxDamaged,
    OutboxError,
    TopicError,
    Unknown,
)
from mesh.wire.session_frames import Receipt
from simulations.kernel.files import SectorFile
from tests.mesh.loopback import Cluster, crash, whole
from tests.support import virtual_time
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

NOWHERE = "tcp://127.0.0.1:1"
DAY_S = 24 * 3600.0
PATH = "/program.outbox"


def overwrite(path: str, content: bytes) -> None:
    """Overwrite part of an outbox that nobody has open."""
    file = virtual_time.disk().files[path]
    assert isinstance(file, SectorFile)
    file.truncate(0)
    file.write(0, content)


async def publish_elsewhere(broker: Broker, count: int) -> None:
    """Publish until the broker's journal has made so many commits."""
    async with Client(broker.url) as client:
        async with client.subscribe("noise", durable="noise"):
            for _ in range(count):
                await client.publish("noise", b"", level="stored")


async def published_before(count: int) -> None:
    """Publish with a program that finds no broker."""
    async with Client(NOWHERE, outbox=PATH) as client:
        await publish(client, *(b"%d" % number for number in range(count)))


@asynccontextmanager
async def queue(broker: Broker, *patterns: str, name: str = "mail") -> AsyncIterator[list[bytes]]:
    """A worker for a durable subscription at that broker."""
    got: list[bytes] = []

    async def work() -> None:
        async with Client(broker.url) as client:
            async with client.subscribe(*patterns, durable=name) as jobs:
                made.set()
                async for job in jobs:
                    got.append(bytes(job.body))
                    job.done()

    made = asyncio.Event()
    working = asyncio.create_task(work())
    await made.wait()
    try:
        yield got
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def publish(client: Client, *bodies: bytes, topic: str = "jobs.a") -> None:
    for body in bodies:
        await client.publish(topic, body, level="outbox")


async def test_messages_published_without_a_broker_are_stored_in_order_once_there_is_one() -> None:
    bodies = [b"%d" % number for number in range(100)]
    async with Client(NOWHERE, outbox=PATH) as client:
        assert not client.connected
        receipts = [await client.publish("jobs.a", body, level="outbox") for body in bodies[:50]]
        assert receipts[:2] == [Receipt("outbox", "", 1), Receipt("outbox", "", 2)]
        state = client.outbox
        assert state is not None and state.messages == 50 and "no broker at" in state.why
        with pytest.raises(
            MeshTimeout, match=r"50 message\(s\) wait in the outbox .* after 2 s: no broker at"
        ):
            await client.drained(2)
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got, Client(broker.url, outbox=PATH) as client:
            await publish(client, *bodies[50:])
            await client.drained(30)
            state = client.outbox
            assert state is not None and (state.messages, state.size, state.why) == (0, 0, "")
            await until(lambda: len(got) == 100)
            assert got == bodies


async def test_an_outbox_drains_while_its_broker_comes_and_goes() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        url = broker.url
        async with queue(broker, "jobs.#") as got, Client(url, outbox=PATH) as client:
            await publish(client, b"1")
            await client.drained(5)
            await crash(broker)
            await publish(client, b"2", b"3")
            with pytest.raises(NotAccepted):
                await client.publish("jobs.a", b"x", timeout=0.1)
            broker = await cluster.broker("home", listen=url, state_dir="/state/home")
            await publish(client, b"4")
            await client.drained(30)
            await until(lambda: len(got) == 4)
            assert got == [b"1", b"2", b"3", b"4"]


async def test_calls_at_once_share_a_commit_and_keep_their_order() -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        receipts = await asyncio.gather(
            *(client.publish("t", b"%d" % number, level="outbox") for number in range(500))
        )
        assert [receipt.seq for receipt in receipts] == list(range(1, 501))
        state = client.outbox
        assert state is not None and state.messages == 500 and state.size < 500 * 20
        many = await client.publish_many([("t", b"a"), ("u", b"b"), ("t", b"c")], level="outbox")
        assert (many.level, many.count) == ("outbox", 3)
        assert await client.publish_many([], level="outbox") == Receipt("outbox", "", 0, 0)


async def test_headers_large_bodies_and_keys_travel_as_at_other_levels() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with Client(broker.url, outbox=PATH) as client:
            async with client.subscribe("jobs.#", durable="mail") as jobs:
                large = bytes(range(256)) * 1000
                await client.publish("jobs.a", large, level="outbox", headers={"n": 1}, key="k")
                await client.publish_many("jobs.b", [b"x"] * 5000, level="outbox")
                await client.drained(30)
                job = await anext(jobs)
                assert (bytes(job.body), job.headers) == (large, {"n": 1, "key": "k"})
                job.done()
                for _ in range(5000):
                    job = await anext(jobs)
                    assert (job.topic, bytes(job.body)) == ("jobs.b", b"x")
                    job.done()


async def test_a_topic_without_a_durable_subscription_waits_with_its_reason_and_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got, Client(broker.url, outbox=PATH) as client:
            await publish(client, b"1", b"2", topic="odd")
            await publish(client, b"3")
            what_to_do = "make a durable subscription that matches it"
            why = f"topic odd is refused by broker home: nobody keeps odd; {what_to_do}"
            with pytest.raises(MeshTimeout, match=rf"2 message\(s\) wait in .* after 5 s: {why}"):
                await client.drained(5)
            assert got == [b"3"]
            state = client.outbox
            assert state is not None and (state.messages, state.why) == (2, why)
            assert not caplog.records, "the call has told it"
            await asyncio.sleep(2 * TOLD_AFTER_S)
            warned = [
                record.getMessage() for record in caplog.records if "does not drain" in record.getMessage()
            ]
            assert warned == [f"the outbox {PATH} does not drain: {why}; 2 message(s) wait in it"]
            async with queue(broker, "odd", name="odd") as odd:
                await client.drained(120)
                await until(lambda: odd == [b"1", b"2"])
            assert caplog.records[-1].getMessage() == f"the outbox {PATH} drains again"


async def test_a_topic_that_is_due_while_there_is_no_broker_waits_for_one() -> None:
    """The client looked again and again, without a pause, whether it was time."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with Client(broker.url, outbox=PATH) as client:
            await publish(client, b"1", topic="odd")
            with pytest.raises(MeshTimeout, match="nobody keeps odd"):
                await client.drained(2)
            await crash(broker)
            with pytest.raises(MeshTimeout, match="nobody listens at"):
                await client.drained(20)


async def test_messages_wait_while_the_home_is_away_and_are_then_stored_in_order() -> None:
    async with Cluster() as cluster:
        home, entry = await cluster.mesh("home", "entry", state_dir="/state")
        async with queue(home, "jobs.#") as got, Client(entry.url, outbox=PATH) as client:
            await publish(client, b"0")
            await client.drained(10)
            await crash(home)
            sent = [b"%d" % number for number in range(1, 301)]
            for body in sent:
                await publish(client, body)
                await asyncio.sleep(0.1)
            with pytest.raises(MeshTimeout, match="there is no link to home, where jobs.a is kept"):
                await client.drained(0.1)
            home = await cluster.broker("home", entry, listen=home.url, state_dir="/state")
            await whole([home, entry])
            await client.drained(120)
            await until(lambda: len(got) == 301)
            assert got == [b"0", *sent]


async def test_blocks_of_many_openings_drain_one_boot_after_the_other_without_pauses() -> None:
    for number in range(30):
        async with Client(NOWHERE, outbox=PATH) as client:
            await publish(client, b"%d" % number)
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got, Client(broker.url, outbox=PATH) as client:
            began = asyncio.get_running_loop().time()
            await client.drained(60)
            assert asyncio.get_running_loop().time() - began < 2.0
            await until(lambda: len(got) == 30)
            assert got == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(("steps_s", "times"), [((600.0,), 1), ((8 * DAY_S,), 1), ((DAY_S,) * 9, 2)])
async def test_unacknowledged_messages_drain_after_any_time_of_silence(
    steps_s: tuple[float, ...], times: int
) -> None:
    """After seven days in which it worked a home forgets what a publisher sent, and stores it again."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got:
            await published_before(3)
            client = Client(broker.url, outbox=PATH)
            async with client:
                conversation = client._outbox._conversation  # type: ignore[union-attr]
                conversation._acknowledged = lambda *_: []  # type: ignore[method-assign]
                await until(lambda: len(got) == 3)
            await crash(broker)  # as an entry broker it remembers its last acknowledgements
            broker = await cluster.broker("home", listen=broker.url, state_dir="/state/home")
            for step_s in steps_s:
                virtual_time.step_clock(step_s)
                # a home looks for silent publishers with its commits
                await publish_elsewhere(broker, 40 // len(steps_s))
            async with Client(broker.url, outbox=PATH) as client:
                await client.drained(60)
            await until(lambda: len(got) == 3 * times)
            await asyncio.sleep(1)
            assert got == [b"0", b"1", b"2"] * times


async def test_rows_that_a_lying_disk_brings_back_are_freed_and_later_rows_drain() -> None:
    """Homes take their numbers for past. The outbox stopped draining permanently."""
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got:
            await published_before(3)
            disk = virtual_time.disk()
            before = bytes(disk.files[PATH].content)
            async with Client(broker.url, outbox=PATH) as client:
                # The last block of that boot says that the publisher waits for nothing below it.
                client._outbox._draining.window_bytes = 1  # type: ignore[union-attr]
                await client.drained(60)
            assert len(got) == 3
            overwrite(PATH, before)
            async with Client(broker.url, outbox=PATH) as client:
                assert client.outbox is not None and client.outbox.messages == 3
                await publish(client, b"3")
                await client.drained(60)
            await until(lambda: len(got) == 4)
            assert got == [b"0", b"1", b"2", b"3"]


async def test_two_copies_of_an_outbox_store_common_messages_once_and_all_new_ones() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got:
            await published_before(20)
            disk = virtual_time.disk()
            async with Client(NOWHERE, outbox="/copy.outbox"):
                pass  # a file to write the copy into
            overwrite("/copy.outbox", bytes(disk.files[PATH].content))
            async with (
                Client(broker.url, outbox=PATH) as one,
                Client(broker.url, outbox="/copy.outbox") as other,
            ):
                await publish(one, b"one")
                await publish(other, b"other")
                await one.drained(60)
                await other.drained(60)
            await until(lambda: len(got) == 22)
            await asyncio.sleep(1)
            assert got[:20] == [b"%d" % number for number in range(20)]
            assert sorted(got[20:]) == [b"one", b"other"]


async def test_a_full_outbox_makes_callers_wait_and_then_refuses() -> None:
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        client = Client(broker.url, outbox=PATH, outbox_max_bytes=100_000)
        async with client:
            with pytest.raises(NotAccepted, match=r"\d+ bytes do not fit the outbox .* of 100000 bytes"):
                await client.publish("jobs.a", bytes(200_000), level="outbox")
            await publish(client, bytes(40_000), bytes(40_000))
            began = asyncio.get_running_loop().time()
            with pytest.raises(
                NotAccepted,
                match=r"not in the outbox after 3 s: the outbox .* is full: it holds 80\d+ of 100000",
            ):
                await client.publish("jobs.a", bytes(40_000), level="outbox", timeout=3)
            assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)
            async with queue(broker, "jobs.#") as got:  # it drains now, which makes room
                await client.publish("jobs.a", bytes(40_000), level="outbox", timeout=60)
                await client.drained(60)
                await until(lambda: len(got) == 3)


async def test_a_full_disk_makes_callers_wait_and_kept_messages_still_drain() -> None:
    disk = virtual_time.disk()
    async with Cluster() as cluster:
        broker = await cluster.broker("home")
        async with Client(broker.url, outbox=PATH) as client:
            await publish(client, b"1")
            disk.size_max = 0
            with pytest.raises(NotAccepted, match=r"not in the outbox after 3 s: .*"):
                await client.publish("jobs.a", b"2", level="outbox", timeout=3)
            publishing = asyncio.create_task(client.publish("jobs.a", b"3", level="outbox", timeout=60))
            await asyncio.sleep(5)
            assert not publishing.done()
            disk.size_max = None
            assert (await publishing).seq == 2, "the number of what was never kept is given again"
            assert client.outbox is not None and client.outbox.messages == 2
    async with Client(NOWHERE, outbox=PATH) as client:
        assert client.outbox is not None and client.outbox.messages == 2


async def test_a_disk_that_fails_ends_the_outbox_until_it_is_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = virtual_time.disk()
    async with Client(NOWHERE, outbox=PATH) as client:
        await publish(client, b"1")
        disk.failing_syncs = 1.0
        with pytest.raises(Unknown, match="may be in the outbox"):
            await client.publish("jobs.a", b"2", level="outbox")
        disk.failing_syncs = 0.0
        with pytest.raises(NotAccepted):
            await client.publish("jobs.a", b"3", level="outbox")
        with pytest.raises(OutboxError):
            await client.drained(5)
        state = client.outbox
        assert state is not None and state.why in caplog.text and state.failed
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got, Client(broker.url, outbox=PATH) as client:
            await publish(client, b"4")
            await client.drained(60)
            await until(lambda: b"4" in got)
            assert got in ([b"1", b"4"], [b"1", b"2", b"4"])


async def test_an_outbox_with_a_failed_disk_takes_no_further_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swarm seed 930007 with durable subscriptions: without a pause, it looked whether to warn that it does
    not drain."""
    disk, steps = virtual_time.disk(), 0
    step = ClientOutbox._step

    def counting(self: ClientOutbox) -> None:
        nonlocal steps
        steps += 1
        assert steps < 1000, "it goes round"
        step(self)

    monkeypatch.setattr(ClientOutbox, "_step", counting)
    async with Client(NOWHERE, outbox=PATH) as client:
        await publish(client, b"1")
        await asyncio.sleep(TOLD_AFTER_S / 2)
        disk.failing_syncs = 1.0
        with pytest.raises(Unknown):
            await publish(client, b"2")
        await asyncio.sleep(20)
        failed, steps = steps, 0
        await asyncio.sleep(100)
    assert failed < 100 and steps < 10


async def test_a_cancelled_publish_is_taken_back_while_it_waits_for_room() -> None:
    async with Client(NOWHERE, outbox=PATH, outbox_max_bytes=100_000) as client:
        await publish(client, bytes(90_000))
        task = asyncio.create_task(client.publish("jobs.a", bytes(50_000), level="outbox"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not client._outbox._filling.busy  # type: ignore[union-attr]
        await publish(client, b"small")


async def test_two_clients_of_one_outbox_are_one_sentence() -> None:
    async with Client(NOWHERE, outbox=PATH):
        with pytest.raises(Locked, match=rf"{PATH} is in use by .*; name another file"):
            await Client(NOWHERE, outbox=PATH).open()
    async with Client(NOWHERE, outbox=PATH) as client:
        await publish(client, b"1")


async def test_a_damaged_outbox_is_set_aside_and_named_and_the_next_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        await publish(client, b"1")
    disk = virtual_time.disk()
    disk.files[PATH].truncate(5000)  # type: ignore[attr-defined]
    with pytest.raises(OutboxDamaged) as caught:
        await Client(NOWHERE, outbox=PATH).open()
    assert caught.value.aside in str(caught.value)
    async with Client(NOWHERE, outbox=PATH) as client:
        assert client.outbox is not None and client.outbox.messages == 0
        assert f"was set aside at {caught.value.aside}" in caplog.text


async def test_blocks_that_a_flipped_bit_hides_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """The outbox was drained, they said, and nobody had the messages."""
    async with Client(NOWHERE, outbox=PATH) as client:
        for body in (b"needle 1", b"needle 2", b"needle 3"):
            await publish(client, body)
    file = virtual_time.disk().files[PATH]
    assert isinstance(file, SectorFile)
    data = bytes(file.content)
    page = data.rindex(b"needle 1") // 16384 * 16384
    assert data[page : page + 5] == b"\x0d\x00\x00\x00\x03", "a leaf with three rows"
    file.write(page + 4, b"\x02")
    async with Cluster() as cluster:
        broker = await cluster.broker("home", state_dir="/state/home")
        async with queue(broker, "jobs.#") as got, Client(broker.url, outbox=PATH) as client:
            with pytest.raises(OutboxError, match="1 blocks in the outbox .* are damaged"):
                await client.drained(60)
            await until(lambda: len(got) == 2)
            assert got == [b"needle 1", b"needle 2"]
    assert "that cannot be found, since it is damaged: 1" in caplog.text


async def test_a_client_without_an_outbox_says_how_to_have_one() -> None:
    async with Broker(listen="tcp://127.0.0.1:0") as broker, Client(broker.url) as client:
        for call in (
            client.publish("t", b"", level="outbox"),
            client.publish_many("t", [b""], level="outbox"),
            client.drained(),
        ):
            with pytest.raises(ValueError, match=re.escape("as Client(outbox='PATH')")):
                await call
        assert client.outbox is None
    with pytest.raises(Disconnected, match="not open"):
        await Client(NOWHERE, outbox=PATH).publish("t", b"", level="outbox")
    for wrong in ({"outbox": 5}, {"outbox": ""}, {"outbox_max_bytes": 0}, {"outbox_max_bytes": "1"}):
        with pytest.raises((TypeError, ValueError), match="outbox"):
            Client(NOWHERE, **wrong)  # type: ignore[arg-type]


async def test_bad_messages_are_refused_before_they_reach_the_disk() -> None:
    async with Client(NOWHERE, outbox=PATH) as client:
        with pytest.raises(TopicError):
            await client.publish("a..b", b"", level="outbox")
        with pytest.raises(TopicError):
            await client.publish_many([("ok", b""), ("$sys.x", b"")], level="outbox")
        with pytest.raises(TypeError):
            await client.publish("a", "text", level="outbox")  # type: ignore[arg-type]
        assert client.outbox is not None and client.outbox.messages == 0


async def test_closing_keeps_waiting_messages_and_refuses_new_ones() -> None:
    client = Client(NOWHERE, outbox=PATH)
    await client.open()
    publishing = asyncio.create_task(client.publish("t", b"1", level="outbox"))
    waiting = asyncio.create_task(client.drained())
    await asyncio.sleep(0)
    await client.aclose()
    assert (await publishing).seq == 1
    with pytest.raises(Disconnected, match=r"1 message\(s\) wait in the outbox"):
        await waiting
    with pytest.raises(NotAccepted, match="closed"):
        await client.publish("t", b"2", level="outbox")
    async with Client(NOWHERE, outbox=PATH) as client:
        assert client.outbox is not None and client.outbox.messages == 1
