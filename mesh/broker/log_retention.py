"""Removes old files of the event log: those of this broker's name that are too old, or too many.

Nothing is removed unless configured. A growing file is never removed. A ``.part`` file that was not written
to for `ABANDONED_S` belongs to a run that was killed, and counts like the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mesh.broker.options import BrokerOptions
from mesh.errors import MeshError
from mesh.logs import log
from mesh.storage import Storage, StoredFile, disk_reason

ABANDONED_S: Final = 3600.0
"""A running broker writes every few seconds, and finishes a file within ten minutes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long files are kept, and how many bytes of them. None: no limit."""

    age_s: float | None = None
    bytes_max: int | None = None


def retention_of(options: BrokerOptions) -> Retention:
    """The retention that a broker's options set."""
    age_s = None if options.log_keep_days is None else options.log_keep_days * 86_400
    bytes_max = None if options.log_keep_mb is None else int(options.log_keep_mb * 1_000_000)
    return Retention(age_s, bytes_max)


def outdated(files: Iterable[StoredFile], stem: str, retention: Retention) -> list[str]:
    """The names of the files to remove, oldest first. ``stem`` is ``<name>-<boot>`` of the running broker."""
    name, _, boot = stem.rpartition("-")
    pattern = re.compile(rf"{re.escape(name)}-([0-9a-f]{{16}})-\d+\.jsonl(\.part)?")
    removable = []
    kept_bytes = 0
    for file in sorted(files, key=lambda file: file.age_s):
        match = pattern.fullmatch(file.name)
        if match is None:
            continue
        kept_bytes += file.size
        if match[2] and (match[1] == boot or file.age_s < ABANDONED_S):
            continue
        too_old = retention.age_s is not None and file.age_s > retention.age_s
        too_many = retention.bytes_max is not None and kept_bytes > retention.bytes_max
        if too_old or too_many:
            removable.append(file.name)
            kept_bytes -= file.size
    return removable[::-1]


async def remove_old(storage: Storage, folder: str, stem: str, retention: Retention) -> None:
    """Remove the files that `outdated` names. A failure is logged and tried again next time."""
    if retention == Retention():
        return
    try:
        for name in outdated(await storage.files(folder), stem, retention):
            await storage.remove(f"{folder}/{name}")
    except (OSError, MeshError) as error:
        log.warning("cannot remove old files in %s (%s)", folder, disk_reason(error))
