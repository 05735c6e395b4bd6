"""How much of a disk a database leaves free, so that its content can be consumed when the disk is full.

Deleting needs room too: a commit that only deletes writes pages into the log before it frees any. So what
needs room is refused while there is still room for twice the log: once for the log, and once for what the
next checkpoint moves from it into the database. The database never shrinks: freed pages are reused and count
as room for blocks, but not as room for the log.
"""

from __future__ import annotations

from typing import Final

PAGE_SIZE: Final = 16384
CHECKPOINT_PAGES: Final = 256
"""Pages in the log after which they are moved into the database: 4 MiB. A checkpoint of 4 to 16 MB took 65 to
140 ms, and no commit is possible meanwhile."""
COMMIT_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of blocks in one commit. A single block may have any size."""
LOG_SIZE: Final = CHECKPOINT_PAGES * PAGE_SIZE + COMMIT_BYTES_MAX
"""Size to which the log grows. It is moved after the commit that makes it too large."""
RESERVE: Final = 2 * LOG_SIZE


def refuses(wanted: int, *, free: int, reusable: int, log_size: int) -> bool:
    """True if blocks of ``wanted`` bytes must be refused.

    ``free``: bytes left on the disk. ``reusable``: bytes of freed pages in the database.
    """
    if free < LOG_SIZE - log_size:
        return True
    return free + reusable < RESERVE + wanted
