"""Dialers of blocking sockets, each with its own thread.

The thread connects, hands the connection over, waits until it ends, pauses and begins again. As for sockets
of an event loop, `protocols.dial_schedule` decides the length of the pause and the warnings.
"""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue

from protocols.blocking.connecting import Connecting, Interrupt, Opened
from protocols.blocking.endpoint import EndpointOwner, lacking, stream_of
from protocols.blocking.stream import Stream
from protocols.dial_schedule import DialSchedule
from protocols.errors import (
    AddressError,
    Closed,
    PipeRefused,
    RemoteProtocolError,
    SPError,
    Timeout,
)
from protocols.options import DEFAULT, TimeLimit, seconds
from protocols.peer_warnings import PeerWarnings
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView, view_of


class Dialer:
    """Keeps one pipe to ``url`` until it is closed."""

    def __init__(self, owner: EndpointOwner, url: str) -> None:
        options = owner.options
        self.last_error = ""
        """Why there is no pipe, as a sentence; empty while connected."""
        self.attempts = 0
        self.pause_s = 0.0
        """The last pause between two attempts, in seconds."""
        self._owner = owner
        self._connecting = Connecting(url, owner.greeting, options, time.monotonic, owner.log)
        self.url = self._connecting.url
        self._schedule = DialSchedule(self.url, options.reconnect_min_s, options.reconnect_max_s, owner.rng)
        self._warnings = PeerWarnings(owner.log)
        self._pipe: Pipe | None = None
        self._over: SimpleQueue[None] = SimpleQueue()
        """Gets an item for each pipe that has ended, and one when the dialer closes. A signal handler may put
        it.
        """
        self._closed = False
        self._done = False
        self._interrupt: Interrupt | None = None
        self._thread = threading.Thread(target=self._run, name=f"dial {url}", daemon=True)

    def start(self) -> None:
        """Dial from now on. Raises `AddressError` if the system has no descriptor or thread left."""
        try:
            _ = self._owner.io  # every connection needs it
            self._interrupt = Interrupt()
            self._thread.start()
        except (OSError, RuntimeError) as error:
            raise AddressError(f"cannot dial {self.url}: {lacking(error)}") from error

    @property
    def pipe(self) -> PipeView | None:
        """The pipe to the peer, or None."""
        pipe = self._pipe
        return None if pipe is None or pipe.closed else view_of(pipe)

    def wait_connected(self, timeout: TimeLimit = DEFAULT) -> PipeView:
        """Return the peer as soon as there is one, by default without a time limit. Raises `Timeout`,
        `Closed`.
        """
        limit_s = seconds(timeout, None)
        with self._owner.lock.held:
            self._owner.wait(lambda: self._closed or self.pipe or None, limit_s)
            pipe, closed = self.pipe, self._closed
        why = f": {self.last_error}" if self.last_error else ""
        if closed:
            raise Closed(f"nothing dials {self.url}{why}")
        if pipe is not None:
            return pipe
        raise Timeout(f"no connection to {self.url} within {limit_s:g} s{why}")

    def close(self) -> None:
        """Stop dialling. An existing pipe stays open until its socket closes it."""
        if self._owner.lock.foreign:
            self._closed = True  # in a forked child: the descriptors below belong to the parent, too
            return
        with self._owner.lock.held:
            self._close()
            if self.ended:
                self._let_go()
            self._owner.forget(self)

    @property
    def ended(self) -> bool:
        """True if no thread of this dialer uses the lock: not yet, or no longer."""
        return self._done or not self._thread.is_alive()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _close(self) -> None:
        self._closed = True
        self._pipe = None
        if self._interrupt is not None:
            self._interrupt.set()
        self._over.put(None)
        self._owner.lock.notify_all()

    def _let_go(self) -> None:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            interrupt.close()

    # --- the thread

    def _run(self) -> None:
        try:
            while not self._closed:
                self._one_round()
        except BaseException as error:  # a defect of ours: no caller may wait forever
            with self._owner.lock.held:
                self.last_error = f"a defect ended the dialer: {error!r}"
                self._close()
            raise
        finally:
            with self._owner.lock.held:
                self._let_go()
                self._done = True
                self._owner.lock.notify_all()

    def _one_round(self) -> None:
        self.attempts += 1
        try:
            self._connect()
        except (AddressError, RemoteProtocolError, Timeout, PipeRefused) as error:
            self.last_error = str(error)
            self.pause_s, sentence = self._schedule.failed(error)
        except Closed:
            return
        else:
            since = time.monotonic()
            self._over.get()
            if self._closed:
                return
            self.pause_s, sentence = self._schedule.ended(time.monotonic() - since, self.last_error)
        if sentence:
            with self._owner.lock.held:
                self._warnings.warn(time.monotonic(), None, "%s", sentence)
        with contextlib.suppress(Empty):
            self._over.get(timeout=min(self.pause_s, threading.TIMEOUT_MAX))

    def _connect(self) -> None:
        """Make one attempt. Raises the reason if it gives no pipe, or `Closed`."""
        opened = self._connecting.connect(self._owner.options.handshake_timeout_s, self._interrupt)
        with self._owner.lock.held:
            if self._closed:
                opened.sock.close()
                raise Closed(f"nothing dials {self.url}")
            again = bool(self.last_error)
            self._attach(opened)
            if again:
                self._owner.log.info("connected to %s after %d attempts", self.url, self.attempts)

    def _attach(self, opened: Opened) -> None:
        stream = stream_of(self._owner, self.url, opened.sock, opened.codec, None)
        stream.on_end = self._ended
        stream.bytes_before = opened.bytes_in, opened.bytes_out
        try:
            self._pipe = self._owner.attach(stream, url=self.url, dialed=True)
        except SPError:
            stream.on_end = None
            stream.abort()
            raise
        self.last_error = ""
        stream.early(opened.frames)
        self._owner.io.settle()
        self._owner.lock.notify_all()

    def _ended(self, stream: Stream) -> None:
        """Called with the lock, by the I/O thread or a caller's thread."""
        if stream.failure is not None:
            self._warnings.broke_a_rule(time.monotonic(), self.url, stream, stream.failure)
        if self._pipe is not None:
            self.last_error = self._pipe.close_reason
        self._pipe = None
        self._over.put(None)
