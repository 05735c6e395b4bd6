"""The lock of a blocking client, and the news for those who wait for other threads.

Who waits lets the lock go, and the code around it releases it once more on the way out. So whatever ends the
wait, the lock must be taken back first. The lock of `threading.Condition` is not: Ctrl-C while another thread
has it ends that, too. Here what interrupts the taking is raised when the lock is there. That is soon, since
nobody waits with the lock.
"""

from __future__ import annotations

import threading


class BlockingLock(threading.Condition):
    """See the module. Instead of ``acquire`` after ``release`` call `take_back`; `wait` does."""

    def __init__(self) -> None:
        self._own = threading.RLock()
        super().__init__(self._own)

    def take_back(self) -> None:
        """The lock again, if this thread does not have it. Raises what interrupted it, once it has."""
        interrupt: BaseException | None = None
        while True:
            try:
                if self._own._is_owned():  # type: ignore[attr-defined]  # an interrupt may come just after
                    break
                self._own.acquire()
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        finally:
            self.take_back()
