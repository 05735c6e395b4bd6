"""A fence around the real world: what would make a run differ from its repetition raises inside a step.

Code under test gets time from its loop, and randomness and disk from its `Environment`. Whatever else it
calls to get at a clock, at entropy, a thread, a socket or a file to write is a bug in it, and the fence says
so by name. The fence holds only while a step of a simulated loop runs (`Fence.closed`), and not for the few
modules that look at the clock, or draw masks, for their own ends (`EXEMPT`). Other threads of the
process, such as those of a Spark session beside it, are outside: simulated code has no thread but the one
that steps it.

It works by patching names in modules, so it cannot see ``from time import monotonic`` bound earlier; a test
looks for those in the source.
"""

from __future__ import annotations

import builtins
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from simulations.network import files

EXEMPT: Final = frozenset(
    {"logging", "linecache", "tokenize", "traceback", "warnings", "tracemalloc", "gc", "wsproto"}
)
"""Modules whose use of clocks, files and entropy changes nothing that is simulated. (wsproto masks frames
with random bytes, as TLS draws its keys: no length and no order depends on them.)"""

LIBRARY: Final = os.path.dirname(os.__file__) + os.sep

CLOCK_HINT: Final = "use the event loop's time() for durations and environment.wall_time for time stamps"
RANDOM_HINT: Final = "use environment.rng or environment.token"

FORBIDDEN: Final[tuple[tuple[Any, str, str], ...]] = (
    *(
        (time, name, CLOCK_HINT)
        for name in (
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "sleep",
        )
    ),
    *(
        (random, name, RANDOM_HINT)
        for name in (
            "random uniform triangular randint choice randrange sample shuffle choices normalvariate seed "
            "lognormvariate expovariate vonmisesvariate gammavariate gauss betavariate paretovariate "
            "weibullvariate getrandbits randbytes _urandom"
        ).split()
    ),
    (os, "urandom", RANDOM_HINT),
    (threading.Thread, "start", "only storage has a thread, and the simulator has its own storage"),
    (socket, "getaddrinfo", "use the event loop's getaddrinfo()"),
    (socket, "create_connection", "use the event loop's create_connection()"),
    (os, "fork", "a simulated process is a node of the world"),
    (os, "fsync", "all disk work goes through environment.storage"),
    (os, "replace", "all disk work goes through environment.storage"),
    (os, "rename", "all disk work goes through environment.storage"),
    (os, "unlink", "all disk work goes through environment.storage"),
    (os, "makedirs", "all disk work goes through environment.storage"),
)


class Escaped(RuntimeError):
    """Simulated code reached for the real world; the message names the call and what to use instead."""


class Fence:
    """Whether code under test is running, which is when the patched names refuse."""

    __slots__ = ("closed", "escapes", "thread")

    def __init__(self) -> None:
        self.closed = False
        self.thread = threading.get_ident()
        """The one that steps the simulation."""
        self.escapes: list[str] = []
        """Every refused call, since the code under test may swallow the exception."""

    @property
    def holds(self) -> bool:
        """True for a call made by code under test."""
        return self.closed and threading.get_ident() == self.thread

    def refuse(self, call: str, hint: str) -> None:
        caller = _caller()
        message = f"{call} was called by {caller} inside a simulation; {hint}"
        self.escapes.append(message)
        raise Escaped(message)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Put the fence up around a run and take it down after it."""
        saved: list[tuple[Any, str, Any]] = []
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
        open_file = builtins.open

        def guarded_seed(self_: Any, a: Any = None, version: int = 2) -> None:
            if a is None and self.holds and not _exempt():
                self.refuse("random.Random() without a seed", RANDOM_HINT)
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
                self.refuse(f"open(..., {mode!r})", "all disk work goes through environment.storage")
            return open_file(file, mode, *arguments, **options)

        return [
            *((os, name, files.shown(name, getattr(os, name))) for name in files.CALLS),
            (random.Random, "seed", guarded_seed),
            (socket.socket, "__init__", guarded_socket),
            (subprocess.Popen, "__init__", guarded_process),
            (builtins, "open", guarded_open),
        ]


def _caller() -> str:
    """The nearest caller outside of the standard library and of this module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((LIBRARY, __file__)):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}:{frame.f_lineno}"


def _exempt() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] in EXEMPT
