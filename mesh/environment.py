"""What a broker may not take from the world by itself: disk, randomness, wall time, identity of the host.

Production passes `Environment.real()`; the simulator passes virtual ones, and one seed then gives one run.
Durations never come from here: they are measured with the event loop's ``time()``.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from mesh.storage import Storage, ThreadStorage


@dataclass(frozen=True, slots=True)
class Environment:
    """The world as one broker sees it. Whoever makes one closes its ``storage``."""

    storage: Storage
    rng: random.Random
    """All randomness of policy: jitter, and ids, which need to be unique but not secret."""
    wall_time: Callable[[], float]
    """Seconds since the epoch, for the time stamps of log rows only."""
    token: Callable[[int], bytes]
    """That many unguessable bytes."""
    host: str
    pid: int

    @classmethod
    def real(cls) -> Environment:
        """This machine's disk, clock and randomness."""
        return cls(
            storage=ThreadStorage(),
            rng=random.Random(os.urandom(32)),
            wall_time=time.time,
            token=os.urandom,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
