"""A fence around the real world: a call that would make a run differ from its repetition raises inside a
step.

Code under test gets time from its loop, and randomness and disk from its `Environment`. Any other access to a
clock, to entropy, a thread, a socket or a file to write is a bug, and the fence names it. The fence holds
only while a step of a simulated loop runs (`Fence.closed`). It exempts the few modules that read the clock,
or draw masks, for their own purposes (`EXEMPT`). Files may be read, such as keys and certificates; folders
may not, since their order is undefined. Other threads of the process, such as those of a Spark session, are
outside: simulated code has only the thread that steps it.

It works by patching names in modules. So it cannot see ``from time import monotonic`` bound earlier, nor
anything without a name to patch: the methods of C types (``datetime.now``, ``Lock.acquire``, ``io.FileIO``),
``id()``, the hashes of strings, reading ``/dev/urandom``, and what C extensions do. Tests may see earlier
names and ``datetime.now`` by `simulations.kernel.watching`, at a price.
"""

from __future__ import annotations

import _thread
import asyncio
import builtins
import io
import os
import random
import select
import selectors
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from simulations.kernel.network import files

EXEMPT: Final = frozenset(
    {"logging", "linecache", "tokenize", "traceback", "warnings", "tracemalloc", "gc", "wsproto", "importlib"}
)
"""Modules whose use of clocks, files and entropy changes nothing that is simulated. (wsproto masks frames
with random bytes, as TLS draws its keys: no length and no order depends on them. importlib looks up what is
installed.)
"""

READING: Final = frozenset({"stat", "lstat"})
WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

LIBRARY: Final = os.path.dirname(os.__file__) + os.sep

OURS: Final = (__file__, files.__file__, os.path.join(os.path.dirname(__file__), "watching.py"))

BETWEEN: Final = (LIBRARY, "<frozen ", *OURS)
"""Code that makes calls for others; the error names these others."""

BY_THE_LOOP: Final = (asyncio.Handle._run.__code__,)
"""Code that calls whatever a loop was given, such as time.sleep by call_soon."""

CLOCK_HINT: Final = "use the event loop's time() for durations and environment.wall_time for time stamps"
RANDOM_HINT: Final = "use environment.rng or environment.token"

DISK_HINT: Final = "all disk work goes through environment.storage"
NETWORK_HINT: Final = "use the event loop's connections and its getaddrinfo()"
PROCESS_HINT: Final = "a simulated process is a node of the world"
WAIT_HINT: Final = "it stops the only thread; wait with asyncio"
THREAD_HINT: Final = "only storage has a thread, and the simulator has its own storage"
SIGNAL_HINT: Final = "a process of the world is asked to end by process.stopping"
HINTS: Final = {"tempfile": DISK_HINT}
"""Hints for modules whose first forbidden call says little about their purpose."""


def _calls(owner: Any, names: str, hint: str) -> tuple[tuple[Any, str, str], ...]:
    return tuple((owner, name, hint) for name in names.split() if hasattr(owner, name))


FORBIDDEN: Final[tuple[tuple[Any, str, str], ...]] = (
    *_calls(
        time,
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns "
        "thread_time thread_time_ns clock_gettime clock_gettime_ns sleep",
        CLOCK_HINT,
    ),
    *_calls(
        random,
        "random uniform triangular randint choice randrange sample shuffle choices normalvariate seed "
        "lognormvariate expovariate vonmisesvariate gammavariate gauss betavariate paretovariate "
        "weibullvariate getrandbits randbytes _urandom",
        RANDOM_HINT,
    ),
    *_calls(os, "urandom getrandom", RANDOM_HINT),
    *_calls(uuid, "uuid1 uuid4 getnode", RANDOM_HINT),
    *_calls(ssl, "RAND_bytes", RANDOM_HINT),
    *_calls(threading.Thread, "start", THREAD_HINT),
    *_calls(threading.Condition, "wait", WAIT_HINT),
    *_calls(_thread, "start_new_thread start_new", THREAD_HINT),
    *_calls(
        socket,
        "getaddrinfo getnameinfo gethostbyname gethostbyname_ex gethostbyaddr gethostname getfqdn "
        "create_connection create_server socketpair fromfd",
        NETWORK_HINT,
    ),
    *_calls(select, "select poll epoll", NETWORK_HINT),
    *_calls(selectors._BaseSelectorImpl, "__init__", NETWORK_HINT),
    *_calls(
        os,
        "fork forkpty system popen posix_spawn posix_spawnp execv execve wait waitpid kill killpg _exit "
        "getpid getppid uname times getloadavg chdir putenv unsetenv",
        PROCESS_HINT,
    ),
    *_calls(signal, "signal alarm setitimer raise_signal set_wakeup_fd sigwait", SIGNAL_HINT),
    *_calls(
        os,
        "pipe fsync fdatasync sync replace rename renames remove rmdir removedirs mkdir "
        "makedirs link symlink mkfifo truncate ftruncate utime listdir scandir",
        DISK_HINT,
    ),
    *_calls(builtins, "input", "a simulated process has no terminal"),
)


class Escaped(RuntimeError):
    """Simulated code tried to reach the real world; the message names the call and what to use instead."""


