"""Outboxes over real sockets, disks and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mesh import Broker, Client
from mesh.errors import Locked, OutboxReadOnly

ROOT = Path(__file__).parents[3]
LOCAL = "tcp://127.0.0.1:0"
NOWHERE = "tcp://127.0.0.1:1"


async def test_messages_in_an_outbox_are_stored_once_a_broker_is_reachable(tmp_path: Path) -> None:
    path = tmp_path / "program.outbox"
    async with Client(NOWHERE, outbox=path) as client:
        await client.publish("jobs.a", b"1", level="outbox")
        with pytest.raises(Locked, match=r"is in use by .*; name another file"):
            await Client(NOWHERE, outbox=path).open()
    async with Broker(name="home", listen=LOCAL, state_dir=tmp_path / "home") as broker:
        async with Client(broker.url, outbox=path) as client:
            async with client.subscribe("jobs.#", durable="mail") as jobs:
                await client.publish("jobs.a", b"2", level="outbox")
                await client.drained(60)
                for body in (b"1", b"2"):
                    job = await anext(jobs)
                    assert bytes(job.body) == body and job.done()


async def test_an_outbox_in_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutboxReadOnly, match=r"cannot be made: there is no folder .*gone; make it, or name"):
        await Client(NOWHERE, outbox=tmp_path / "gone" / "program.outbox").open()


FORKED = """
import asyncio, os, sys
from mesh import Client
from mesh.errors import NotAccepted

async def main():
    async with Client("tcp://127.0.0.1:1", outbox=sys.argv[1]) as client:
        await client.publish("t", b"parent", level="outbox")
        if not os.fork():
            try:
                await client.publish("t", b"child", level="outbox")
            except NotAccepted as error:
                os._exit(0 if "of which this is a fork" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert client.outbox.messages == 1
        await client.publish("t", b"parent", level="outbox")
        assert client.outbox.messages == 2

asyncio.run(main())
"""


@pytest.mark.process
def test_a_forked_process_cannot_publish_into_its_parents_outbox(tmp_path: Path) -> None:
    path = tmp_path / "program.outbox"
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
