"""The lock of blocking sockets and clients: its holder has it whatever happens, and releases it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from protocols.blocking.lock import BlockingLock
from tests.protocols.blocking.support import LIMIT_S, until
from tests.support.interrupts import ends, interrupted_at


def free(lock: BlockingLock) -> bool:
    """True if another thread can take it."""

    def take() -> None:
        with lock.held:
            pass

    return ends(take)


def in_threads(count: int, call: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def waits(lock: BlockingLock) -> None:
    with lock.held:
        lock.wait(LIMIT_S, lock.told)


def let_go(lock: BlockingLock) -> None:
    """Held twice, as by a signal handler that makes a call within a call."""
    with lock.held, lock.held:
        lock.without(lambda: None)
        assert lock.owned


def wait_shortly(lock: BlockingLock) -> None:
    with lock.held:
        lock.wait(0.001, lock.told)


@pytest.mark.parametrize("call", [let_go, wait_shortly])
def test_a_holder_that_is_interrupted_anywhere_keeps_the_lock_until_it_leaves_it_free(
    call: Callable[[BlockingLock], None],
) -> None:
    """Leaving the block released the lock once more: ``cannot release un-acquired lock``."""
    lock = BlockingLock("test")
    place = 1
    while interrupted_at(place, partial(call, lock)):
        assert not lock.owned and free(lock), f"it is taken after an interrupt at place {place}"
        assert not lock._waiters
        place += 1
    assert place > 5


def test_ctrl_c_while_another_thread_has_the_lock_is_raised_when_it_is_back() -> None:
    """`threading.Condition` raises it at once, and a holder by ``with`` fails on the way out."""
    lock = BlockingLock("test")
    taken = threading.Event()
    main = threading.main_thread()

    def sleeps() -> bool:
        state = Path(f"/proc/self/task/{main.native_id}/stat").read_text().rpartition(") ")[2]
        return state.startswith("S")

    def press() -> None:
        with lock.held:
            taken.set()
            until(sleeps)
            assert main.ident is not None
            signal.pthread_kill(main.ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), lock.held:
        (thread,) = in_threads(1, press)
        try:
            lock.without(partial(taken.wait, LIMIT_S))
            thread.join(LIMIT_S)
        finally:
            assert lock.owned
    assert free(lock)


def test_a_holder_releases_the_lock_as_often_as_it_acquired_it() -> None:
    lock = BlockingLock("test")
    with lock.held, lock.held:
        assert lock.without(lambda: free(lock))
        assert lock.owned
    assert not lock.owned and free(lock)


def test_a_notification_wakes_all_waiters() -> None:
    lock = BlockingLock("test")
    threads = in_threads(3, partial(waits, lock))
    until(lambda: len(lock._waiters) == 3)
    with lock.held:
        lock.notify_all()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_a_notification_after_the_check_ends_the_wait_at_once() -> None:
    """A signal handler closed the socket between the check and the wait, which then never ended."""
    lock = BlockingLock("test")

    def look_and_wait() -> None:
        with lock.held:
            told = lock.told
            lock.notify_all()
            lock.wait(1000.0, told)

    assert ends(look_and_wait)


def test_an_interrupted_notification_reaches_all_waiters_when_it_is_repeated() -> None:
    place, interrupted = 1, True
    while interrupted:
        lock = BlockingLock("test")
        threads = in_threads(2, partial(waits, lock))
        until(lambda lock=lock: len(lock._waiters) == 2)  # type: ignore[misc]
        with lock.held:
            interrupted = interrupted_at(place, lock.notify_all)
            lock.notify_all()
        for thread in threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), f"it waits after an interrupt at place {place}"
        place += 1
    assert place > 4
