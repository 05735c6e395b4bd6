"""A forked child has its parent's blocking sockets by name only: its calls raise, and it harms nobody."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from protocols import StateError, blocking
from tests.protocols.blocking.support import LIMIT_S, until

HANG_S = 60

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_a_child(call: Callable[[], object]) -> bool:
    """True if the call returned true in a forked child; a hang ends the child."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANG_S)
        try:
            os._exit(0 if call() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


def refused(*calls: Callable[[], object]) -> bool:
    for call in calls:
        try:
            call()
        except StateError:
            continue
        return False
    return True


def test_no_call_hangs_although_a_thread_had_the_lock_at_the_fork() -> None:
    """``pipes``, ``statistics`` and the closing of endpoints and contexts waited for a thread that the child
    does not have.
    """
    with blocking.Rep0(listen="inproc://forked") as rep, blocking.Req0(dial="inproc://forked") as req:
        req.wait_for_peers(1, LIMIT_S)
        (dialer,) = req.dialers
        (listener,) = rep.listeners
        (pipe,) = req.pipes
        context, taken, enough = req.new_context(), threading.Event(), threading.Event()

        def hold() -> None:
            with rep._core.lock.held, req._core.lock.held:
                taken.set()
                enough.wait(LIMIT_S)

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait(LIMIT_S)

        def child() -> bool:
            calls = (
                lambda: req.pipes,
                req.statistics,
                lambda: req.send(b"x"),
                lambda: context.recv(1.0),
                lambda: dialer.wait_connected(1.0),
                lambda: pipe.close("not mine"),
                req.new_context,
                lambda: req.dial("inproc://forked"),
            )
            if not refused(*calls):
                return False
            context.close()
            dialer.close()
            listener.close()
            req.close()
            rep.close()
            return context.closed and listener.closed and req.closed and rep.closed

        try:
            assert in_a_child(child)
        finally:
            enough.set()
            holder.join(LIMIT_S)


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_a_listener_that_a_child_closes_continues_to_listen(scheme: str, tmp_path: Path) -> None:
    """The child removed the path of an ipc listener, and took any listener from the parent's epoll."""
    url = f"ipc://{tmp_path}/socket" if scheme == "ipc" else "tcp://127.0.0.1:0"
    with blocking.Pull0(listen=url) as pull:
        (listener,) = pull.listeners

        def child() -> bool:
            listener.close()
            return listener.closed

        assert in_a_child(child)
        with blocking.Push0(dial=listener.url) as push:
            push.wait_for_peers(1, LIMIT_S)


def test_a_dialer_that_a_child_closes_waits_between_its_attempts() -> None:
    """The child wrote to the shared wake-up pipe: the parent tried without a pause, and never connected."""
    with blocking.Push0(reconnect_min_s=0.001) as push:
        dialer = push.dial("inproc://later-than-the-fork")
        until(lambda: dialer.last_error)

        def child() -> bool:
            dialer.close()
            return True

        assert in_a_child(child)
        with blocking.Pull0(listen="inproc://later-than-the-fork"):
            dialer.wait_connected(LIMIT_S)
