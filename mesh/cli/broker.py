"""``mesh broker``: one broker as one process, from its first line to a graceful leave.

SIGTERM and SIGINT make it leave: the others hear it go and nobody counts a failure. A second signal ends
the process at once, as a crash would.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mesh import Broker
from mesh import config as configuration
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.storage import disk_advice

log = logging.getLogger("mesh")


def broker(
    *,
    name: str | None = None,
    listen: list[str] | None = None,
    join: list[str] | None = None,
    mesh: str | None = None,
    mesh_key_file: str | None = None,
    advertise: str | None = None,
    export: list[str] | None = None,
    state_dir: str | None = None,
    log_dir: str | None = None,
    period: float | None = None,
    deadline: float | None = None,
    stats: float | None = None,
    ports_file: str | None = None,
    config: str | None = None,
    verbose: bool = False,
) -> int:
    """Run a broker until it is told to stop (SIGTERM or SIGINT: it leaves; a second one: it ends at once).

    Parameters
    ----------
    name
        What this broker is called in logs and on screens.
    listen
        An address to serve, tcp://host:port or ipc:///path; may be repeated. Port 0 takes a free one.
    join
        Address of a broker to join; may be repeated. Any one of a mesh is enough.
    mesh
        Name of the mesh; brokers of another mesh are refused.
    mesh_key_file
        File whose content every broker of the mesh must know (or MANGROVE_MESH_KEY).
    advertise
        Address others are told, where it is not the one listened on (NAT, containers).
    export
        Pattern that stock SUB sockets on this broker may see; may be repeated.
    state_dir
        Folder where id, incarnation and known peers outlive a restart.
    log_dir
        Folder for the event log that `mesh analyze` reads.
    period
        Seconds from one heartbeat to the next.
    deadline
        Seconds within which a heartbeat must be answered.
    stats
        Seconds between stats rows in the log.
    ports_file
        Write the addresses really bound to this file, as JSON, once ready.
    config
        Read this TOML file instead of looking for one.
    verbose
        Say more on standard error.
    """
    flags = {
        "name": name,
        "listen": listen,
        "join": join,
        "mesh": mesh,
        "mesh_key_file": mesh_key_file,
        "advertise": advertise,
        "export": export,
        "state_dir": state_dir,
        "log_dir": log_dir,
        "period_s": period,
        "deadline_s": deadline,
        "stats_s": stats,
    }
    loaded = configuration.load({f"broker.{key}": value for key, value in flags.items()}, path=config)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    asyncio.run(_serve(broker_options(loaded.config.broker), ports_file))
    return ExitCode.OK


def broker_options(config: configuration.BrokerConfig) -> dict[str, Any]:
    """The parameters of `Broker` that a configuration amounts to."""
    options = {
        option.key: getattr(config, option.key)
        for option in configuration.options()
        if option.section == "broker" and option.key != "mesh_key_file"
    }
    return {**options, "mesh_key": configuration.mesh_key(config)}


async def _serve(options: dict[str, Any], ports_file: str | None) -> None:
    stop = asyncio.Event()
    _leave_on_signal(stop)
    async with Broker(**options) as running:
        if ports_file is not None:
            write_ports(ports_file, running.statistics())
        print(ready_line(running.statistics()), file=sys.stderr, flush=True)
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_say_unknown_hosts(options["join"]))
            await stop.wait()
            looking.cancel()
    if ports_file is not None:
        with suppress(OSError):
            os.unlink(ports_file)


async def _say_unknown_hosts(urls: Sequence[str]) -> None:
    """A misspelt host is tried for ever like one that is down; say once that nobody knows the name."""
    for url in urls:
        scheme, _, address = url.partition("://")
        if scheme != "tcp":
            continue
        host, _, port = address.rpartition(":")
        try:
            await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            reason = error.strerror or str(error)
            log.warning("--join %s: %r is not known here (%s); trying on", url, host, reason)


def _leave_on_signal(stop: asyncio.Event) -> None:
    """The first signal asks; with the handlers gone, the second one does what it does to any process."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)


def ready_line(status: dict[str, Any]) -> str:
    """The one line that says a broker is up, for people and for scripts that wait for it."""
    listeners = " ".join(status["listeners"])
    others = sum(1 for member in status["members"] if not member.get("self"))
    company = f", {others} other{'s' if others != 1 else ''} in sight" if others else ""
    who = f"{status['name']} ({status['id']})"
    return f"mesh broker: {who} is ready at {listeners}, mesh {status['mesh']!r}{company}"


def write_ports(path: str, status: dict[str, Any]) -> None:
    """Put the addresses really bound into a file that appears whole or not at all.

    Raises `CommandFailed` where it cannot be written.
    """
    document = {key: status[key] for key in ("name", "id", "boot", "pid", "url", "client_url", "listeners")}
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as out:
            json.dump({"schema": 1, **document}, out)
            out.write("\n")
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(f"{path}.tmp")
        sentence = f"--ports-file {path} cannot be written: {disk_advice(error)}"
        raise CommandFailed(ExitCode.CANNOT_CREATE, sentence) from error
