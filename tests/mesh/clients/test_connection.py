"""A client's connection to real brokers over TCP on loopback, and to peers that are not brokers."""

from __future__ import annotations

import asyncio
import logging
import random
import re

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.clients.tickets import Waitable
from mesh.environment import Environment
from mesh.errors import (
    Disconnected,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    Unknown,
)
from mesh.wire.session_frames import Kind, encode
from protocols import Pipe, Pub0, RawSocket, Rep0, SharedListener
from tests.mesh.clients.taking import LOOPBACK, first
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


async def test_a_client_survives_the_restart_of_its_broker() -> None:
    async with Broker(listen=LOOPBACK, name="one") as broker:
        url = broker.url
        mesh = Client(url)
        await mesh.open()
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"before")
    assert not mesh.connected or mesh.broker == "one"
    await until(lambda: not mesh.connected)
    task = asyncio.create_task(mesh.publish("t", b"between", timeout=20.0))
    with pytest.raises(NotAccepted):
        await mesh.publish("t", b"never", timeout=0.05)
    with pytest.raises(MeshTimeout):
        await mesh.publish("t", b"never", level="sent", timeout=0.05)
    async with Broker(listen=url, name="two"):
        receipt = await task
        assert receipt.broker == "two"
        assert [delivery.body for delivery in await first(2, subscription)] == [b"before", b"between"]
        await mesh.aclose()


async def test_a_message_is_unknown_when_a_leaving_broker_refuses_its_second_copy() -> None:
    """The first copy was accepted and delivered, and its ACK was lost with the broker. `NotAccepted` claimed
    that publishing it again could not duplicate it."""
    async with Broker(listen=LOOPBACK, name="far") as far, Client(far.url) as reader:
        subscription = await reader.subscribe("t")
        async with Broker(listen=LOOPBACK, name="one", join=far.url) as one:
            await until(lambda: any(m.get("link") for m in one.statistics()["members"]))
            url = one.url
            mesh = Client(url)
            await mesh.open()
            conversation = mesh._conversation
            received = conversation.received
            conversation.received = lambda frames, now: received(  # type: ignore[method-assign]
                [frame for frame in frames if frame[5] != Kind.ACK], now
            )
            publishing = asyncio.create_task(mesh.publish("t", b"x", timeout=20.0))
            assert [delivery.body for delivery in await first(1, subscription)] == [b"x"]
        async with Broker(listen=url, name="two") as two:
            leaving: list[asyncio.Task[None]] = []

            def leave_at_once(frames: list[bytes], now: float) -> list[Waitable]:
                woken = received(frames, now)
                if conversation.settled and not leaving:  # the second copy is in flight
                    leaving.append(asyncio.create_task(two.leave()))
                return woken

            conversation.received = leave_at_once  # type: ignore[method-assign]
            with pytest.raises(Unknown, match="two refused a second copy"):
                await publishing
            await leaving[0]
        assert not subscription._feed.runs
        await mesh.aclose()


async def test_closing_sends_published_messages_and_ends_all_calls() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as reader:
        subscription = await reader.subscribe("t")
        mesh = Client(broker.url)
        await mesh.open()
        mine = await mesh.subscribe("nothing")
        iterating = asyncio.create_task(first(1, mine))
        asking = asyncio.create_task(reader.request("nobody", timeout=1.0))
        for number in range(2000):
            await mesh.publish("t", b"%d" % number, level="sent")
        await mesh.aclose()
        await mesh.aclose()
        assert await iterating == []
        with pytest.raises(NoResponders):
            await asking
        assert len(await first(2000, subscription)) == 2000
        for call in (mesh.publish("t", b""), mesh.publish("t", b"", level="sent"), mesh.request("t")):
            with pytest.raises(MeshError):
                await call
        with pytest.raises(Disconnected):
            mesh.subscribe("t")


async def test_a_cancelled_close_still_closes() -> None:
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
        mesh._conversation.sync = lambda: 1 << 60  # type: ignore[method-assign]  # a sign that never comes
        closing = asyncio.create_task(mesh.aclose())
        await until(lambda: mesh._closed)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert mesh._connection._connector.done() and mesh._writer.pipe is None


async def test_a_broker_that_ends_every_session_at_once_is_not_dialled_without_pause() -> None:
    class Hostile:
        attached = 0

        def pipe_attached(self, pipe: object) -> None:
            self.attached += 1

        def pipe_detached(self, pipe: object, reason: str) -> None: ...
        def pipe_writable(self, pipe: object) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None:
            prefix = frames[0][:4]
            pipe.send(prefix + encode(Kind.WELCOME, 1, 1, "hostile", "m", 1, 10, 10))  # type: ignore[attr-defined]
            if self.attached > 1:
                pipe.send(prefix + encode(Kind.ERROR, "SessionError", "go away"))  # type: ignore[attr-defined]

    hostile = Hostile()
    listener = SharedListener(LOOPBACK)
    async with RawSocket(Rep0, receiver=hostile) as rep:  # type: ignore[arg-type]
        await rep.listen(listener)
        await listener.start()
        async with Client(listener.url) as mesh:
            loop = asyncio.get_running_loop()
            mesh._writer.pipe.close("lost")  # type: ignore[union-attr]
            began = loop.time()
            await until(lambda: hostile.attached == 6)
            assert loop.time() - began > 0.5, "pauses of 50, 100, 200, 400 ms, half of each at least"
            assert "go away" in mesh._conversation.last_error
        await listener.aclose()


