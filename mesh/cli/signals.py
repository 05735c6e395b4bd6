"""Signals that tell a running program to stop, or to reload its configuration."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STANDARD: Final = (0, 1, 2)
AGAIN_S: Final = 0.01
"""Pause before an interrupt that was dropped is repeated, so that the destructor has ended."""


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


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Repeat an interrupt that Python drops because it came within a destructor or a callback of a weak
    reference. A simulation runs without an event loop, and spends much of its time there. However many are
    dropped, one comes, and none after the block was interrupted."""
    before = sys.unraisablehook
    again: threading.Timer | None = None

    def dropped(error: sys.UnraisableHookArgs) -> None:
        nonlocal again
        if error.exc_type is not KeyboardInterrupt:
            before(error)
        elif again is None or not again.is_alive():
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()

    sys.unraisablehook = dropped
    try:
        yield
    except KeyboardInterrupt:
        if again is not None:
            again.cancel()
        raise
    finally:
        sys.unraisablehook = before


def _is_terminal(descriptor: int) -> bool:
    """False also for a terminal that was hung up."""
    try:
        termios.tcgetattr(descriptor)
    except (termios.error, OSError):
        return False
    return True
