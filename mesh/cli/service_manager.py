"""Notices of a broker to the service manager that started it, by the protocol of systemd's ``sd_notify``.

A message is one datagram of ``NAME=value`` lines to the Unix socket that ``NOTIFY_SOCKET`` names. Without
that variable there is no listener, and nothing is sent. A task of the broker's event loop feeds the watchdog,
so a loop that stands still starves it.

Source: ``sd_notify(3)`` and ``sd_watchdog_enabled(3)``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Self

from mesh.logs import log

FEEDS: Final = 2
"""How often in one watchdog period it is fed, as the manual advises."""
STATUS_MAX: Final = 1000
"""Characters of a status; many listeners make a long one."""


class ServiceManager:
    """The end of a service that speaks.

    Args:
        address: of the manager's socket, a path or ``@`` and an abstract name; None: nobody listens.
        watchdog_s: the longest time between two feeds; None: there is no watchdog.
        clock_ns: the system's monotonic clock, in nanoseconds.
    """

    def __init__(
        self,
        address: str | None = None,
        watchdog_s: float | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._address = address
        self._clock_ns = clock_ns
        self._watchdog_s = watchdog_s
        self._ready = self._failed = False

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Self:
        """The manager that the environment of this process names."""
        address = environ.get("NOTIFY_SOCKET") or None
        if address is not None and address[0] not in "/@":  # vsock: is for virtual machines as a whole
            log.warning("NOTIFY_SOCKET is %r and not used: it is no path and no abstract name", address)
            address = None
        period_us = environ.get("WATCHDOG_USEC", "")
        meant = environ.get("WATCHDOG_PID", "") in ("", str(pid))
        if address is None or not meant or not period_us.isdecimal() or int(period_us) == 0:
            return cls(address)
        return cls(address, int(period_us) / 1e6)

    def status(self, sentence: str) -> None:
        """Set the text that ``systemctl status`` shows."""
        self._send(_status(sentence))

    def ready(self, sentence: str) -> None:
        """The broker has joined: services ordered after it may start."""
        self._ready = True
        self._send("READY=1", _status(sentence))

    def reloading(self) -> None:
        """The configuration is read again, until `reloaded`."""
        if self._ready:  # before that the manager waits for READY, and this would end its wait
            self._send("RELOADING=1", f"MONOTONIC_USEC={self._clock_ns() // 1000}")

    def reloaded(self, sentence: str) -> None:
        """The reload has come to an end, with whatever outcome."""
        self._send(*(["READY=1"] if self._ready else []), _status(sentence))

    def stopping(self, sentence: str) -> None:
        """The broker begins to leave."""
        self._send("STOPPING=1", _status(sentence))

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Within the block the watchdog is fed."""
        if self._watchdog_s is None:
            yield
            return
        feeding = asyncio.create_task(self._feed(self._watchdog_s / FEEDS), name="watchdog")
        try:
            yield
        finally:
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding

    async def _feed(self, period_s: float) -> None:
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(period_s)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        address = self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), f"\0{address[1:]}" if address[0] == "@" else address)
        except OSError as error:
            if not self._failed:
                self._failed = True
                reason = error.strerror or str(error)
                log.warning("the service manager at %s cannot be told anything: %s", address, reason)


def _status(sentence: str) -> str:
    return f"STATUS={' '.join(sentence.split())[:STATUS_MAX]}"