class Doorkeeper:
    """Acts as a broker: answers HELLO with WELCOME, or with the given refusal."""

    refusal = ""

    def __init__(self) -> None:
        self.pipes: list[Pipe] = []

    def pipe_attached(self, pipe: Pipe) -> None:
        self.pipes.append(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None: ...
    def pipe_writable(self, pipe: Pipe) -> None: ...
    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if frames[0][5] != Kind.HELLO:
            return
        answer = encode(Kind.WELCOME, 1, 1, "keeper", "m", 1, 10, 1000)
        if self.refusal:
            answer = encode(Kind.ERROR, "SessionError", self.refusal)
        pipe.send(frames[0][:4] + answer)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings that the client has logged since the last call."""
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "mesh" and record.levelno == logging.WARNING
    ]
    caplog.clear()
    return told


async def test_closing_without_credit_ends_as_soon_as_the_connection_ends() -> None:
    """It waited for credit for the whole second: the end of the connection did not wake it."""
    keeper = Doorkeeper()
    listener = SharedListener(LOOPBACK)
    loop = asyncio.get_running_loop()
    async with RawSocket(Rep0, receiver=keeper) as rep:
        await rep.listen(listener)
        await listener.start()
        mesh = Client(listener.url)
        await mesh.open()
        await mesh.publish_many("t", [bytes(9000)] * 20, level="sent")  # it may send one block of them
        closing = asyncio.create_task(mesh.aclose())
        await until(lambda: mesh._conversation.gate.waiters)
        began = loop.time()
        keeper.pipes[-1].close("restart")
        await closing
        assert loop.time() - began < 0.1
        await listener.aclose()


async def test_a_lasting_refusal_is_logged_once_and_raised_to_every_waiting_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A refused client dialled forever, and nobody could see why."""
    keeper = Doorkeeper()
    listener = SharedListener(LOOPBACK)
    async with RawSocket(Rep0, receiver=keeper) as rep:
        await rep.listen(listener)
        await listener.start()
        url = listener.url
        again = "the client dials it again, at least every 2 s"
        async with Client(url) as mesh:
            for refusal in ("this key is not known", "version 3 is too old"):
                keeper.refusal = refusal
                keeper.pipes[-1].close("restart")
                seen = len(keeper.pipes)
                await until(lambda seen=seen: len(keeper.pipes) == seen + 5)  # type: ignore[misc]
                with pytest.raises(NotAccepted, match=f"no credit to publish in 0.1 s: .*{refusal}"):
                    await mesh.publish("t", b"x", timeout=0.1)
                with pytest.raises(MeshTimeout, match=f"no answer on 't' in 0.1 s: .*{refusal}"):
                    await mesh.request("t", timeout=0.1)
                told = warned(caplog)
                assert f"no session with the broker at {url}: SessionError: {refusal}; {again}" == told[-1]
                assert len(told) <= 2, "with the end of the session before it"
        assert not warned(caplog), "a client that is closed tells nothing"


async def test_a_session_that_is_back_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Only the loss of the session was logged."""
    async with Broker(listen=LOOPBACK) as broker:
        url = broker.url
        mesh = Client(url)
        await mesh.open()
    async with Broker(listen=url):
        await until(lambda: mesh.connected)
        await asyncio.sleep(60.0)
        assert warned(caplog)[-1].startswith(f"the session with the broker at {url} is back after ")
        await asyncio.sleep(60.0)
        assert not warned(caplog)
        await mesh.aclose()


async def test_an_address_that_is_no_broker_any_more_is_logged_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker(listen=LOOPBACK) as broker:
        url = broker.url
        mesh = Client(url)
        await mesh.open()
    await until(lambda: mesh._connection._schedule.failures > 2)
    with pytest.raises(NotAccepted, match=re.escape(f"no broker at {url} (nobody listens at {url}); start")):
        await mesh.publish("t", b"x", timeout=0.01)
    left, nobody = warned(caplog)
    assert (
        f"broker {broker.name} leaves; " in left
        and f"nobody listens at {url}; the client dials it again" in nobody
    )
    async with Pub0(listen=url):
        await until(lambda: "pub0" in mesh._conversation.last_error)
        with pytest.raises(NotAccepted, match=re.escape(f"no session at {url}: ") + ".*pub0"):
            await mesh.publish("t", b"x", timeout=0.01)
        (other,) = warned(caplog)
        assert "pub0" in other
    async with Broker(listen=url):
        assert (await mesh.publish("t", b"x")).level == "accepted"
        await mesh.aclose()


HEADER = b"\0SP\0\0\x31\0\0"
GARBAGE = (5).to_bytes(8, "big") + b"hello"


class Babbler:
    """A listener that sends its first frame with its header; no broker does so."""

    port = 0

    def __init__(self) -> None:
        self.accepted = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        writer.write(HEADER + GARBAGE)
        await reader.read()
        writer.close()


@pytest.fixture
def over_before_anybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a connection to a `Babbler` end before the call that made it returns."""
    dial_once = RawSocket.dial_once

    async def late(self: RawSocket, url: str, timeout: float) -> Pipe:
        pipe = await dial_once(self, url, timeout)
        if url == f"tcp://127.0.0.1:{Babbler.port}":
            await until(lambda: pipe.closed)
        return pipe

    monkeypatch.setattr(Babbler, "port", 0)
    monkeypatch.setattr(RawSocket, "dial_once", late)


@pytest.mark.usefixtures("over_before_anybody_waits")
async def test_open_fails_at_once_when_its_connection_ends_without_a_session() -> None:
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(Babbler(), "127.0.0.1", 0) as server:
        Babbler.port = server.sockets[0].getsockname()[1]
        began = loop.time()
        with pytest.raises(Disconnected, match="no session .*: the connection to .* was lost"):
            await Client(f"tcp://127.0.0.1:{Babbler.port}").open()
        assert loop.time() - began < 1.0


@pytest.mark.usefixtures("over_before_anybody_waits")
async def test_a_connection_that_ends_as_it_is_made_again_is_not_waited_for() -> None:
    babbler = Babbler()
    loop = asyncio.get_running_loop()
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
    Babbler.port = int(broker.url.rpartition(":")[2])
    async with await asyncio.start_server(babbler, "127.0.0.1", Babbler.port):
        began = loop.time()
        await until(lambda: babbler.accepted == 4)
        assert loop.time() - began < 2.0, "pauses of 50, 100, 200 and 400 ms at most"
        await mesh.aclose()


async def test_the_error_without_a_broker_says_how_to_start_one() -> None:
    with pytest.raises(Disconnected, match="mesh broker"):
        async with Client("tcp://127.0.0.1:1"):
            pass


async def test_an_error_names_a_listener_that_is_no_broker() -> None:
    class Silent:
        def pipe_attached(self, pipe: object) -> None: ...
        def pipe_detached(self, pipe: object, reason: str) -> None: ...
        def pipe_writable(self, pipe: object) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None: ...

    class Rude(Silent):
        def frames_received(self, pipe: object, frames: list[bytes]) -> None:
            pipe.send(frames[0][:4] + encode(Kind.PING, 1) + b"garbage")  # type: ignore[attr-defined]

    for receiver, word in ((Silent(), "no answer"), (Rude(), "no session .* kind 16 is not msgpack")):
        listener = SharedListener(LOOPBACK)
        async with RawSocket(Rep0, receiver=receiver) as rep:  # type: ignore[arg-type]
            await rep.listen(listener)
            await listener.start()
            with pytest.raises(Disconnected, match=word):
                async with Client(listener.url, connect_timeout=0.5):
                    pass
            await listener.aclose()


async def test_a_silent_broker_is_dropped_after_three_intervals() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url, keepalive_s=0.1) as mesh:
        opened = mesh._conversation.keepalive.heard_at
        await until(lambda: mesh._conversation.keepalive.heard_at > opened + 0.5)
        assert mesh.statistics().sessions == 1, "answered pings keep it"
        mesh._conversation.received = lambda frames, now: []  # type: ignore[method-assign]
        await until(lambda: not mesh.connected)


