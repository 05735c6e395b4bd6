"""A client's connection to its broker. It is made, kept alive, and made again whenever it is lost.

One raw Req0 carries it; every frame has the session's one request id. One task dials and one timer keeps the
connection alive. A `Conversation` decides what is said on it, a `Writer` when frames are written; both
outlive each single connection. Everything else happens in the caller's own calls and in the loop turn that
read a frame.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

from mesh.clients.addresses import Addresses, Place
from mesh.clients.calls import LINGER_S
from mesh.clients.conversation import Conversation
from mesh.clients.finding import dialable, why_no_session
from mesh.clients.introduction import MOVING_LATER
from mesh.clients.moving import Mover
from mesh.clients.moving_conversation import MovingConversation
from mesh.clients.session_schedule import SessionSchedule
from mesh.clients.tickets import Waitable
from mesh.clients.writer import Writer
from mesh.errors import Disconnected, PeerError
from mesh.logs import log
from mesh.wire.capabilities import SESSION
from mesh.wire.session_frames import Kind, encode
from protocols import ConnectionRefused, Pipe, RawSocket, Req0, SocketOptions, SPError, TlsConfig
from protocols.peer_warnings import PeerWarnings

OPTIONS: Final = SocketOptions(
    send_queue=1 << 17, recv_size_max=1 << 20, resend_s=None, linger_s=LINGER_S, handshake_timeout_s=5.0
)
"""These queues are larger than credit allows, so that credit is the bound."""


class ClientConnection:
    """A client's connections, one after the other. Make it inside the loop that uses it. Call `open` first
    and `aclose` at the end."""

    def __init__(
        self,
        place: Place,
        *,
        conversation: Conversation,
        tls: TlsConfig | None,
        connect_timeout_s: float,
        rng: random.Random,
        warns: bool = True,
    ) -> None:
        """``warns``: whether it logs that a session is missing, and that one is back."""
        self.addresses = Addresses(place, rng)
        self.closed = False
        self._keepalive_s = conversation.keepalive_s
        self.connect_timeout_s = connect_timeout_s
        self.loop = asyncio.get_running_loop()
        self.conversation = conversation
        self._moving = conversation if isinstance(conversation, MovingConversation) else None
        conversation.recent.keeps = place.moves
        if place.moves:
            conversation.introduction.offer(MOVING_LATER if self._moving is None else SESSION)
        self._mover: Mover | None = None
        self.writer = Writer(self.conversation, self.loop)
        self._socket = RawSocket(Req0, receiver=self, options=replace(OPTIONS, tls=tls), rng=rng)
        self.rng = rng
        self._schedule = SessionSchedule(self.url, rng)
        self._warns = warns
        self._in_background = False
        self._warnings = PeerWarnings(log)
        self._lost = asyncio.Event()
        self._connector: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resend_timer: asyncio.TimerHandle | None = None
        self._resend_due = inf
        """When that timer is due: uvloop's handle of one that is due at once cannot tell."""

    @property
    def url(self) -> str:
        """The address of the session, of the last one, or of the current attempt."""
        return self.addresses.url

    @property
    def why_away(self) -> str:
        """Why the connection could not serve a call: part of a sentence."""
        return self.conversation.standing(self.url)

    # ------------------------------------------------------------------ its life

    async def open(self) -> None:
        """Wait for the first session. Raises `Disconnected`, and closes, if there is none in time."""
        try:
            await self._first_session()
        except BaseException:
            self.closed = True
            await self._socket.aclose()
            raise
        self._schedule.began(self.loop.time())
        self._keep(self._keep_connected())

    def begin(self) -> None:
        """Connect in the background, for as long as it takes. Until the first session, calls that need one
        tell why there is none."""
        self._in_background = True
        self._keep(self._connect_and_keep())

    def _keep(self, connecting: Coroutine[Any, Any, None]) -> None:
        self._connector = self.loop.create_task(connecting, name=f"mesh client {self.url}")
        if self._keepalive_s:
            self._timer = self.loop.call_later(self._keepalive_s, self._tick, self.loop.time())

    async def _first_session(self) -> None:
        """Try the addresses of a round until one gives a session. They share the connect timeout. Raises
        `Disconnected`."""
        deadline = self.loop.time() + self.connect_timeout_s
        while True:
            self._go_on()
            left_s = (deadline - self.loop.time()) / (self.addresses.left + 1)
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._session_there()
                break
            except (TimeoutError, SPError, OSError, Disconnected) as error:
                tried, refused = self.addresses.tried, isinstance(error, ConnectionRefused)
                why = self._why_none(error, left_s)
                if self.closed or not self.addresses.failed(why, refused=refused):
                    raise Disconnected(f"{tried}{why}") from error
                self._let_go(why)
        self.addresses.began()
        self._lost.clear()

    def _go_on(self) -> None:
        """Go on to the next address."""
        self.addresses.told(dialable(self.conversation.told))
        self._schedule.url = self.addresses.next()

    async def _session_there(self) -> None:
        await self.dial(self.url)
        try:
            await self._settled()
        except Disconnected:
            if not self.conversation.falls_back:
                raise
            await self.dial(self.url)
            await self._settled()

    def _why_none(self, error: Exception, limit_s: float) -> str:
        if isinstance(error, Disconnected):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"no answer from a broker at {self.url} in {round(limit_s, 3):g} s"
        return why_no_session(self.url, error)

    def _let_go(self, why: str) -> None:
        if self.writer.pipe is not None:
            self.writer.pipe.close(why)

    async def dial(self, url: str) -> None:
        """Dial one address, once."""
        await self._socket.dial_once(url, self.connect_timeout_s)

    async def _settled(self) -> None:
        conversation = self.conversation
        while not conversation.settled and not self.closed:
            if self.writer.pipe is None:  # also if it ended before anybody could wait
                raise Disconnected(f"no session with a broker at {self.url}: {self.why_away}")
            await self.wait(conversation.opened, None)
        if self.closed:
            raise Disconnected("the client was closed before it had a session")

    async def aclose(self) -> None:
        """Send what is gathered, say goodbye, and close. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._timer, self._resend_timer):
            if timer is not None:
                timer.cancel()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._drained()
        except TimeoutError:
            pass
        finally:  # a cancelled close still closes
            await self._end()

    async def _drained(self) -> None:
        """Wait until everything gathered has been sent, which needs a session and credit, and until the
        broker has read it.

        A connection that is closed with unread bytes on this side is reset, which loses what is in flight. So
        the broker is probed first.
        """
        conversation = self.conversation
        self.writer.flush()
        while conversation.gathered and conversation.attached:
            await self.wait(conversation.gate, None)
            self.writer.flush()
        stamp = conversation.sync()
        self.writer.hand_over()
        while conversation.settled and conversation.synced < stamp:
            await self.wait(conversation.heard, None)

    async def _end(self) -> None:
        moving = self._mover.task if self._mover is not None else None
        self._stop_moving()
        if self._connector is not None:
            self._connector.cancel()
        woken = self.conversation.close("closed")
        self.writer.hand_over()
        for item in woken:
            item.wake()
        try:
            tasks = [task for task in (self._connector, moving) if task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._socket.aclose()

    async def _keep_connected(self) -> None:
        """Dial again whenever the connection is gone."""
        await self._lost.wait()
        await asyncio.sleep(self._session_over())
        await self._connect_and_keep()

    async def _connect_and_keep(self) -> None:
        while True:
            pause_s = await self._one_session()
            await asyncio.sleep(pause_s)

    async def _one_session(self) -> float:
        """Dial the next address, and wait until the session there is over. Returns the pause before the next
        attempt in seconds."""
        self._lost.clear()
        self._go_on()
        try:
            await self.dial(self.url)
        except (SPError, OSError) as error:
            why = why_no_session(self.url, error)
            self.conversation.last_error = self.addresses.tried + why
            others = self.addresses.failed(why, refused=isinstance(error, ConnectionRefused))
            return self._pause_s(str(error), others)
        await self._session_or_close()
        await self._lost_or_back()
        await self._lost.wait()
        return self._session_over()

    def _session_over(self) -> float:
        """Choose the pause after a session, or after a connection on which none began."""
        others = self.addresses.lost(lasted=self._schedule.lasts(self.loop.time()))
        return self._pause_s(self.conversation.last_error, others)

    def _pause_s(self, why: str, others: int) -> float:
        """The pause after a session or an attempt has ended, in seconds; warns of a new reason."""
        now = self.loop.time()
        telling = bool(self.conversation.broker) or not self._in_background
        pause_s, sentence = self._schedule.ended(now, why, telling=telling, others=others)
        if sentence and not self.conversation.falls_back:
            self._warn(now, sentence)
        return pause_s

    def _warn(self, now: float, sentence: str) -> None:
        if self._warns:
            self._warnings.warn(now, None, "%s", sentence)

    async def _session_or_close(self) -> None:
        """Wait for the session on a new connection; close the connection if none begins in time."""
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await self._settled()
        except Disconnected:
            return
        except TimeoutError:
            if self.writer.pipe is not None:
                self.writer.pipe.close(f"no WELCOME from the broker in {self.connect_timeout_s:g} s")
        else:
            self.addresses.began()
            self._schedule.began(self.loop.time())

    async def _lost_or_back(self) -> None:
        """Log that a session is back once it has lasted, if the end of the one before was logged."""
        back_at = self._schedule.back_at
        try:
            async with asyncio.timeout_at(back_at):
                await self._lost.wait()
        except TimeoutError:
            assert back_at is not None, "there was a limit"
            now = max(back_at, self.loop.time())  # a timer may fire early, by the clock's resolution
            subscribed = any(feed.interrupted for feed in self.conversation.feeds)
            self._warn(now, self._schedule.back(now, subscribed=subscribed))

    def _tick(self, due: float) -> None:
        """Run once a keepalive interval."""
        now = self.loop.time()
        self._timer = self.loop.call_later(self._keepalive_s, self._tick, now + self._keepalive_s)
        if self.conversation.tick(now, now - due) and self.writer.pipe is not None:
            self.writer.pipe.close(f"nothing heard from {self.url} for {3 * self._keepalive_s:g} s")
        self.conversation.forget_late(now)
        self.writer.hand_over()
        if self._mover is not None:
            self._mover.tick()

    async def wait(self, item: Waitable, timeout_s: float | None) -> bool:
        """Wait until ``item`` is woken; False when the time is over."""
        future: asyncio.Future[bool] = self.loop.create_future()
        waiter = partial(_settle, future, True)
        item.waiters[waiter] = None
        timer = None
        if timeout_s is not None:  # asyncio.timeout costs 3 us more, for each message that is waited for
            timer = self.loop.call_later(max(0.0, timeout_s), _settle, future, False)
        try:
            return await future
        finally:
            item.waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()

    # ------------------------------------------------------------------ what the socket calls

    def pipe_attached(self, pipe: Pipe) -> None:
        if self._mover is not None and self.writer.pipe is not None:
            self._mover.attached(pipe)
            return
        self.conversation.connected(self.loop.time())
        self.writer.attach(pipe)

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        mover = self._mover
        if mover is not None and pipe is mover.pipe:
            mover.detached()
        if pipe is not self.writer.pipe:
            return
        if mover is not None and mover.is_ready and not self.closed:
            self._land(mover)
            return
        self._stop_moving()
        self.writer.detach()
        for item in self.conversation.disconnected(f"the connection to {self.url} was lost: {reason}"):
            item.wake()
        self._lost.set()

    def _stop_moving(self) -> None:
        mover, self._mover = self._mover, None
        if mover is not None:
            mover.close()

    def may_land(self) -> None:
        """The session at another broker is ready: leave the current one in order."""
        assert self._mover is not None, "there is one that says so"
        if self.conversation.settled:
            self._mover.conversation.moved()
            self.writer.hand_over()
        else:
            self._land(self._mover)

    def _land(self, mover: Mover) -> None:
        """Replace the current session with the one that was made beside it."""
        landing, pipe = mover.take()
        self._mover = None
        before = self.writer.pipe
        self.writer.detach()
        if before is not None:
            before.send_control(self.conversation.prefix + encode(Kind.BYE, "moved"))
            before.close("the client went to another broker", flush=True)
        now = self.loop.time()
        try:
            woken = mover.conversation.land(landing, now)
        except PeerError as error:
            self.writer.pipe = pipe
            pipe.close(str(error))
            return
        self.addresses.began()
        self._schedule.url = self.url
        self._schedule.began(now)
        self.writer.attach(pipe)
        self._heard(woken)

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        mover = self._mover
        if mover is not None and pipe is not self.writer.pipe:
            if pipe is mover.pipe:
                mover.received(frames)
            return
        conversation = self.conversation
        try:
            woken = conversation.received(frames, self.loop.time())
        except PeerError as error:
            pipe.close(str(error))
            return
        self._heard(woken)
        if conversation.leaves_at < inf:
            self._go_elsewhere()

    def _go_elsewhere(self) -> None:
        """The broker is about to leave, or has said goodbye: go to another one."""
        if self._mover is None:
            if self._moving is not None and self._moving.settled and not self.closed:
                self._mover = Mover(self, self._moving)
        elif self.conversation.said_bye and self._mover.is_ready:
            self._land(self._mover)

    def _heard(self, woken: list[Waitable]) -> None:
        conversation = self.conversation
        if conversation.has_output:
            self.writer.hand_over()
        for item in woken:
            item.wake()
        if conversation.resend_at < inf:
            self._plan_resend()
        if conversation.refused_sent:
            sentence, conversation.refused_sent = conversation.refused_sent, ""
            self._warnings.warn(self.loop.time(), sentence, "%s", sentence)
        self.writer.credit_came()

    def _plan_resend(self) -> None:
        """Plan to resend, after a pause, the stored blocks that no home has kept so far."""
        at, timer = self.conversation.resend_at, self._resend_timer
        if at == inf or self.closed or (timer is not None and self._resend_due <= at):
            return
        if timer is not None:
            timer.cancel()
        self._resend_due = at
        self._resend_timer = self.loop.call_at(at, self._resend)

    def _resend(self) -> None:
        self._resend_timer = None
        self.conversation.resend(self.loop.time())
        self.writer.hand_over()
        self._plan_resend()  # a timer may fire early, by the clock's resolution

    def pipe_writable(self, pipe: Pipe) -> None:
        self.writer.hand_over()


def _settle(future: asyncio.Future[bool], woken: bool) -> None:
    if not future.done():
        future.set_result(woken)
