"""Tasks that wait for a lane, with their deadlines.

Nothing is handed to a waiter. A woken waiter asks its lane again and takes what is there in that same loop
turn. So a cancelled ``recv`` has taken nothing, and a wake-up that a cancelled waiter did not use goes to the
next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from protocols.errors import StateError, Timeout
from protocols.options import TimeLimit, seconds
from protocols.transports.loops import loop_state
from protocols.waking import Wakes, Wakeup

T = TypeVar("T")

OTHER_LOOP: Final = (
    "this socket belongs to another event loop; each loop, and each process after a fork, makes its own"
)

NO_LOOP: Final = (
    "no event loop runs here: call it from a coroutine under asyncio.run(), in the loop's own thread; "
    "programs without a loop use the same sockets of protocols.blocking"
)


def running_loop() -> asyncio.AbstractEventLoop:
    """The running loop. Raises `StateError`."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise StateError(NO_LOOP) from None


class Waiters:
    """Tasks that wait for a lane, first come, first woken; all of one event loop."""

    __slots__ = ("_wakes", "_wakeups", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._wakes: Wakes | None = None
        self._wakeups: deque[Wakeup] = deque()

    def settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop. Raises `StateError` if it was another before."""
        if self.loop is not None and self.loop is not loop:
            raise StateError(OTHER_LOOP)
        self.loop = loop
        self._wakes = loop_state().wakes

    def __len__(self) -> int:
        return len(self._wakeups)

    def wake(self, count: int) -> None:
        wakeups, wakes = self._wakeups, self._wakes
        while wakeups and count > 0:
            wakeup = wakeups.popleft()
            if not wakeup.done():
                assert wakes is not None
                wakes.wake(wakeup)
                count -= 1

    def wake_all(self) -> None:
        if self._wakeups:
            self.wake(len(self._wakeups))

    async def wait(self, deadline: float | None) -> bool:
        """Wait to be woken; return False if the loop's time reaches ``deadline`` first."""
        loop = running_loop()
        if self.loop is not loop:
            self.settle(loop)
        return await self.wait_on(loop, deadline)

    async def wait_on(self, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
        """Like `wait`, in the running loop, which `settle` has already set."""
        wakeup = Wakeup(loop=loop)
        self._wakeups.append(wakeup)
        timer = loop.call_at(deadline, self._expire, wakeup) if deadline is not None else None
        try:
            return await wakeup
        except asyncio.CancelledError:
            if wakeup.cancelled():
                if wakeup in self._wakeups:
                    self._wakeups.remove(wakeup)
            else:
                self.wake(1)  # we were woken and will not look
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def taken(self, take: Callable[[], T | None], timeout: TimeLimit, default_s: float | None) -> T:
        """Return the first result of ``take`` that is not None. Raises `Timeout`."""
        limit_s = seconds(timeout, default_s)
        deadline = deadline_of(limit_s)
        while (taken := take()) is None:
            if not await self.wait(deadline):
                raise Timeout(f"nothing received within {limit_s:g} s")
        return taken

    async def room(self, send: Callable[[], bool], timeout: TimeLimit, default_s: float | None) -> None:
        """Call ``send`` each time there may be room, until it succeeds. Raises `Timeout`."""
        limit_s = seconds(timeout, default_s)
        deadline = deadline_of(limit_s)
        while True:
            if not await self.wait(deadline):
                raise Timeout(f"no peer took the message within {limit_s:g} s")
            if send():
                return

    def _expire(self, wakeup: Wakeup) -> None:
        if not wakeup.done():
            self._wakeups.remove(wakeup)
            wakeup.set_result(False)
            wakeup.resume_soon()


def deadline_of(limit_s: float | None) -> float | None:
    """The deadline in the loop's time; None means never."""
    return None if limit_s is None else running_loop().time() + limit_s
