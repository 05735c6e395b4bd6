"""Clients with wrong proofs, each on a fresh connection, and what they cost a process.

``python -m tests.mesh.broker.guessers [SECONDS]`` measures a hundred a second against a broker, and against a
bare asyncio server that gives the same answer. The difference is what the broker adds.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from mesh.access import proofs
from mesh.access.attempts import LONGEST_S
from mesh.access.keys import SigningKey
from mesh.wire.capabilities import SESSION
from mesh.wire.session_frames import Kind, decode, encode
from mesh.wire.session_opening import hello
from tests.mesh.broker.raw_sessions import ADDRESS
from tests.mesh.loopback import REP, REQ, Stranger, eventually
from tests.support.children import ends_with_tests
from tests.support.ports import free_port

RATE: Final = 100.0
PAUSE_S: Final = 0.005


async def guess(url: str, public: bytes) -> str:
    """Send one wrong proof on its own connection. Returns the broker's answer."""
    stranger = await Stranger.connect(url, REQ)
    try:
        stranger.send(ADDRESS + hello(SESSION, os.urandom(32), 7, "guesser", 0.0, ("key", public)))
        said = decode(await stranger.receive(), 4)
        if said[0] == Kind.CHALLENGE:
            stranger.send(ADDRESS + encode(Kind.PROVE, os.urandom(64)))
            said = decode(await stranger.receive(), 4)
        return str(said[1])
    finally:
        await stranger.close()


@dataclass(frozen=True, slots=True)
class Guessed:
    """``count`` guesses that were sent in ``took_s``, and the processor time of the process."""

    count: int
    took_s: float
    used_s: float

    @property
    def rate(self) -> float:
        return self.count / self.took_s

    @property
    def share(self) -> float:
        """The share of one core."""
        return self.used_s / self.took_s

    def __str__(self) -> str:
        each_ms = 1000 * self.used_s / self.count
        return f"{self.rate:.0f} guesses/s: {self.share:.1%} of a core, {each_ms:.2f} ms each"


def used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def by_guessers(
    process: psutil.Process, url: str, public: bytes, guessers: int, seconds: float
) -> Guessed:
    """So many guessers, each of which guesses again as soon as it has its answer."""
    count = 0

    async def go_on(until: float) -> None:
        nonlocal count
        while time.monotonic() < until:
            assert await guess(url, public) == "wrong_proof"
            count += 1

    began, before = time.monotonic(), used_s(process)
    await asyncio.gather(*(go_on(began + seconds) for _ in range(guessers)))
    return Guessed(count, time.monotonic() - began, used_s(process) - before)


async def at_a_rate(process: psutil.Process, url: str, public: bytes, rate: float, seconds: float) -> Guessed:
    """So many guesses a second, whether the earlier ones are answered or not."""
    count = 0
    began, before = time.monotonic(), used_s(process)
    async with asyncio.TaskGroup() as tasks:
        while (took_s := time.monotonic() - began) < seconds:
            while count < took_s * rate:
                tasks.create_task(guess(url, public))
                count += 1
            await asyncio.sleep(PAUSE_S)
        return Guessed(count, took_s, used_s(process) - before)


@contextmanager
def broker_that_knows(
    public: bytes, folder: Path
) -> Iterator[tuple[Callable[[], psutil.Process | None], str]]:
    """A broker in a process of its own. Gives its address, and a function that finds its process once it is
    ready."""
    url = f"tcp://127.0.0.1:{free_port()}"
    config = folder / "mangrove.toml"
    config.write_text(
        f'[broker]\nname = "alpha"\nlisten = ["{url}"]\nanonymous = "nowhere"\n'
        f'[principals.alice]\nkeys = ["{proofs.key_text(public)}"]\npublish = ["#"]\n'
    )
    said = folder / "log"

    def found() -> psutil.Process | None:
        assert process.poll() is None, said.read_text()
        if "is ready" not in said.read_text():
            return None
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        return next(
            each for each in family if each.cmdline()[-1] == str(config) and "broker" in each.cmdline()
        )

    command = [sys.executable, "-m", "mesh", "broker", "--config", str(config)]
    with said.open("wb") as log:
        process = subprocess.Popen(ends_with_tests(command), stderr=log)
    try:
        yield found, url
    finally:
        process.terminate()
        process.wait(60)


class Bare(asyncio.Protocol):
    """The least that asyncio can do for a guess: it answers as a broker would, and reads nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.greeted = False

    def data_received(self, data: bytes) -> None:
        if not self.greeted:
            self.greeted = True
            self.transport.write(b"\x00SP\x00" + struct.pack(">HH", REP, 0))
            asyncio.get_running_loop().call_later(LONGEST_S, self.refuse)

    def refuse(self) -> None:
        frame = ADDRESS + encode(Kind.ERROR, "wrong_proof", "no")
        self.transport.write(struct.pack(">Q", len(frame)) + frame)
        self.transport.write_eof()


async def _serve_bare(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    await server.serve_forever()


async def _listens(url: str) -> None:
    while True:
        try:
            stranger = await Stranger.connect(url)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            await stranger.close()
            return


async def main(seconds: float) -> None:
    public = SigningKey.generate().public
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    bare = subprocess.Popen(
        ends_with_tests([sys.executable, "-m", "tests.mesh.broker.guessers", "bare", str(port)])
    )
    try:
        await _listens(url)
        family = [psutil.Process(bare.pid), *psutil.Process(bare.pid).children(recursive=True)]
        for process in family[-1:]:
            print("bare asyncio:", await at_a_rate(process, url, public, RATE, seconds), flush=True)
    finally:
        bare.terminate()
        bare.wait(60)
    with tempfile.TemporaryDirectory() as folder, broker_that_knows(public, Path(folder)) as (found, url):
        await eventually(found, "it is ready", 120)
        broker = found()
        assert broker is not None
        print("broker:      ", await at_a_rate(broker, url, public, RATE, seconds))
        print(
            "broker:      ", await by_guessers(broker, url, public, 100, seconds), "by 100 guessers that wait"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        asyncio.run(_serve_bare(int(sys.argv[2])))
    else:
        asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
