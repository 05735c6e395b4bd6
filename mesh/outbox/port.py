"""The calls of a client to its open outbox, which works in the background of the event loop.

`mesh.outbox.thread` implements them in production. The methods return at once; ``told`` is called in a later
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mesh.outbox.records import Damaged, Holding, Opening, OutboxBlock


class OpenedOutbox(Protocol):
    """An open outbox. All methods but `aclose` raise what `check` raises."""

    @property
    def opening(self) -> Opening:
        """Facts found when it was opened."""

    @property
    def holding(self) -> Holding:
        """The contents after the last change whose outcome is known."""

    def check(self) -> None:
        """Raise `OutboxError` in a fork, `StorageError` when it is closed."""

    def append(
        self, sealed: Sequence[bytes], told: Callable[[list[OutboxBlock] | Exception], None], /
    ) -> None:
        """`Outbox.append`, in a commit with other waiting changes. Also raises `StorageError` if too much
        waits."""

    def free(
        self, ranges: Sequence[tuple[int, int]], told: Callable[[list[OutboxBlock] | Exception], None], /
    ) -> None:
        """`Outbox.free`, in a commit with other waiting changes."""

    def read(
        self,
        after_row: int,
        bytes_max: int,
        without: Sequence[bytes],
        told: Callable[[list[OutboxBlock | Damaged] | Exception], None],
        /,
    ) -> None:
        """`Outbox.read`."""

    async def aclose(self) -> None:
        """Finish what was handed over and close the outbox. May be called twice."""
