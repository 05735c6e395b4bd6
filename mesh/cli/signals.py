"""How a program that runs on is told to stop."""

from __future__ import annotations

import asyncio
import signal


def leave_on_signal(stop: asyncio.Event) -> None:
    """The first signal asks; with the handlers gone, the second one does what it does to any process."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
