"""How much of a disk a database leaves free, so that what it holds can be worked off when the disk is full.

Deleting needs room, too: a commit that only deletes writes pages into the log before it frees any. So what
needs room is refused while two sizes of the log are still free, one for the log and one for what the next
checkpoint moves from it into the database. The database never shrinks: pages that were freed are used again,
and count as room for blocks. They are no room for the log.
"""

from __future__ import annotations

from typing import Final

PAGE_SIZE: Final = 16384
CHECKPOINT_PAGES: Final = 256
"""Pages in the log after which they are moved into the database: 4 MiB, since a checkpoint of 4 to 16 MB took
65 to 140 ms, and no commit can be made meanwhile."""
COMMIT_BYTES_MAX: Final = 4 << 20
"""Bytes of blocks in one commit at most; a single block may have any size."""
LOG_SIZE: Final = CHECKPOINT_PAGES * PAGE_SIZE + COMMIT_BYTES_MAX
"""Size to which the log grows: it is moved after the commit that makes it too large."""
RESERVE: Final = 2 * LOG_SIZE


def refuses(wanted: int, *, free: int, reusable: int, log_size: int) -> bool:
    """Whether blocks of ``wanted`` bytes are to be refused.

    ``free``: bytes that the disk still has; ``reusable``: bytes of freed pages in the database.
    """
    if free < LOG_SIZE - log_size:
        return True
    return free + reusable < RESERVE + wanted
