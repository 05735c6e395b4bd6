"""The log of brokers and clients: one logger, ``mesh``, whose records hold no control characters.

Log lines often contain words of a peer or a client. `ForeignText` escapes these in every record of this
logger, whatever handlers an application has. `PeopleFormatter` and `JsonFormatter` do so for all loggers of a
command.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from mesh.log_repeats import Repeated, Repeats
from mesh.printable import printable

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORMS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
FIELDS: Final = ("broker", "kind", "repeated")
"""Optional fields of records, for filters: the broker's name, the kind of a notice, the number of repeats."""
LIFE: Final = "mesh.life"
"""The logger for the start and end of a command, independent of the level."""


class ForeignText(logging.Filter):
    """Escapes control characters in the arguments of a record. Lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_safe, record.args))
        return True


def _safe(argument: Any) -> Any:
    """Numbers stay unchanged, for ``%d``. Everything else becomes text when it is formatted."""
    return argument if isinstance(argument, int | float) else _Printable(argument)


class _Printable:
    """An argument whose text is made printable only when a handler formats it."""

    __slots__ = ("_argument",)

    def __init__(self, argument: Any) -> None:
        self._argument = argument

    def __str__(self) -> str:
        return printable(str(self._argument))

    def __repr__(self) -> str:
        return printable(repr(self._argument))


class PeopleFormatter(logging.Formatter):
    """Lines for a terminal: like any formatter, in UTC, with control characters escaped except in
    tracebacks."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.name == LIFE:
            return printable(f"mesh broker: {record.message}")
        return printable(super().formatMessage(record))


class JsonFormatter(logging.Formatter):
    """One JSON object for each line, with its traceback inside. `FIELDS` are included if the record has
    them."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {
            "ts": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        told |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


class CalmHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, and counts repeated ones (`mesh.log_repeats`)."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(self._repeats.ended(record.created))
        key = (record.name, record.levelno, record.getMessage())
        if record.exc_info or self._repeats.passes(key, record.created):
            super().emit(record)

    def tell_repeats(self, now: float) -> None:
        """Report repeats that ended before ``now``, in seconds since the epoch. Call this now and then."""
        with self.lock or nullcontext():
            self._tell(self._repeats.ended(now))

    def close(self) -> None:
        with self.lock or nullcontext(), suppress(ValueError, OSError):  # the stream may be closed
            self._tell(self._repeats.rest())
        super().close()

    def _tell(self, ended: list[Repeated]) -> None:
        for (name, level, message), count, for_s in ended:
            again = "once more" if count == 1 else f"{count} more times"
            words = f"{message} ({again} in {for_s:.0f} s)"
            told = logging.makeLogRecord({"name": name, "levelno": level, "msg": words, "repeated": count})
            told.levelname = logging.getLevelName(level)
            super().emit(told)


def log_to(stream: TextIO, *, level: str = "warning", form: str = "text") -> CalmHandler:
    """Write the lines of all loggers, from that level on, to a stream, in one of `FORMS`."""
    handler = CalmHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else PeopleFormatter(FORMAT))
    logging.basicConfig(handlers=[handler], level=level.upper())
    return handler


def speaks_json() -> bool:
    """True if this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


log: Final = logging.getLogger("mesh")
life: Final = logging.getLogger(LIFE)
life.setLevel(logging.INFO)
if not any(isinstance(each, ForeignText) for each in log.filters):
    log.addFilter(ForeignText())
