"""The fence: a call that would make a run differ from its repetition raises inside; nothing of the fence
remains after.
"""

from __future__ import annotations

import _thread
import asyncio
import builtins
import datetime
import logging
import os
import queue
import random
import re
import secrets
import select
import selectors
import signal
import socket
import sqlite3
import ssl
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from simulations.kernel.guards import FORBIDDEN, Escaped
from simulations.world import Process, World

ROOT = Path(__file__).parents[3]


def escapes(call: Callable[[], Any], sentence: str) -> list[str]:
    """Call it inside a simulation, where it must be refused with that sentence; return the fence's record."""

    async def main(process: Process) -> None:
        with pytest.raises(Escaped, match=sentence):
            call()
        process.exposed = "tried"
        await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(1)
        assert node.exposed == "tried"
        return list(world.fence.escapes)


@pytest.mark.parametrize(
    "call",
    [
        lambda: time.time(),
        lambda: time.monotonic(),
        lambda: time.sleep(0),
        lambda: random.random(),
        lambda: random.shuffle([]),
        lambda: random.Random(),
        lambda: random.SystemRandom().random(),
        lambda: os.urandom(1),
        lambda: secrets.token_bytes(1),
        lambda: uuid.uuid4(),
        lambda: threading.Thread(target=print).start(),
        lambda: socket.socket(),
        lambda: socket.create_connection(("127.0.0.1", 1)),
        lambda: socket.getaddrinfo("localhost", 1),
        lambda: socket.gethostbyname("localhost"),
        lambda: socket.gethostname(),
        lambda: socket.socketpair(),
        lambda: select.select([], [], [], 0),
        lambda: subprocess.run(["true"], check=False),
        lambda: os.system("true"),
        lambda: os.fork(),
        lambda: os.kill(os.getpid(), 0),
        lambda: signal.setitimer(signal.ITIMER_REAL, 0),
        lambda: time.process_time(),
        lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        lambda: uuid.uuid1(),
        lambda: ssl.RAND_bytes(1),
        lambda: _thread.start_new_thread(print, ()),
        lambda: ThreadPoolExecutor().submit(print),
        lambda: input(),
        lambda: Path("/tmp/never-written").write_text("x"),
        lambda: Path("/tmp/never-written").touch(),
        lambda: os.open("/tmp/never-written", os.O_CREAT | os.O_WRONLY),
        lambda: tempfile.mkdtemp(),
        lambda: tempfile.TemporaryFile(),
        lambda: os.listdir("/"),
        lambda: list(Path("/").iterdir()),
        lambda: list(os.walk("/")),
        lambda: os.unlink("/tmp/never-written"),
        lambda: os.remove("/tmp/never-written"),
        lambda: os.chmod("/tmp/never-written", 0o600),
        lambda: open("/tmp/never-written", "w"),
        lambda: os.makedirs("/tmp/never-made"),
        lambda: os.pipe(),
        lambda: os.chdir("/"),
        lambda: os.getpid(),
        lambda: os.uname(),
        lambda: os.getloadavg(),
        lambda: os.environ.__setitem__("NEVER", "set"),
        lambda: sqlite3.connect("/tmp/never-written"),
        lambda: datetime.date.today(),
        lambda: time.localtime(),
        lambda: time.gmtime(None),
        lambda: time.ctime(),
        lambda: time.strftime("%c"),
        lambda: threading.Event().wait(0.01),
        lambda: queue.Queue[int]().get(timeout=0.01),
        lambda: selectors.DefaultSelector(),
    ],
)
def test_the_real_world_is_out_of_reach_inside_a_step(call: Callable[[], Any]) -> None:
    assert escapes(call, "test_guards")  # counted even where the code swallows the exception


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: secrets.token_hex(),
            r"^secrets\.token_hex was called .* and calls random\._urandom; use env",
        ),
        (
            lambda: random.SystemRandom().random(),
            r"^random\.SystemRandom\.random was called .* and calls random\._",
        ),
        (
            lambda: random.Random(),
            r"^random\.Random was called .* and calls random\.Random\.seed without a num",
        ),
        (
            lambda: tempfile.TemporaryDirectory(),
            r"^tempfile\.TemporaryDirectory was called .*; all disk work goes",
        ),
        (
            lambda: Path("/tmp/never-written").touch(),
            r"^pathlib\.Path\.touch was called .* and calls os\.utime;",
        ),
        (
            lambda: time.time(),
            r"^time\.time was called by tests\.simulations\.kernel\.test_guards:\d+ inside a simulation; ",
        ),
    ],
)
def test_the_error_names_the_called_function_and_the_refused_part(
    call: Callable[[], Any], sentence: str
) -> None:
    escapes(call, sentence)


def test_a_call_made_by_the_loop_for_the_code_is_named_itself() -> None:
    async def main(process: Process) -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 1)
        await process.stopping.wait()

    with World(1, keep_failures=True) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert [each.partition(" was called")[0] for each in world.fence.escapes] == ["time.sleep"]


def test_seeded_randomness_reading_and_logging_are_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async def main(process: Process) -> None:
        random.Random(1).random()
        logging.getLogger("simulated").warning("a line with a real time stamp")
        with open(__file__) as file:
            file.readline()
        assert time.gmtime(0).tm_year == 1970 and time.strftime("%Y", time.gmtime(0)) == "1970"
        sqlite3.connect(":memory:").close()
        process.exposed = "done"

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert not world.failures
        assert time.time() > 0  # outside of steps everything is as usual
    assert "a line with" in caplog.text


def test_threads_of_the_simulation_are_fenced_too() -> None:
    async def main(process: Process) -> None:
        with pytest.raises(Escaped):
            await process.loop.run_in_executor(None, lambda: time.time())

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert not world.failures
        assert world.fence.escapes


def test_everything_is_as_before_after_a_run_that_failed() -> None:
    before = [owner.__dict__[name] for owner, name, _ in FORBIDDEN]
    opened, seed = builtins.open, random.Random.seed
    with pytest.raises(ZeroDivisionError), World(1):
        raise ZeroDivisionError
    assert [owner.__dict__[name] for owner, name, _ in FORBIDDEN] == before
    assert builtins.open is opened and random.Random.seed is seed


def test_no_module_that_runs_in_a_broker_binds_clocks_or_randomness_by_name() -> None:
    """Such a name could not be patched, so the fence would not see its use, nor that of a C class."""
    forbidden = [
        f"from {module} import" for module in ("time", "random", "secrets", "uuid", "os import urandom")
    ]
    asked_of_c = re.compile(r"datetime\.(now|utcnow|today)\(")
    found = []
    for folder in ("protocols", "mesh"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).parts[1] in ("analysis", "bench", "console", "cli", "demo"):
                continue
            lines = path.read_text().splitlines()
            found += [f"{path}: {line}" for line in lines for start in forbidden if line.startswith(start)]
            found += [f"{path}: {line}" for line in lines if asked_of_c.search(line)]
    assert not found


def test_the_fence_does_not_apply_to_other_threads_of_the_process() -> None:
    """A Spark session in the same process has threads that sleep; the simulation ignores them."""
    begin, done, failures = threading.Event(), threading.Event(), []

    def elsewhere() -> None:
        begin.wait(120)
        try:
            time.sleep(0)
        except Escaped as error:
            failures.append(error)
        finally:
            done.set()

    async def main(process: Process) -> None:
        begin.set()
        while not done.is_set():
            pass
        await process.stopping.wait()

    stranger = threading.Thread(target=elsewhere)
    stranger.start()
    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        assert not world.fence.escapes
    stranger.join()
    assert done.is_set() and not failures
