"""File descriptors are the program's first: a flood of connections may not take the last of them.

A process without any can open no log, no state file, no module; and asyncio's accept, out of them, calls the
loop's exception handler once for each connection of the backlog, again every second. The kernel gives the
lowest free number, so the number of an accepted connection tells how near the end is: beyond
`descriptor_limit` it is closed, and counted.
"""

from __future__ import annotations

import resource
from typing import Final

TURNS_KEPT: Final = 4
"""Loop turns of accepting for which there is room beyond the limit. A connection accepted in one turn is
known two turns later and closed in the one after that, so three backlogs can be open; the fourth is the
program's."""
BACKLOG_MAX: Final = 512
BACKLOG_MIN: Final = 8
ENDLESS: Final = 1 << 30


def soft_limit() -> int:
    """How many descriptors this process may have (``ulimit -n``)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENDLESS if limit == resource.RLIM_INFINITY else limit


def backlog() -> int:
    """Connections the kernel holds for us; asyncio accepts at most as many in one loop turn, unasked."""
    return max(BACKLOG_MIN, min(BACKLOG_MAX, soft_limit() // 32))


def descriptor_limit() -> int:
    """The greatest number that an accepted connection may have."""
    return soft_limit() - TURNS_KEPT * backlog()
