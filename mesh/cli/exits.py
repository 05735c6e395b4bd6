"""How a command ends: its exit code, and the one sentence on standard error.

The codes are those of ``sysexits.h`` where it has one, so that scripts can tell "try again" (75) from
"nobody there" (69) from "you mistyped it" (64). ``docs/reference/cli.md`` lists them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from mesh.cli.lines import LineTooLong
from mesh.config import FlagError
from mesh.errors import (
    ConfigError,
    Disconnected,
    ListenError,
    Locked,
    MeshError,
    MeshTimeout,
    NoResponders,
    StorageError,
    TopicError,
)
from protocols.errors import AddressError, AddressInUse, ConnectionRefused, SPError


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 64
    BAD_DATA = 65
    NO_INPUT = 66
    UNAVAILABLE = 69
    BUG = 70
    CANNOT_CREATE = 73
    IO_ERROR = 74
    TIMEOUT = 75
    NOT_PERMITTED = 77
    CONFIG = 78
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


class CommandFailed(Exception):
    """Ends a command with this code and this sentence."""

    def __init__(self, code: ExitCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


OUTPUT_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk. One without a file's name came from standard output."""

# First match wins, so subclasses stand before their bases.
CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (FlagError, ExitCode.USAGE),
    (ConfigError, ExitCode.CONFIG),
    (TopicError, ExitCode.USAGE),
    (MeshTimeout, ExitCode.TIMEOUT),
    (NoResponders, ExitCode.UNAVAILABLE),
    (Disconnected, ExitCode.UNAVAILABLE),
    (ListenError, ExitCode.UNAVAILABLE),
    (Locked, ExitCode.UNAVAILABLE),
    (MeshError, ExitCode.FAILED),
    (ConnectionRefused, ExitCode.UNAVAILABLE),
    (AddressInUse, ExitCode.UNAVAILABLE),
    (AddressError, ExitCode.USAGE),
    (TimeoutError, ExitCode.TIMEOUT),
    (SPError, ExitCode.FAILED),
    (ConnectionError, ExitCode.UNAVAILABLE),
    (LineTooLong, ExitCode.BAD_DATA),
    (UnicodeError, ExitCode.BAD_DATA),
    (FileNotFoundError, ExitCode.NO_INPUT),
    (OSError, ExitCode.FAILED),
)


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """The exit code of an error, and its sentence in one line."""
    leaf = next(_leaves(error))
    if isinstance(leaf, CommandFailed):
        return leaf.code, str(leaf)
    disk = leaf.__cause__ if isinstance(leaf, StorageError) else leaf
    if isinstance(disk, OSError) and disk.errno in OUTPUT_ERRNOS:
        return ExitCode.IO_ERROR, _sentence(leaf)
    if isinstance(disk, PermissionError):
        return ExitCode.NOT_PERMITTED, _sentence(leaf)
    for type_, code in CODES:
        if isinstance(leaf, type_):
            return code, _sentence(leaf)
    if isinstance(leaf, ImportError):
        missing = leaf.__cause__ if isinstance(leaf.__cause__, ImportError) else leaf
        return ExitCode.UNAVAILABLE, f"not everything it needs is installed: {_sentence(missing)}"
    said = f"{type(leaf).__name__}: {leaf}".rstrip(": ")
    return ExitCode.BUG, f"this is a fault of the program ({said}); MANGROVE_DEBUG=1 shows where it happened"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a task group's error; the first one that is not a group is the cause."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror and error.errno in OUTPUT_ERRNOS:
        return f"standard output cannot be written: {error.strerror}"
    text = " ".join(str(error).split())
    if text:
        return text
    return "it took too long" if isinstance(error, TimeoutError) else type(error).__name__
