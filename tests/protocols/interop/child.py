"""NNG in a separate process, controlled line by line, and killed at the end.

For wss: NNG 1.11 panics in about one of fifty closings there ("pthread_mutex_lock: Invalid argument"). A
connection that it never closes cannot take our process with it.

    send HEX    ->  ok
    recv        ->  HEX, in lower case, or "-" for an empty body
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.certificates import authority, local

from .peers import DEADLINE_S


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, body: bytes) -> None:
        assert await self._ask(f"send {body.hex()}") == "ok"

    async def recv(self) -> bytes:
        answer = await self._ask("recv")
        return b"" if answer == "-" else bytes.fromhex(answer)

    async def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            answer = await self._process.stdout.readline()
        assert answer, f"NNG ended instead of doing: {line[:40]}"
        return answer.decode().strip()


@asynccontextmanager
async def child(kind: str, url: str, folder: Path, *, listen: bool) -> AsyncIterator[Child]:
    """A socket of NNG's that listens or dials; it trusts the test authority and is ``localhost``."""
    (folder / "ca.pem").write_text(authority().pem)
    (folder / "own.pem").write_text(local().cert)
    (folder / "key.pem").write_text(local().key)
    arguments = (kind, url, "listen" if listen else "dial", str(folder))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.protocols.interop.child", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S * 2):
            assert await process.stdout.readline() == b"ready\n"
        yield Child(process)
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


def serve(kind: str, url: str, way: str, folder: str) -> None:
    import pynng

    files = {name: Path(folder, f"{name}.pem").read_text() for name in ("ca", "own", "key")}
    server = pynng.TLSConfig(
        pynng.TLSConfig.MODE_SERVER, own_cert_string=files["own"], own_key_string=files["key"]
    )
    client = pynng.TLSConfig(pynng.TLSConfig.MODE_CLIENT, ca_string=files["ca"], server_name="localhost")
    milliseconds = int(DEADLINE_S * 1000)
    options: dict[str, Any] = {"tls_config": server if way == "listen" else client, "recv_max_size": 0}
    if kind == "Surveyor0":
        options["survey_time"] = milliseconds
    socket = getattr(pynng, kind)(send_timeout=milliseconds, recv_timeout=milliseconds, **options)
    if kind == "Sub0":
        socket.subscribe(b"")
    if way == "listen":
        socket.listen(url)
    else:
        socket.dial(url, block=True)
        while not socket.pipes:  # its own end may be ready a moment later than ours
            time.sleep(0.001)
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, body = line.strip().partition(" ")
        if word == "send":
            socket.send(bytes.fromhex(body))
            print("ok", flush=True)
        else:
            print(socket.recv_msg().bytes.hex() or "-", flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
