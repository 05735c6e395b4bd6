"""``mesh status`` and ``mesh top``: the state of a mesh, seen from any of its brokers."""

from __future__ import annotations

import asyncio
import signal
import sys

from rich.console import Console

from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Count, Timeout, connected
from mesh.config import ClientConfig
from mesh.console import app
from mesh.console.probe import Look, look
from mesh.console.screen import Screen
from mesh.console.signs import Shown, signs_for
from mesh.console.view import status_report

PLAIN_WIDTH = 120
"""Columns if standard output is no terminal, and so has no width."""


def status(
    *,
    all: bool = False,
    json: bool = False,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Show a broker and the mesh as it sees it.

    Parameters
    ----------
    all
        Ask every broker, not only the one connected to; exit code 75 if one was silent.
    json
        Print the whole status as one JSON document; with --all those of all brokers.
    """
    settings = flags.settings(timeout)
    seen = asyncio.run(_look(settings, all))
    if json:
        document = {"brokers": seen.statuses, "silent": seen.silent} if all else seen.statuses[0]
        print(to_json(document, indent=2))
    else:
        console = _console()
        signs = signs_for(console.encoding)
        report = status_report(seen.picture(), seen.statuses[0], console.width, signs)
        console.print(Shown(report, signs))
    if seen.silent:
        raise CommandFailed(ExitCode.TIMEOUT, f"no answer from {', '.join(seen.silent)}")
    return ExitCode.OK


def top(
    *,
    interval: float | None = None,
    once: bool = False,
    plain: bool = False,
    count: Count = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Watch the mesh live; ? shows the keys, q quits.

    Parameters
    ----------
    interval
        Seconds between two looks.
    once
        Print the picture once and end.
    plain
        Print a line a look and a line an event even on a terminal, as without one, or on a dumb one.
    count
        With plain lines: end after this many looks.
    """
    loaded = flags.loaded({"console.interval_s": interval})
    console = _console()
    if once:
        seen = asyncio.run(_look(loaded.client, True))
        console.height = max(24, console.height) if console.is_terminal else 40
        console.print(Screen(seen.picture(), signs=signs_for(console.encoding)), height=console.height)
        return ExitCode.OK
    live = console.is_terminal and not console.is_dumb_terminal and not plain and count is None
    return asyncio.run(_watch(loaded.client, console, loaded.console.interval_s, live, count))


async def _look(settings: ClientConfig, everyone: bool) -> Look:
    async with connected(settings) as client:
        return await look(
            client, min(settings.timeout_s, 1.0) if everyone else settings.timeout_s, everyone=everyone
        )


async def _watch(
    settings: ClientConfig, console: Console, interval_s: float, live: bool, count: int | None
) -> int:
    # SIGTERM ends it like Ctrl-C: a killed screen would leave the terminal in its mode.
    watching = asyncio.current_task()
    assert watching is not None
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        watching.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        async with connected(settings, watching=True) as client:
            if live:
                await app.watch(client, console, interval_s)
            else:
                await app.follow(client, console, interval_s, count)
    except asyncio.CancelledError:
        if not terminated:
            raise
        return ExitCode.TERMINATED
    return ExitCode.OK


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
