"""One broker as one process, from its first line to a graceful leave.

SIGTERM and SIGINT make it leave: it tells the other brokers, so that none counts a failure. A second signal
ends the process at once, as a crash would. SIGHUP reloads the configuration and the certificates, unless it
came because the terminal is gone. Then the broker leaves. A service manager hears of each step.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from mesh import Broker
from mesh.broker.reloading import Reloaded
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.service_manager import ServiceManager
from mesh.cli.signals import leave_on_signal, on_hangup
from mesh.cluster.own_address import has_host, host_of
from mesh.errors import MeshError
from mesh.logs import CalmHandler, life, log
from mesh.storage import disk_advice, write_atomic

REPEATS_S: Final = 5.0
"""Seconds between two looks for lines of the log that no longer repeat."""
WAITS_S: Final = 2.0
"""Seconds that a broker joins before it says which brokers it waits for."""
Options = dict[str, Any]
"""The parameters of `Broker`."""


async def serve(
    options: Options,
    *,
    reload: Callable[[], Options],
    ports_file: str | None,
    lines: CalmHandler,
    manager: ServiceManager | None = None,
) -> None:
    """Run a broker until a signal; ``reload`` reads the configuration again and raises `ConfigError`. The log
    goes to ``lines``; ``manager`` has started this process."""
    manager = manager or ServiceManager()
    gc.collect()
    gc.freeze()  # modules and functions stay: a full collection of them would stop the broker for 40 ms
    async with manager.watching():
        await _serve(options, reload, ports_file, lines, manager)


async def _serve(
    options: Options,
    reload: Callable[[], Options],
    ports_file: str | None,
    lines: CalmHandler,
    manager: ServiceManager,
) -> None:
    stop = asyncio.Event()
    began: list[str] = []
    leave_on_signal(stop, began.append)
    if (
        ports_file is not None
    ):  # left by a killed run: a program that waits for the file would take it for ours
        with suppress(OSError):
            os.unlink(ports_file)
    async with Broker(**options) as running:
        on_hangup(stop, lambda: _reload(running, reload, manager))
        if ports_file is not None:
            write_ports(ports_file, running.statistics())
        if running.statistics()["state"] == "joining":
            line = listening_line(running.statistics(), options["join"])
            tell(line)
            manager.status(line)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(_tell_repeats(lines)),
                tasks.create_task(_say_ready(running, manager)),
                tasks.create_task(_say_waits(running, manager)),
                tasks.create_task(_leave_if_asked(running, stop, began)),
                tasks.create_task(_say_unknown_hosts(options["join"])),
            ]
            await stop.wait()
            for task in beside:
                task.cancel()
        reason = began[0] if began else "its terminal is gone"
        tell(f"{running.name} leaves: {reason}")
        manager.stopping(f"{running.name} leaves: {reason}")
    tell(f"{running.name} has left")
    if ports_file is not None:
        with suppress(OSError):
            os.unlink(ports_file)


def tell(sentence: str) -> None:
    """Write one line of the log, whatever its level."""
    life.info("%s", sentence)


async def _tell_repeats(lines: CalmHandler) -> None:
    while True:
        await asyncio.sleep(REPEATS_S)
        lines.tell_repeats(time.time())


async def _say_ready(broker: Broker, manager: ServiceManager) -> None:
    with suppress(MeshError):  # it left before
        await broker.wait_ready()
        line = ready_line(broker.statistics())
        tell(line)
        manager.ready(line)


def _reload(broker: Broker, reload: Callable[[], Options], manager: ServiceManager) -> None:
    manager.reloading()
    outcome = reloaded(broker, reload)
    tell(outcome)
    manager.reloaded(outcome)


async def _say_waits(broker: Broker, manager: ServiceManager) -> None:
    """Say now and then which brokers a joining broker waits for."""
    told: tuple[str, ...] = ()
    inspected = broker.inspect()
    while inspected.state == "joining":
        await asyncio.sleep(WAITS_S)
        names = inspected.awaited
        if inspected.state == "joining" and names != told:
            told = names
            line = f"{broker.name} is not ready: it waits for {', '.join(names) or 'the others'}"
            tell(line)
            manager.status(line)


async def _leave_if_asked(broker: Broker, stop: asyncio.Event, began: list[str]) -> None:
    await broker.wait_asked_to_leave()
    began.append("mesh drain")
    stop.set()


async def _say_unknown_hosts(urls: Sequence[str]) -> None:
    """Warn once of each host name that does not resolve: it is dialled forever, like a host that is down."""
    for url in urls:
        if not has_host(url):
            continue
        host = host_of(url).strip("[]")
        try:
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = error.strerror or str(error)
            log.warning("--join %s: %r is not known here (%s); retrying", url, host, reason)


def listening_line(status: dict[str, Any], join: Sequence[str]) -> str:
    """The line about a broker that has not found its mesh yet."""
    listeners = " ".join(status["listeners"])
    others = " ".join(join) or "the brokers of its last run"
    return f"{status['name']} ({status['id']}) listens at {listeners} and joins {others}"


def ready_line(status: dict[str, Any]) -> str:
    """The one line that says a broker is up, for people and for scripts that wait for it."""
    listeners = " ".join(status["listeners"])
    others = sum(1 for member in status["members"] if not member.get("self"))
    company = f", {others} other{'s' if others != 1 else ''} in sight" if others else ""
    who = f"{status['name']} ({status['id']})"
    http = f"; HTTP at {status['http']}/" if status["http"] else ""
    return f"{who} is ready at {listeners}, mesh {status['mesh']!r}{company}{http}"


def reloaded(broker: Broker, reload: Callable[[], Options]) -> str:
    """Reload a broker's options; returns a sentence on what came of it."""
    try:
        outcome = broker.reload(Broker(**reload()).options)
    except MeshError as error:
        return f"SIGHUP: nothing is changed: {error}"
    return f"SIGHUP: {reload_sentence(outcome)}"


def reload_sentence(outcome: Reloaded) -> str:
    """The options that were replaced, and those that need a restart, by name."""
    parts = []
    if outcome.certificates:
        parts.append(f"certificates of {outcome.certificates} addresses are read again for new connections")
    if outcome.replaced:
        parts.append(f"{', '.join(outcome.replaced)} replaced")
    if outcome.kept:
        verb = "needs" if len(outcome.kept) == 1 else "need"
        parts.append(f"{', '.join(outcome.kept)} changed but {verb} a restart of the broker")
    return "; ".join(parts) or "the configuration is as it was"


KEYS_OF_PORTS: Final = ("name", "id", "boot", "pid", "url", "client_url", "listeners", "http")


def write_ports(path: str, status: dict[str, Any]) -> None:
    """Write the bound addresses into a file that appears whole or not at all.

    Raises `CommandFailed` where it cannot be written.
    """
    document = {key: status[key] for key in KEYS_OF_PORTS}
    try:
        write_atomic(path, f"{json.dumps({'schema': 1, **document})}\n".encode())
    except OSError as error:
        sentence = f"--ports-file {path} cannot be written: {disk_advice(error)}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error
