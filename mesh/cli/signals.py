"""Signals that tell a running program to stop, or to reload its configuration."""

from __future__ import annotations

import asyncio
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STANDARD: Final = (0, 1, 2)


def leave_on_signal(stop: asyncio.Event, told: Callable[[str], None] = lambda _: None) -> None:
    """Let the first SIGTERM or SIGINT call ``told`` with its name and set ``stop``.

    That removes the handlers, so the second one ends the process.
    """
    loop = asyncio.get_running_loop()

    def asked(number: signal.Signals) -> None:
        told(number.name)
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)


def on_hangup(stop: asyncio.Event, reload: Callable[[], None]) -> None:
    """Let SIGHUP call ``reload``, or set ``stop`` if the terminal that this process began on is gone.

    A shell that ends sends the same signal as an administrator. A process that was started to ignore it, as
    by ``nohup``, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return
    terminals = [descriptor for descriptor in STANDARD if _is_terminal(descriptor)]

    def hung_up() -> None:
        if stop.is_set():
            return
        if all(map(_is_terminal, terminals)):
            reload()
        else:
            stop.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit within the block, so that its ``finally`` clauses run."""

    def asked(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, asked)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_terminal(descriptor: int) -> bool:
    """False also for a terminal that was hung up."""
    try:
        termios.tcgetattr(descriptor)
    except (termios.error, OSError):
        return False
    return True
