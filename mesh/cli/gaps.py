"""The warning of `mesh sub` that messages may be missing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from mesh.clients.subscription import Subscription

LOOK_S: Final = 1.0


class Gaps:
    """Says on standard error that `Subscription.interrupted` has grown, and when that was noticed.

    It looks every `LOOK_S` while the block runs. A caller that calls `tell` before it shows messages has the
    warning in front of the first one after the gap.
    """

    def __init__(self, subscription: Subscription, wall_time: Callable[[], float] = time.time) -> None:
        self._subscription = subscription
        self._told = subscription.interrupted
        self._wall_time = wall_time
        self._look: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._again()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._look is not None:
            self._look.cancel()

    def tell(self) -> None:
        """Say it if the number has grown since the last time."""
        interrupted = self._subscription.interrupted
        if interrupted == self._told:
            return
        self._told = interrupted
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._wall_time()))
        what = "the session was lost for a while, or the broker was apart from others"
        print(f"mesh sub: {at} messages may be missing: {what}", file=sys.stderr, flush=True)

    def _again(self) -> None:
        self.tell()
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._again)
