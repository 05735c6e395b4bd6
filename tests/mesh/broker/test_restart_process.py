"""Receipts are true around a restart of real processes; `test_restart` has many more restarts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

from mesh import Client
from mesh.errors import MeshError
from protocols import Req0, SocketOptions, SPError
from tests.mesh.broker.test_broker_process import processes, wait_for_states
from tests.mesh.loopback import eventually

pytestmark = pytest.mark.process

TOPIC = "news.uk"
RESTARTS = 3
LATE_S = 0.1
"""A message accepted so shortly before its broker was killed may not have been written yet."""


class Promises:
    """The accepted messages: body, time, and the absent brokers that the receipt named."""

    def __init__(self) -> None:
        self.accepted: list[tuple[bytes, float, tuple[str, ...]]] = []
        self.kills: list[float] = []

    async def native(self, url: str) -> None:
        async with Client(url) as client:
            for number in range(1_000_000):
                body = b"native %d" % number
                with contextlib.suppress(MeshError):
                    receipt = await client.publish(TOPIC, body, timeout=10)
                    self._note(body, receipt.absent)
                await asyncio.sleep(0.005)

    async def stock(self, url: str) -> None:
        options = SocketOptions(recv_timeout_s=10, reconnect_min_s=0.01, reconnect_max_s=0.05)
        async with Req0(options=options) as req:
            req.dial(url)
            for number in range(1_000_000):
                body = b"stock %d" % number
                with contextlib.suppress(SPError):
                    await req.send(TOPIC.encode() + b" " + body)
                    reply = (await req.recv()).decode()
                    assert reply.startswith("accepted "), reply
                    absent = reply.partition(" absent=")[2]
                    self._note(body, tuple(absent.split(",")) if absent else ())
                await asyncio.sleep(0.005)

    def _note(self, body: bytes, absent: tuple[str, ...]) -> None:
        self.accepted.append((body, asyncio.get_running_loop().time(), absent))

    def unkept(self, at: str, got: set[bytes]) -> list[bytes]:
        return [
            body
            for body, when, absent in self.accepted
            if body not in got
            and at not in absent
            and not any(when - LATE_S <= kill <= when + LATE_S for kill in self.kills)
        ]


async def reads(url: str, got: set[bytes], ready: asyncio.Event) -> None:
    async with Client(url) as client, client.subscribe(TOPIC) as subscription:
        assert not subscription.unreached
        ready.set()
        async for delivery in subscription:
            got.add(bytes(delivery.body))


async def test_messages_accepted_by_a_restarted_broker_are_delivered_or_name_the_absent_brokers(
    tmp_path: Path,
) -> None:
    listen = ("--listen", "tcp://127.0.0.1:0")
    loop = asyncio.get_running_loop()
    async with processes(tmp_path, "alpha", "bravo", "charlie") as (alpha, bravo, charlie):
        seed = (await alpha.start(*listen))["url"]
        victim = (await bravo.start(*listen, "--join", seed))["url"]
        other = (await charlie.start(*listen, "--join", seed))["url"]
        everybody = {"alpha": "alive", "bravo": "alive", "charlie": "alive"}
        await wait_for_states(seed, everybody)
        promises = Promises()
        got: dict[str, set[bytes]] = {"alpha": set(), "charlie": set()}
        ready = [asyncio.Event(), asyncio.Event()]
        tasks = [
            asyncio.create_task(reads(seed, got["alpha"], ready[0])),
            asyncio.create_task(reads(other, got["charlie"], ready[1])),
        ]
        for event in ready:
            await event.wait()
        tasks += [asyncio.create_task(promises.native(victim)), asyncio.create_task(promises.stock(victim))]
        for _ in range(RESTARTS):
            count = len(promises.accepted)
            await eventually(lambda count=count: len(promises.accepted) > count + 100, "100 accepted")
            promises.kills.append(loop.time())
            await bravo.end(signal.SIGKILL)
            promises.kills.append(loop.time())
            await bravo.start("--listen", victim)  # its state folder knows the peers to look for
        count = len(promises.accepted)
        await eventually(lambda: len(promises.accepted) > count + 100, "100 accepted after the last restart")
        await wait_for_states(seed, everybody)
        for task in tasks[2:]:
            task.cancel()
        await asyncio.gather(*tasks[2:], return_exceptions=True)
        last = promises.accepted[-1][0]
        await eventually(lambda: all(last in bodies for bodies in got.values()), "the last message")
        for name, bodies in got.items():
            assert promises.unkept(name, bodies) == []
        for task in tasks[:2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
