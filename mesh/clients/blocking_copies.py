"""Received messages that a fork has copied into the child. The child forgets them: the parent takes them.

They are dropped at the fork. To compare process ids for each message would take longer than everything else.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Received(Protocol):
    """Holds messages that this process received."""

    def forget_received(self) -> None: ...


def belongs_to_this_process(received: Received) -> None:
    """Register ``received``, so that it is emptied in a forked child."""
    _of_this_process.add(received)


def _empty_copies() -> None:
    for received in _of_this_process:
        received.forget_received()
    _of_this_process.clear()


_of_this_process: WeakSet[Received] = WeakSet()
os.register_at_fork(after_in_child=_empty_copies)
