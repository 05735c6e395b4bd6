"""The cause of a Spark error in the reading of logs: a file is gone, or its content is damaged. Pure.

A Java exception arrives as pyspark's or as py4j's, depending on where it was raised. Only the text of both
names the cause, in its last "Caused by". A lost connection to a file system is no damage.
"""

from __future__ import annotations

import re
from typing import Final

GONE: Final = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")
"""Spark's words for a missing file."""
FORBIDDEN: Final = "Permission denied"
"""The local file system reports an unreadable file as missing, with these words."""
CAUSE: Final = "Caused by: "

ENDS_EARLY: Final = "its compressed data end early"
NOT_GZIP: Final = "it is not gzip data, or other data follow"
NOT_PARQUET: Final = "it is cut off, or not Parquet"
OTHER_TYPE: Final = "a column has another type than in an event log"
BROKEN_GZIP: Final = "its compressed data are damaged"
BROKEN_PARQUET: Final = "its Parquet data are damaged"

OF_GZIP: Final = {
    "EOFException": ENDS_EARLY,
    "not a gzip file": NOT_GZIP,
    r"gzip|java\.util\.zip\.|IOException: (invalid|incorrect|unknown) |java\.lang\.\w+Exception": BROKEN_GZIP,
}
OF_PARQUET: Final = {
    "is not a Parquet file": NOT_PARQUET,
    "SchemaColumnConvertNotSupportedException": OTHER_TYPE,
    r"EOFException|parquet|thrift|zstd|snappy|java\.util\.zip\.|java\.lang\.\w+Exception": BROKEN_PARQUET,
}
"""Kinds of damage, by a pattern in the last cause. The first match counts."""


def is_gone(error: str) -> bool:
    """True if a file is missing: its broker renamed or removed it after it was listed."""
    return any(words in error for words in GONE) and FORBIDDEN not in error


def damage_in(error: str, *, parquet: bool) -> str | None:
    """The damage of a Parquet or a compressed file that the error tells of. None: it has another cause."""
    cause = _last_cause(error)
    for pattern, wrong in (OF_PARQUET if parquet else OF_GZIP).items():
        if re.search(pattern, cause, re.IGNORECASE):
            return wrong
    return None


def may_be_damage(error: str) -> bool:
    """True if a file of either format may be damaged."""
    return any(damage_in(error, parquet=parquet) is not None for parquet in (False, True))


def _last_cause(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(CAUSE)]
    return causes[-1] if causes else "\n".join(lines[:1])