class Fence:
    """True while code under test is running; then the patched names refuse."""

    __slots__ = ("_saved", "closed", "escapes", "thread")

    def __init__(self) -> None:
        self.closed = False
        self.thread = threading.get_ident()
        """The thread that steps the simulation."""
        self.escapes: list[str] = []
        """Every refused call, since the code under test may swallow the exception."""
        self._saved: list[tuple[Any, str, Any]] = []

    @property
    def holds(self) -> bool:
        """True for a call made by code under test."""
        return self.closed and threading.get_ident() == self.thread

    def refuse(self, call: str, hint: str) -> None:
        caller, called = _caller()
        first = called or call
        by_way = f" and calls {call}" if called else ""
        hint = HINTS.get(first.partition(".")[0], hint)
        message = f"{first} was called by {caller} inside a simulation{by_way}; {hint}"
        self.escapes.append(message)
        raise Escaped(message)

    def original(self, owner: Any, name: str) -> Any:
        """The object of that name without the fence."""
        found = [saved for of, called, saved in self._saved if of is owner and called == name]
        return found[0] if found else getattr(owner, name)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Put the fence up around a run and take it down after it."""
        saved = self._saved
        try:
            for owner, name, hint in FORBIDDEN:
                original = owner.__dict__[name]
                saved.append((owner, name, original))
                setattr(owner, name, self._guarded(original, f"{owner.__name__}.{name}", hint))
            for owner, name, guard in self._conditional():
                saved.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, guard)
            yield
        finally:
            for owner, name, original in reversed(saved):
                setattr(owner, name, original)
            saved.clear()

    def _guarded(self, original: Callable[..., Any], call: str, hint: str) -> Callable[..., Any]:
        def guard(*arguments: Any, **options: Any) -> Any:
            if self.holds and not _exempt():
                self.refuse(call, hint)
            return original(*arguments, **options)

        return guard

    def _conditional(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        """The names that are harmless, or simulated, with some arguments."""
        seed = random.Random.seed
        new_socket = socket.socket.__init__
        new_process = subprocess.Popen.__init__
        open_file, open_descriptor, open_database = builtins.open, os.open, sqlite3.connect

        def guarded_seed(self_: Any, a: Any = None, version: int = 2) -> None:
            if a is None and self.holds and not _exempt():
                self.refuse("random.Random.seed without a number", RANDOM_HINT)
            seed(self_, a, version)

        def guarded_socket(*arguments: Any, **options: Any) -> None:
            if self.holds:
                self.refuse("socket.socket", "use the event loop's connections")
            new_socket(*arguments, **options)

        def guarded_process(*arguments: Any, **options: Any) -> None:
            if self.holds:
                self.refuse("subprocess.Popen", "a simulated process is a node of the world")
            new_process(*arguments, **options)

        def guarded_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if self.holds and set(mode) & set("wax+") and not _exempt():
                self.refuse(f"open(..., {mode!r})", DISK_HINT)
            return open_file(file, mode, *arguments, **options)

        def guarded_descriptor(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if self.holds and flags & WRITING and not _exempt():
                self.refuse("os.open for writing", DISK_HINT)
            return open_descriptor(path, flags, *arguments, **options)

        def guarded_database(database: Any, *arguments: Any, **options: Any) -> Any:
            if self.holds and database != ":memory:":
                self.refuse("sqlite3.connect", DISK_HINT)
            return open_database(database, *arguments, **options)

        def of_now(name: str, arguments_max: int) -> Callable[..., Any]:
            """A function that uses the present time unless it is given another."""
            real = getattr(time, name)

            def guarded_time(*arguments: Any) -> Any:
                given = len(arguments) > arguments_max and arguments[-1] is not None
                if self.holds and not given and not _exempt():
                    self.refuse(f"time.{name} without a time", CLOCK_HINT)
                return real(*arguments)

            return guarded_time

        def of_sockets(name: str) -> Callable[..., Any]:
            """A function that changes a file: it changes a simulated one or none. Questions about real files
            are allowed.
            """
            real = getattr(os, name)
            return files.shown(
                name, real if name in READING else self._guarded(real, f"os.{name}", DISK_HINT)
            )

        return [
            *((os, name, of_sockets(name)) for name in files.CALLS),
            *((time, name, of_now(name, 0)) for name in ("localtime", "gmtime", "ctime", "asctime")),
            (time, "strftime", of_now("strftime", 1)),
            (sqlite3, "connect", guarded_database),
            (os, "open", guarded_descriptor),
            (random.Random, "seed", guarded_seed),
            (socket.socket, "__init__", guarded_socket),
            (subprocess.Popen, "__init__", guarded_process),
            (builtins, "open", guarded_open),
            (io, "open", guarded_open),
        ]


def _caller() -> tuple[str, str | None]:
    """The nearest caller outside the standard library and this module, and the library function it called.

    The latter is omitted if it is the refused name itself.
    """
    frame, called = sys._getframe(1), None
    while frame.f_back is not None and frame.f_code.co_filename.startswith(BETWEEN):
        if frame.f_code.co_filename not in OURS:
            called = frame
        frame = frame.f_back
    caller = f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"
    return caller, None if called is None or called.f_code in BY_THE_LOOP else _name_of(called)


def _name_of(frame: FrameType) -> str:
    """The name as its caller would write it."""
    name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
    return name.removesuffix(".__init__").removesuffix(".__new__")


def is_exempt(frame: FrameType) -> bool:
    """True if the calls of this code change nothing that is simulated."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in EXEMPT


def _exempt() -> bool:
    return is_exempt(sys._getframe(2))
