"""A flood that would take every file descriptor leaves some for the program, and for honest peers."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocols import Rep0, Req0, SocketOptions
from tests.support.waiting import until

FLOOD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
for _ in range(400):
    peer = socket.socket(socket.AF_UNIX)  # waits while the backlog is full, where TCP would drop packets
    try:
        peer.connect(sys.argv[1])
        peer.send(bytes.fromhex("0053500000300000"))  # a REQ as good as any
    except OSError:
        pass
    held.append(peer)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """A soft limit a little above what this process has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 120
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_flood_of_connections_leaves_descriptors_for_the_program(
    few_descriptors: int, tmp_path: Path
) -> None:
    async with Rep0(options=SocketOptions(handshake_timeout_s=60)) as replier:
        listener = await replier.listen(f"ipc://{tmp_path}/x")
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", FLOOD, f"{tmp_path}/x"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert flood.stdout is not None and flood.stdin is not None
        await flood.stdout.readline()
        await until(lambda: listener.statistics().refused.get("no descriptors"))
        with open(os.devnull, "rb") as file:  # the program can still open the files it needs
            assert file.fileno() < few_descriptors
        flood.stdin.close()
        await flood.wait()
        async with Req0(dial=listener.url) as honest:
            await honest.send(b"still there?", timeout=10)
            await replier.recv(timeout=10)
            await replier.send(b"yes")
            assert await honest.recv(timeout=10) == b"yes"
