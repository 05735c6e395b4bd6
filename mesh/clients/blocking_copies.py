"""Messages that a forked child has copied of its parent, and forgets: they are the parent's to take.

No message pays for a look at the process, which took longer than all else.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Received(Protocol):
    """Holds messages that came to this process."""

    def forget_received(self) -> None: ...


def belongs_to_this_process(received: Received) -> None:
    """In a child this is empty."""
    _of_this_process.add(received)


def _empty_copies() -> None:
    for received in _of_this_process:
        received.forget_received()
    _of_this_process.clear()


_of_this_process: WeakSet[Received] = WeakSet()
os.register_at_fork(after_in_child=_empty_copies)
