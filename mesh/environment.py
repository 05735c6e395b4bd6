"""The outside world as a broker is given it: disk, randomness, wall time, identity of the host.

Production passes `Environment.real()`. The simulator passes virtual ones, so that one seed gives one run.
Durations are not measured here but with the event loop's ``time()``.
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
    """Memory of this process that is in RAM; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class OpenJournal(Protocol):
    """How a broker opens the journal at a path."""

    async def __call__(self, path: str, *, broker: str, mesh: str) -> OpenedJournal:
        """Make it if there is none. Raises what `mesh.journal.journal.Journal.open` raises."""


async def open_journal(path: str, *, broker: str, mesh: str) -> OpenedJournal:
    """A journal on this machine's disk, on a thread of its own."""
    from mesh.journal.journal import Journal  # needs apsw, which is loaded by those who store
    from mesh.journal.thread import JournalThread

    def opened() -> Journal:
        return Journal.open(path, broker=broker, mesh=mesh, now_us=int(time.time() * 1_000_000))

    journal = JournalThread(opened, time.time)
    await journal.open()
    return journal


class OpenOutbox(Protocol):
    """How a client opens the outbox at a path."""

    async def __call__(self, path: str, *, max_bytes: int) -> OpenedOutbox:
        """Make it if there is none. Raises what `mesh.outbox.outbox.Outbox.open` raises."""


async def open_outbox(path: str, *, max_bytes: int) -> OpenedOutbox:
    """An outbox on this machine's disk, on a thread of its own."""
    from mesh.outbox.outbox import Outbox  # needs apsw, which is loaded by those who have one
    from mesh.outbox.thread import OutboxThread

    def opened() -> Outbox:
        now_us = int(time.time() * 1_000_000)
        return Outbox.open(path, token=os.urandom, now_us=now_us, max_bytes=max_bytes)

    outbox = OutboxThread(opened, time.time)
    await outbox.open()
    return outbox


@dataclass(frozen=True, slots=True)
class Environment:
    """The world of one broker, or of one client. The maker of an environment closes its ``storage``."""

    storage: Storage
    rng: random.Random
    """All randomness of policy: jitter, and ids, which need to be unique but not secret."""
    wall_time: Callable[[], float]
    """Seconds since the epoch, for the time stamps of log rows only."""
    token: Callable[[int], bytes]
    """That many unguessable bytes."""
    host: str
    pid: int
    rss_bytes: Callable[[], int] = rss_bytes
    """Memory in use, for statistics only."""
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
    """The folder of this user's ipc sockets: private to the user, removed with the session."""
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and os.path.isdir(session):
        return os.path.join(session, "mangrove")
    return os.path.join(tempfile.gettempdir(), f"mangrove-{os.getuid()}")


def default_ipc_url(name: str | None = None) -> str:
    """The default ipc address of a broker of that name, which clients try first."""
    return f"ipc://{os.path.join(runtime_folder(), name or DEFAULT_NAME)}.sock"
