"""The log of brokers and clients: one logger, ``mesh``, whose records hold no control characters.

What is logged often has a word of a peer or a client in it. `ForeignText` escapes such words in every record
of this logger, whatever handler an application has. `PeopleFormatter` does so for all loggers of a command.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TextIO

from mesh.printable import printable

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ForeignText(logging.Filter):
    """Escapes control characters in the arguments of a record; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_safe, record.args))
        return True


def _safe(argument: Any) -> Any:
    """Numbers stay what they are, for ``%d``; all else becomes text when it is formatted."""
    return argument if isinstance(argument, int | float) else _Printable(argument)


class _Printable:
    """An argument whose text is made printable when a handler formats it, and not before."""

    __slots__ = ("_argument",)

    def __init__(self, argument: Any) -> None:
        self._argument = argument

    def __str__(self) -> str:
        return printable(str(self._argument))

    def __repr__(self) -> str:
        return printable(repr(self._argument))


class PeopleFormatter(logging.Formatter):
    """Lines for a terminal: as any formatter, with control characters escaped but in tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def log_to(stream: TextIO, *, verbose: bool) -> None:
    """Show warnings of all loggers on a stream, and information too if ``verbose``."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PeopleFormatter(FORMAT))
    logging.basicConfig(handlers=[handler], level=logging.INFO if verbose else logging.WARNING)


log: Final = logging.getLogger("mesh")
if not any(isinstance(each, ForeignText) for each in log.filters):
    log.addFilter(ForeignText())
