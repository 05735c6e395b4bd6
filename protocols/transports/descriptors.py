"""Keeps some file descriptors for the program: a flood of connections may not take the last of them.

A process without descriptors can open no log, no state file, no module. And asyncio's accept, when they run
out, calls the loop's exception handler once for each connection of the backlog, every second. The kernel
assigns the lowest free number, so the number of an accepted connection shows how few are left. A connection
beyond `descriptor_limit` is closed, and counted.
"""

from __future__ import annotations

import resource
from typing import Final

TURNS_KEPT: Final = 4
"""Loop turns of accepting that fit beyond the limit. A connection accepted in one turn is known two turns
later and closed in the one after that. So three backlogs can be open; the fourth is for the program.
"""
BACKLOG_MAX: Final = 512
BACKLOG_MIN: Final = 8
ENDLESS: Final = 1 << 30


def soft_limit() -> int:
    """The most descriptors that this process may have (``ulimit -n``)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENDLESS if limit == resource.RLIM_INFINITY else limit


def backlog() -> int:
    """Connections that the kernel queues for us; asyncio accepts at most as many in one loop turn."""
    return max(BACKLOG_MIN, min(BACKLOG_MAX, soft_limit() // 32))


def descriptor_limit() -> int:
    """The highest number that an accepted connection may have."""
    return soft_limit() - TURNS_KEPT * backlog()