async def test_ids_come_from_the_environment_that_is_given() -> None:
    def environment(seed: int) -> Environment:
        real = Environment.real()
        return Environment(
            storage=real.storage,
            rng=random.Random(seed),
            wall_time=real.wall_time,
            token=random.Random(seed).randbytes,
            host="host",
            pid=1,
        )

    ids = []
    async with Broker(listen=LOOPBACK) as broker:
        for seed in (1, 1, 2):
            async with Client(broker.url, environment=environment(seed)) as mesh:
                ids.append((mesh._conversation.publisher, mesh._conversation.boot, mesh._conversation.prefix))
    assert ids[0] == ids[1] != ids[2]


async def test_a_client_closed_while_it_opens_is_closed() -> None:
    class Silent:
        attached = 0

        def pipe_attached(self, pipe: object) -> None:
            self.attached += 1

        def pipe_detached(self, pipe: object, reason: str) -> None:
            self.attached -= 1

        def pipe_writable(self, pipe: object) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None: ...

    silent = Silent()
    listener = SharedListener(LOOPBACK)
    async with RawSocket(Rep0, receiver=silent) as rep:  # type: ignore[arg-type]
        await rep.listen(listener)
        await listener.start()
        mesh = Client(listener.url)
        opening = asyncio.create_task(mesh.open())
        await until(lambda: silent.attached)
        await mesh.aclose()
        with pytest.raises(Disconnected):
            await opening
        await until(lambda: not silent.attached)
        assert not mesh.connected
        await listener.aclose()
