"""The internals of a socket: a pattern's machine, its pipes, its endpoints and one timer.

A `Core` makes pipes of connections, hands runs of frames to the pattern, keeps the pattern's deadline and
closes all it opened. Endpoints and pipes see it as their owner (`EndpointOwner`, `PipeOwner`), so none of
these hooks is among a socket's calls. It belongs to the event loop that first uses it. The only tasks that it
starts are those of its dialers.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from protocols.context import Closable
from protocols.dialling import Dialer
from protocols.errors import Closed, PipeRefused, Timeout
from protocols.events import PipeNews
from protocols.listening import Acceptor, Listener, SharedListener
from protocols.options import SocketOptions
from protocols.patterns.base import Pattern
from protocols.pipe import Connection, Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.roster import Roster
from protocols.statistics import SocketStatistics
from protocols.waiting import Waiters, deadline_of, running_loop

CLOSED: Final = "the socket is closed"

Admit = Callable[[PipeView], object]
"""Called with each peer before it is attached. Raises `PipeRefused`, or closes the pipe, to refuse it."""


class Receiver(Protocol):
    """Gets a raw socket's frames, in the loop turn that read them. No method may wait.

    If one raises, the loop's exception handler gets the error.
    """

    def pipe_attached(self, pipe: Pipe) -> None:
        """A peer has connected. May raise `PipeRefused`: the connection is closed and nothing follows."""

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        """The peer is gone. Called once for each peer that was attached."""

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        """A run of whole frames, header words in front. The receiver may keep the list."""

    def pipe_writable(self, pipe: Pipe) -> None:
        """A pipe that refused a frame has room again."""


class Core:
    """See the module. ``name`` is the socket's name in messages."""

    def __init__(
        self,
        name: str,
        pattern: Pattern,
        rng: random.Random,
        *,
        admit: Admit | None = None,
        receiver: Receiver | None = None,
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.options = pattern.options
        self.rng = rng
        self.protocol = int(pattern.protocol)
        self.peer = int(pattern.peer)
        self.closed = False
        self.closing: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.dialers: list[Dialer] = []
        self.listeners: list[Listener] = []
        self.news = PipeNews()
        self.senders = Waiters()
        self.receivers = Waiters()
        """The waiters of the socket itself; its contexts share the senders."""
        self.channels: WeakKeyDictionary[Closable, None] = WeakKeyDictionary()
        """The socket's contexts, oldest first, as long as a program holds them."""
        self.roster = Roster(pattern)
        self.pipes = self.roster.pipes
        self._shared: list[SharedListener] = []
        if admit is not None and not callable(admit):
            raise TypeError(f"admit is called with each new peer; {admit!r} cannot be")
        self._admit = admit
        self._receiver = receiver
        self._hears_time = pattern.hears_time  # a class attribute is slower to read, for each run of frames
        self._attaching: Pipe | None = None
        self._peer_waiters = Waiters()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        """When it is due: uvloop's handle of one that is due at once cannot tell."""

    def __repr__(self) -> str:
        return f"<{self.name} with {len(self.pipes)} peers>"

    # --- life

    @property
    def forgotten(self) -> bool:
        """True if somebody should have closed the socket, and still could."""
        return self.loop is not None and self.closing is None and not self.loop.is_closed()

    def check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)

    def enter_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. If this socket was used before, it must be the same loop."""
        loop = running_loop()
        if self.loop is not loop:
            self.senders.settle(loop)
            self.receivers.settle(loop)
            self.loop = loop
        return loop

    async def close(self) -> None:
        """Close all, after giving the peers up to ``linger_s`` to read what is queued for them.

        A peer that has read everything closes its side; every implementation does so at our end of stream. A
        cancelled close still closes everything, but does not wait for what is queued. A second call waits for
        the first.
        """
        if self.closing is not None:
            await self.closing.wait()
            return
        self.enter_loop()
        self.closing = asyncio.Event()
        try:
            await self._close()
        finally:
            self.news.close()
            self.closing.set()

    async def _close(self) -> None:
        self.closed = True
        for channel in list(self.channels):
            channel._shut(CLOSED)
        self.channels.clear()
        self._peer_waiters.wake_all()
        if self._timer is not None:
            self._timer.cancel()
        for shared in self._shared:
            shared.stop_serving(self)
        pipes = list(self.roster.connected)
        cancelled = None
        # Go through all of them whatever happens: a cancellation ends the waiting, not the closing.
        endpoints: list[Listener | Dialer] = [*self.listeners, *self.dialers]
        for endpoint in endpoints:
            try:
                await endpoint.aclose()
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            if cancelled is None:
                await self._drained(pipes)
        finally:
            for pipe in pipes:
                pipe.close(CLOSED)
                pipe.connection.abort()
        if cancelled is not None:
            raise cancelled
        for pipe in pipes:
            await pipe.connection.wait_closed()

    async def _drained(self, pipes: list[Pipe]) -> None:
        for pipe in pipes:
            pipe.close(CLOSED, flush=True)
        try:
            async with asyncio.timeout(self.options.linger_s):
                for pipe in pipes:
                    await pipe.connection.wait_closed()
        except TimeoutError:
            pass

    def forget_channel(self, channel: Closable) -> None:
        self.channels.pop(channel, None)

    def channel_dropped(self, channel: Closable) -> None:
        """Close a dropped context in a separate loop turn, and warn.

        The garbage collector may run anywhere, even inside the pattern. The warning comes last, since it may
        be an error.
        """
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        loop.call_soon_threadsafe(channel._shut, "the context is closed")
        sentence = f"unclosed context of {self!r}; use async with, or await aclose()"
        warnings.warn(sentence, ResourceWarning, stacklevel=3)

    # --- endpoints

    def dial(self, url: str, options: SocketOptions | None) -> Dialer:
        self.check_open()
        self.enter_loop()
        dialer = Dialer(self, url, options)
        dialer.forget = self._forget_endpoint
        dialer.start()
        self.dialers.append(dialer)
        return dialer

    async def listen(self, url: str, options: SocketOptions | None) -> Listener:
        self.check_open()
        self.enter_loop()
        listener = Listener(self, url, options)
        await listener.start()
        if self.closed:
            await listener.aclose()
            raise Closed(CLOSED)
        listener.forget = self._forget_endpoint
        self.listeners.append(listener)
        return listener

    def listen_through(self, shared: SharedListener) -> None:
        self.check_open()
        shared.serve(self)
        self._shared.append(shared)

    def _forget_endpoint(self, endpoint: Dialer | Acceptor) -> None:
        """Forget an endpoint closed explicitly. Those that close with the socket keep their statistics."""
        if self.closing is None:
            if isinstance(endpoint, Dialer):
                self.dialers = [each for each in self.dialers if each is not endpoint]
            else:
                self.listeners = [each for each in self.listeners if each is not endpoint]

    # --- peers

    async def wait_for_peers(self, count: int, limit_s: float | None) -> None:
        self.enter_loop()
        deadline = deadline_of(limit_s)
        while len(self.pipes) < count:
            self.check_open()
            if not await self._peer_waiters.wait(deadline):
                raise Timeout(f"{len(self.pipes)} of {count} peers within {limit_s:g} s")

    def statistics(self) -> SocketStatistics:
        return self.roster.statistics()

    # --- EndpointOwner

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe of a connection, completely or not at all. Raises `PipeRefused`."""
        if self.closed:
            raise PipeRefused(CLOSED)
        now = self.enter_loop().time()
        pipe = self.roster.new_pipe(connection, self, url=url, dialed=dialed, weighed=self._receiver is None)
        self.news.tell("attaching", pipe)
        self._ask_for_admission(pipe)
        self.roster.attach(pipe, now)
        if self._receiver is not None:
            self._hand_to_receiver(pipe, self._receiver)
        if not pipe.closed:
            self.news.tell("attached", pipe)
        self.roster.connected[pipe] = None
        try:
            connection.start(pipe)
        except BaseException as error:
            pipe.close(f"the connection could not start: {error!r}")
            raise
        self.arm()  # waiting requests may have found a peer
        self._peer_waiters.wake_all()
        return pipe

    def _ask_for_admission(self, pipe: Pipe) -> None:
        if self._admit is None:
            return
        try:
            self._admit(view_of(pipe))
        except PipeRefused:
            raise
        except Exception as error:  # a peer that no hook has admitted is refused
            raise self._hook_failed("the admit hook", error) from error
        if pipe.closed:
            raise PipeRefused(pipe.close_reason)

    def _hand_to_receiver(self, pipe: Pipe, receiver: Receiver) -> None:
        """Give the pipe to the receiver. If it refuses or closes the pipe, the pipe was never reported as
        attached.
        """
        before, self._attaching = self._attaching, pipe
        try:
            receiver.pipe_attached(pipe)
        except PipeRefused:
            self.roster.undo_attach(pipe, self._now())
            raise
        except Exception as error:
            self.roster.undo_attach(pipe, self._now())
            raise self._hook_failed("pipe_attached of the receiver", error) from error
        finally:
            self._attaching = before

    def _hook_failed(self, which: str, error: Exception) -> PipeRefused:
        """A user's function raised: tell the loop's exception handler and refuse the peer."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{which} of {self!r} failed", "exception": error}
        )
        return PipeRefused(f"{which} failed: {error!r}", reason="hook failed")

    # --- PipeOwner

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.pattern.received(pipe, frames, self._now() if self._hears_time else 0.0)

    def pipe_writable(self, pipe: Pipe) -> None:
        self.pattern.pipe_writable(pipe, self._now())
        if self._receiver is not None:
            self._receiver.pipe_writable(pipe)
        self.arm()  # a request may have found room

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        if not self.roster.detach(pipe, self._now(), closing=self.closed):
            return  # the admit hook closed it
        if self._receiver is not None:
            self._receiver.pipe_detached(pipe, reason)
        if not self.closed:
            self.arm()  # a request may have gone to another peer
        if self._attaching is not pipe:
            self.news.tell("detached", pipe, reason)

    def pipe_gone(self, pipe: Pipe) -> None:
        self.roster.connected.pop(pipe, None)

    # --- time

    def _now(self) -> float:
        loop = self.loop
        if loop is None:
            loop = self.enter_loop()
        return loop.time()

    def arm(self) -> None:
        """Set the timer to the pattern's next deadline."""
        timer = self._timer
        if timer is not None and self.pattern.deadlines_ascend:
            return
        deadline = self.pattern.next_deadline()
        if deadline is None or (timer is not None and self._timer_due <= deadline):
            return  # a timer that fires early finds nothing due and is set again
        if timer is not None:
            timer.cancel()
        self._timer_due = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self.pattern.deadline_reached(self._now())
        self.arm()
