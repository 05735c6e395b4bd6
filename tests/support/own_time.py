"""Time as on a machine of one's own: what others took of the processors is no fault of what is measured.

Unlike processor time it passes while nothing is to be done, so a wait that should not be is still seen.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

RUN: Final = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds that this thread ran, those for which it was ready and did not, and how often it ran."""


def own_time_s() -> float:
    """Seconds since some moment, less those in which this thread was ready to run and did not; where the
    kernel does not tell, all of them.
    """
    now_s = time.monotonic()
    try:
        return now_s - int(RUN.read_text().split()[1]) / 1e9
    except OSError:
        return now_s
