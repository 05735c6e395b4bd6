"""The client in C, which uses NNG's own library, publishes with a receipt and hears what is published."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mesh import Broker, Client
from tests.docs.examples.programs import FOLDER

TIMEOUT_S = 120
HEADERS = Path("/usr/include/nng/nng.h")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("gcc") is None or not HEADERS.exists(),
        reason="no gcc, or no headers of NNG (libnng-dev)",
    ),
]


@pytest.fixture
def client(tmp_path: Path) -> str:
    program = tmp_path / "nng_client"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", program]
    subprocess.run([*command, FOLDER / "nng_client.c", "-lnng"], check=True, timeout=TIMEOUT_S)
    return str(program)


async def run(*command: str) -> tuple[int | None, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    return process.returncode, said.decode()


async def test_the_client_publishes_with_a_receipt(client: str) -> None:
    async with (
        Broker(name="alpha", listen="tcp://127.0.0.1:0") as broker,
        Client(broker.url) as ours,
        ours.subscribe("news.#") as news,
    ):
        code, said = await run(client, broker.url, "pub", "news.uk", "hello from C")
        assert code == 0 and said.startswith("accepted"), said
        message = await anext(news)
        assert (message.topic, message.body) == ("news.uk", b"hello from C")
        code, said = await run(client, broker.url, "pub", "news..uk", "hello")
        assert code == 1 and said.startswith("error: "), said


async def test_the_client_receives_messages_until_it_is_interrupted(client: str) -> None:
    async with Broker(name="alpha", listen="tcp://127.0.0.1:0") as broker, Client(broker.url) as ours:
        pipe = asyncio.subprocess.PIPE
        command = client, broker.url, "sub", "news."
        listening = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        assert listening.stdout is not None and listening.stderr is not None
        assert b"subscribed to news." in await listening.stderr.readline()
        reading = asyncio.create_task(listening.stdout.readline())
        while not reading.done():  # its subscription is on the way: a SUB socket has no barrier
            await ours.publish("other.uk", b"not this")
            await ours.publish("news.uk", b"hello from Python")
            await asyncio.wait([reading], timeout=0.05)
        assert reading.result() == b"news.uk hello from Python\n"
        listening.send_signal(2)
        assert await asyncio.wait_for(listening.wait(), TIMEOUT_S) == -2


async def test_the_client_reports_a_missing_broker_and_missing_arguments(client: str) -> None:
    code, said = await run(client, "tcp://127.0.0.1:1", "pub", "news.uk", "hello")
    assert code == 1 and "Connection refused" in said
    code, said = await run(client)
    assert code == 64 and said.startswith("usage:")
    assert os.path.basename(client) == "nng_client"
