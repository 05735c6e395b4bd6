"""A broker tells the service manager when it has joined, reloads and leaves. Its loop feeds the watchdog."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from mesh import Broker
from mesh.cli import serving
from mesh.cli.service_manager import ServiceManager
from mesh.logs import CalmHandler
from tests.mesh.cli.test_commands import TIMEOUT_S, Sandbox, sandbox
from tests.mesh.cli.test_hangup import hangups_reach_brokers

__all__ = ["hangups_reach_brokers", "sandbox"]

ALPHA, BRAVO = "tcp://127.0.0.1:7770", "tcp://127.0.0.1:7771"
LINES = CalmHandler(StringIO())


class Manager(ServiceManager):
    """One in the same process, which notes what it is told and when."""

    def __init__(self, watchdog_s: float | None = None) -> None:
        super().__init__("/nowhere", watchdog_s, lambda: 0)
        self.told: list[str] = []
        self.fed: list[float] = []

    def _send(self, *lines: str) -> None:
        if lines == ("WATCHDOG=1",):
            self.fed.append(asyncio.get_running_loop().time())
        else:
            self.told.append(" | ".join(line for line in lines if not line.startswith("MONOTONIC")))


@pytest.fixture
def reload(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """The functions that SIGHUP would call, once a broker serves. No signal handler is installed, and the
    wall clock of the log's repetitions is left alone."""

    async def no_repeats(lines: CalmHandler) -> None:
        pass

    monkeypatch.setattr(serving, "_tell_repeats", no_repeats)
    calls: list[Callable[[], None]] = []
    monkeypatch.setattr(serving, "leave_on_signal", lambda stop, told: None)
    monkeypatch.setattr(serving, "on_hangup", lambda stop, reload: calls.append(reload))
    yield calls


@pytest.mark.virtual
async def test_ready_means_joined(reload: list[Callable[[], None]]) -> None:
    manager = Manager()
    options = {"name": "alpha", "listen": [ALPHA], "join": [BRAVO]}
    serve = serving.serve(options, reload=lambda: options, ports_file=None, lines=LINES, manager=manager)
    served = asyncio.create_task(serve)
    await asyncio.sleep(10)
    reload[0]()
    assert [line.partition("=")[0] for line in manager.told] == ["STATUS", "STATUS", "STATUS"]
    assert f"joins {BRAVO}" in manager.told[0]
    assert manager.told[1:] == [
        f"STATUS=alpha is not ready: it waits for {BRAVO}",
        "STATUS=SIGHUP: the configuration is as it was",
    ]
    async with Broker(name="bravo", listen=BRAVO) as bravo:
        await asyncio.sleep(10)
        assert manager.told[3].startswith("READY=1 | STATUS=alpha (") and len(manager.told) == 4
        reload[0]()
        assert manager.told[4:] == ["RELOADING=1", "READY=1 | STATUS=SIGHUP: the configuration is as it was"]
        assert await bravo.wait_ready() is None
        served.cancel()
        await asyncio.wait([served])


@pytest.mark.virtual
async def test_a_draining_broker_reports_it_and_feeds_the_watchdog_to_its_end(
    reload: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Manager(watchdog_s=4.0)
    asked = asyncio.Event()

    async def leave_when_asked(broker: Broker, stop: asyncio.Event, began: list[str]) -> None:
        await asked.wait()
        began.append("mesh drain")
        stop.set()

    monkeypatch.setattr(serving, "_leave_if_asked", leave_when_asked)
    options = {"name": "alpha", "listen": [ALPHA], "join": []}
    serve = serving.serve(options, reload=dict, ports_file=None, lines=LINES, manager=manager)
    served = asyncio.create_task(serve)
    await asyncio.sleep(9)
    asked.set()
    await served
    assert manager.told[-1] == "STOPPING=1 | STATUS=alpha leaves: mesh drain"
    gaps = [later - earlier for earlier, later in zip(manager.fed, manager.fed[1:], strict=False)]
    assert len(manager.fed) == 5 and max(gaps) < 2.1, "twice in each period"


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_is_one_datagram(tmp_path: Path, abstract: bool) -> None:
    address = f"@mangrove-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{address[1:]}" if abstract else address)
        manager = ServiceManager.of({"NOTIFY_SOCKET": address}, os.getpid())
        manager.ready("alpha is\nREADY=0 " + "x" * 5000)
        received = listener.recv(65536).decode()
        assert received.startswith("READY=1\nSTATUS=alpha is READY=0 xxx"), "a name cannot add a line"
        assert len(received) < 1100
        manager.reloading()
        lines = listener.recv(65536).decode().splitlines()
        assert lines[0] == "RELOADING=1" and lines[1].removeprefix("MONOTONIC_USEC=").isdecimal()


def test_a_manager_that_is_gone_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager(str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING, "mesh"):
        manager.ready("ready")
        manager.stopping("leaves")
    assert [record.getMessage() for record in caplog.records] == [
        f"the service manager at {tmp_path / 'gone'} cannot be told anything: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("environ", "fed_every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
        ({"NOTIFY_SOCKET": "/x"}, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "vsock:2:9", "WATCHDOG_USEC": "30000000"}, None),
    ],
)
def test_the_watchdog_is_the_one_of_this_process(environ: dict[str, str], fed_every_s: float | None) -> None:
    assert ServiceManager.of(environ, 7)._watchdog_s == fed_every_s


@pytest.mark.process
def test_a_broker_process_notifies_the_manager_that_started_it(sandbox: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(sandbox.folder / "notify"))
        listener.settimeout(TIMEOUT_S)
        sandbox.environment |= {"NOTIFY_SOCKET": str(sandbox.folder / "notify"), "WATCHDOG_USEC": "1000000"}
        alpha = sandbox.broker("alpha")
        seen: list[str] = []

        def wait_for(words: str) -> None:
            while True:
                seen.append(listener.recv(65536).decode())
                if words in seen[-1]:
                    return

        wait_for("READY=1\nSTATUS=alpha (")
        wait_for("WATCHDOG=1")
        alpha.process.send_signal(signal.SIGHUP)
        wait_for("RELOADING=1\nMONOTONIC_USEC=")
        wait_for("READY=1\nSTATUS=SIGHUP: the configuration is as it was")
        alpha.process.send_signal(signal.SIGTERM)
        wait_for("STOPPING=1\nSTATUS=alpha leaves: SIGTERM")
        assert alpha.process.wait(TIMEOUT_S) == 0
