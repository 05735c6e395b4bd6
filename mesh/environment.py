"""The outside world of a broker: disk, randomness, wall time, memory figures.

Production passes `Environment.real()`. The simulator passes virtual ones, so that one seed gives one run.
Durations are measured with the event loop's ``time()``, not here.
"""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from mesh.journal.port import OpenedJournal
from mesh.outbox.port import OpenedOutbox
from mesh.storage import Storage, ThreadStorage

DEFAULT_NAME: Final = "broker"
DEFAULT_TCP_URL: Final = "tcp://127.0.0.1:7770"


def rss_bytes() -> int:
    """Memory of this process in RAM. 0 if the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class OpenJournal(Protocol):
    """Opens the journal at a path for a broker."""

    async def __call__(self, path: str, *, broker: str, mesh: str) -> OpenedJournal:
        """The journal is made if there is none. Raises the errors of `mesh.journal.journal.Journal.open`."""


async def open_journal(path: str, *, broker: str, mesh: str) -> OpenedJournal:
    """A journal on this machine's disk, on its own thread."""
    from mesh.journal.journal import Journal  # needs apsw, which is loaded only by brokers that store
    from mesh.journal.thread import JournalThread

    def opened() -> Journal:
        return Journal.open(path, broker=broker, mesh=mesh, now_us=int(time.time() * 1_000_000))

    journal = JournalThread(opened, time.time)
    await journal.open()
    return journal


class OpenOutbox(Protocol):
    """Opens the outbox at a path for a client."""

    async def __call__(self, path: str, *, max_bytes: int) -> OpenedOutbox:
        """The outbox is made if there is none. Raises the errors of `mesh.outbox.outbox.Outbox.open`."""


async def open_outbox(path: str, *, max_bytes: int) -> OpenedOutbox:
    """An outbox on this machine's disk, on its own thread."""
    from mesh.outbox.outbox import Outbox  # needs apsw, which is loaded only by clients with an outbox
    from mesh.outbox.thread import OutboxThread

    def opened() -> Outbox:
        now_us = int(time.time() * 1_000_000)
        return Outbox.open(path, token=os.urandom, now_us=now_us, max_bytes=max_bytes)

    outbox = OutboxThread(opened, time.time)
    await outbox.open()
    return outbox


@dataclass(frozen=True, slots=True)
class Environment:
    """The world of one broker or one client. The maker of an environment closes its ``storage``."""

    storage: Storage
    rng: random.Random
    """All randomness of policy: jitter, and ids, which must be unique but not secret."""
    wall_time: Callable[[], float]
    """Seconds since the epoch, only for the time stamps of log rows."""
    token: Callable[[int], bytes]
    """That many unguessable bytes."""
    host: str
    pid: int
    rss_bytes: Callable[[], int] = rss_bytes
    """Memory in use, only for statistics."""
    open_journal: OpenJournal = open_journal
    open_outbox: OpenOutbox = open_outbox

    @classmethod
    def real(cls) -> Environment:
        """This machine's disk, clock and randomness."""
        return cls(
            storage=ThreadStorage(),
            rng=random.Random(os.urandom(32)),
            wall_time=time.time,
            token=os.urandom,
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def runtime_folder() -> str:
    """The folder of this user's ipc sockets: private to the user, removed at the end of the session."""
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and os.path.isdir(session):
        return os.path.join(session, "mangrove")
    return os.path.join(tempfile.gettempdir(), f"mangrove-{os.getuid()}")


def default_ipc_url(name: str | None = None) -> str:
    """The default ipc address of a broker with that name, which clients try first."""
    return f"ipc://{os.path.join(runtime_folder(), name or DEFAULT_NAME)}.sock"
