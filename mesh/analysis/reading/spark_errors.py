"""The cause of a Spark error in the reading of logs: a file is gone, or its content is damaged. Pure.

A Java exception arrives as pyspark's or as py4j's, depending on where it was raised. Only the text of both
names the cause, in its last "Caused by". A file system that fails, as by a lost connection, is no damage.
"""

from __future__ import annotations

import re
from typing import Final

GONE: Final = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")
"""Spark's words for a missing file."""
THERE: Final = ("Permission denied", "Too many open files")
"""The local file system reports a file that it cannot open as missing, with these words."""
HEAD: Final = ": "
"""Begins the error of Java in the text of py4j's."""
CAUSE: Final = "Caused by: "

ENDS_EARLY: Final = "its compressed data end early"
NOT_GZIP: Final = "it is not gzip data, or other data follow"
NOT_PARQUET: Final = "it is cut off, or not Parquet"
OTHER_TYPE: Final = "a column has another type than in an event log"
BROKEN_GZIP: Final = "its compressed data are damaged"
BROKEN_PARQUET: Final = "its Parquet data are damaged"

WRAPPED: Final = "local host is"
"""Hadoop wraps each error of a connection in one with these words."""
ENDED: Final = (
    r"java\.io\.EOFException(: (Unexpected end of|Reached the end of stream|End of file reached before"
    r"|Cannot seek (after EOF|to a negative)|Attempted to (seek or )?read past).*)?"
)
UNPACKING: Final = (
    r"java\.util\.zip\.\w+.*"
    r"|java\.io\.IOException: (not a gzip file|gzip (header|stream|data) |unknown gzip |stored gzip size "
    r"|invalid (block|stored|code|bit|literal|distance|window)|incorrect (header|data|length) check"
    r"|unknown (compression|header)|too many length|header crc).*"
)
CONFUSED: Final = (
    r"java\.lang\.(ArrayIndexOutOfBounds|StringIndexOutOfBounds|IndexOutOfBounds|NegativeArraySize|NullPointer"
    r"|IllegalArgument|ClassCast|Arithmetic|NumberFormat|UnsupportedOperation)Exception.*"
    r"|java\.nio\.Buffer(Underflow|Overflow)Exception.*"
)
"""What a decoder raises over data that it does not check."""
CHECKSUM: Final = r"org\.apache\.hadoop\.fs\.ChecksumException.*"

OF_GZIP: Final = {
    ENDED: ENDS_EARLY,
    r"java\.io\.IOException: not a gzip file": NOT_GZIP,
    f"{UNPACKING}|{CONFUSED}|{CHECKSUM}": BROKEN_GZIP,
}
OF_PARQUET: Final = {
    r"java\.lang\.RuntimeException: .* is not a Parquet file(\.| \().*": NOT_PARQUET,
    r"([\w.]+\.)?SchemaColumnConvertNotSupportedException.*": OTHER_TYPE,
    r"(shaded\.parquet\.)?(org\.apache\.(parquet|thrift)|com\.github\.luben\.zstd|org\.xerial\.snappy"
    r"|io\.airlift\.compress)\.[\w.$]+.*"
    r"|java\.io\.IOException: (can not read class org\.apache\.parquet\.|Expected \d+ values in column chunk"
    r"|FAILED_TO_UNCOMPRESS).*"
    r"|java\.lang\.RuntimeException: (corrupted file|footer is too large).*"
    f"|{ENDED}|{UNPACKING}|{CONFUSED}|{CHECKSUM}": BROKEN_PARQUET,
}
"""Kinds of damage, by a pattern of the whole last cause: its class, then its message. The first match counts.

A message may hold the path of the file, which may hold any word. So a class that a file system raises as well
counts only with a message that begins with words of a decoder.
"""


def is_gone(error: str) -> bool:
    """True if a file is missing: its broker renamed or removed it after it was listed."""
    return any(words in error for words in GONE) and not any(words in error for words in THERE)


def damage_in(error: str, *, parquet: bool) -> str | None:
    """The damage of a Parquet or a compressed file that the error tells of. None: it has another cause."""
    causes = _causes(error)
    if any(WRAPPED in cause for cause in causes):
        return None
    for pattern, wrong in (OF_PARQUET if parquet else OF_GZIP).items():
        if re.fullmatch(pattern, causes[-1]):
            return wrong
    return None


def may_be_damage(error: str) -> bool:
    """True if a file of either format may be damaged."""
    return any(damage_in(error, parquet=parquet) is not None for parquet in (False, True))


def _causes(error: str) -> list[str]:
    """The class and message of the error and each of its causes, the root of all last."""
    lines = [line.strip() for line in error.splitlines()]
    found = [line.removeprefix(mark) for line in lines for mark in (HEAD, CAUSE) if line.startswith(mark)]
    return found or lines[:1] or [""]
