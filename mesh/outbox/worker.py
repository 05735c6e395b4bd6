"""The work of an outbox, one piece at a time, independent of what runs it: a thread or a simulator.

A step takes everything that has gathered (`mesh.outbox.gathering`). A log that has grown too large is moved
between two pieces, after the outcome of the previous commit has been told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mesh.errors import OutboxError
from mesh.outbox.gathering import Done, Job, carry_out
from mesh.outbox.records import Holding

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Told:
    """The outcomes of jobs, and the contents of the outbox after them."""

    done: Sequence[Done]
    holding: Holding


Piece = Told | None
"""What was done; None for internal work."""


class Worker:
    """The work of one open outbox. ``wall_time`` gives seconds since the epoch."""

    has_chores: ClassVar[bool] = False

    def __init__(self, outbox: Outbox, wall_time: Callable[[], float]) -> None:
        self._outbox = outbox
        self._wall_time = wall_time

    def step(self, jobs: Sequence[Job]) -> Iterator[Piece]:
        """Do what has gathered. Each piece is done when it is asked for; tell its outcome at once."""
        outbox = self._outbox
        for done in carry_out(outbox, jobs, int(self._wall_time() * 1_000_000)):
            yield Told(done, outbox.holding)
            if outbox.checkpoint_due:
                with contextlib.suppress(OutboxError):  # the next change reports the failure
                    outbox.checkpoint()
                yield None

    def close(self) -> None:
        self._outbox.close()
