"""What Spark's failures mean for a reading: a file is gone, or its content is damaged. Pure.

A failure of Java arrives as pyspark's exception or as py4j's, depending on where it was raised. So only the
text tells what happened. Its last cause is the reason; a lost connection to a store is no damage.
"""

from __future__ import annotations

import re
from typing import Final

GONE: Final = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")
"""Spark's words for a missing file."""
FORBIDDEN: Final = "Permission denied"
"""The local file system reports a file without rights as missing, with these words."""
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
"""What is wrong with a file, by patterns in the reason."""


def is_gone(failure: str) -> bool:
    """True if a file was missing: its broker has renamed or removed it since it was listed."""
    return any(words in failure for words in GONE) and FORBIDDEN not in failure


def damage(failure: str, *, parquet: bool) -> str | None:
    """What is wrong with the content of a file that could not be read. None: the failure is of another
    kind."""
    reason = _reason(failure)
    for pattern, wrong in (OF_PARQUET if parquet else OF_GZIP).items():
        if re.search(pattern, reason, re.IGNORECASE):
            return wrong
    return None


def may_be_damage(failure: str) -> bool:
    """True if it is worth looking for damaged files."""
    return any(damage(failure, parquet=parquet) is not None for parquet in (False, True))


def _reason(failure: str) -> str:
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(CAUSE)]
    return causes[-1] if causes else "\n".join(lines[:1])
