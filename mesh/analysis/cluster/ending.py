"""How a session ends: everything that was started ends, even after Ctrl-C at any point.

Spark's own handling leaves a Java behind: an interrupt during one of py4j's calls breaks the connection that
a stop needs. Here the first signal ends the Java at once, whatever this program is doing, and then unwinds
it. Further signals change nothing. Results become current through one small file that is written last, so
nothing is lost.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Context in which SIGINT and SIGTERM end everything that was started, once.

    The first signal calls ``end_now`` and raises. While ``closing``, cleanup continues. After a signal, the
    context ends with `KeyboardInterrupt`, or `SystemExit` (143). Python allows handlers only in the first
    thread; in other threads nothing is changed.
    """

    def __init__(self) -> None:
        self.end_now: Callable[[], None] = lambda: None
        self.taken: int | None = None
        self.closing = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        self.take_over()
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """A signal meanwhile raises at the end, so that a new process has its name before it must end."""
        self.closing, before = True, self.closing
        try:
            yield
        finally:
            self.closing = before
        if self.taken is not None and not before:
            raise self._ending()

    def take_over(self) -> None:
        """Handle the signals from here on."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.signal(number, self._take)
            self._before.setdefault(number, before)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Nobody replaces the handlers in this block, in which Spark installs its own one."""
        usual = signal.signal

        def unless_ours(number: int, handler: Any) -> Any:
            return self._take if number in SIGNALS else usual(number, handler)

        signal.signal = unless_ours  # type: ignore[assignment]
        try:
            yield
        finally:
            signal.signal = usual

    def _take(self, number: int, frame: FrameType | None) -> None:
        first = self.taken is None
        self.taken = self.taken or number
        self.end_now()
        if first:
            # Python prints and drops an interrupt within a destructor. The dead Java still ends the work.
            sys.unraisablehook = _say_nothing
            threading.excepthook = _say_nothing
            logging.disable()  # py4j logs tracebacks to the root logger
        if first and not self.closing:
            raise self._ending()

    def _ending(self) -> BaseException:
        return SystemExit(128 + signal.SIGTERM) if self.taken == signal.SIGTERM else KeyboardInterrupt()

    def __exit__(self, *exception: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        if self.taken is not None:
            sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
            logging.disable(logging.NOTSET)
        if self.taken is not None:
            raise self._ending() from None


def _say_nothing(said: object) -> None:
    return None


@contextmanager
def silently() -> Iterator[None]:
    """Suppress what libraries log about an error that is reported in a sentence.

    py4j logs lost connections to the root logger. A filter removes these records and keeps the program's own.
    """
    from pyspark.logger import PySparkLogger

    def is_not_of_py4j(record: logging.LogRecord) -> bool:
        return PurePath(record.pathname).parent.name != "py4j"

    root = logging.getLogger()
    loggers = [logging.getLogger(name) for name in ("py4j", "pyspark")]
    # An error with a query's context fails in its own logging if its logger is a plain one.
    contexts = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    loggers += [PySparkLogger.getLogger(name) for name in contexts]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(is_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(is_not_of_py4j)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def processes_of_session(session: int) -> list[int]:
    """Ids of the processes of a session of the system (setsid). Empty without /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    found = []
    for name in names:
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == session:
                    found.append(int(name))
            except OSError:  # it ended meanwhile
                continue
    return found
