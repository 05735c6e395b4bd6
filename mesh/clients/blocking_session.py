"""A blocking client's session with its broker. The threads that call do its work; none runs in the
background.

There is one lock. A call takes it, says what it waits for, and `pump` works until that has come. One thread
at a time reads the socket, one writes what the kernel did not take, and one dials, each without the lock. The
others wait for news. A thread that returns from the kernel takes the lock again, reads the frames, and
notifies the others. Ctrl-C may end a turn wherever a function is called. So the flags that say whose turn it
is are cleared first.

After a fork the child begins a session of its own at its first call; the parent's connection is untouched.
HELLO says keepalive 0, since no thread may be there to answer the broker. Waiting threads probe a silent
broker instead (`mesh.clients.silence`). A connection that brings no session within the connect timeout is
given up. The next waiting call resends what a lost connection left unacknowledged. When the broker is about
to leave, waiting threads move the session to another one (`mesh.clients.blocking_moving`).
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from mesh.access.credentials import Credential
from mesh.clients.addresses import Addresses, Place
from mesh.clients.blocking_connection import BlockingConnection, BrokerDialer
from mesh.clients.blocking_moving import BlockingMover
from mesh.clients.calls import LINGER_S
from mesh.clients.finding import dialable, why_no_session
from mesh.clients.landing import Landing
from mesh.clients.moving_conversation import MovingConversation
from mesh.clients.pending import PENDING_MAX
from mesh.clients.pending_warnings import PendingWarnings
from mesh.clients.session_schedule import SessionSchedule
from mesh.clients.silence import Next, Silence
from mesh.errors import Disconnected, MeshError, NotAccepted, PeerError, Unknown
from mesh.logs import log
from mesh.wire.capabilities import SESSION
from mesh.wire.session_frames import LAPSES, Kind, encode
from protocols import TlsConfig
from protocols.blocking.lock import BlockingLock
from protocols.errors import ConnectionRefused, SPError, Timeout
from protocols.peer_warnings import PeerWarnings
from protocols.transports.tcp import system_message

INF: Final = float("inf")
INTERRUPTED: Final = "the connection was dropped: a call was interrupted in the middle of using it"
ONCE: Final = "a BlockingClient is opened once; make another one"
WAIT_S: Final = 3600.0
"""Longest single wait. A longer or endless wait becomes several, since the kernel's clocks are bounded."""


class BlockingSession:
    """The session, the connection and the lock of one blocking client. A fork replaces ``conversation``: use
    it within `ours` only."""

    def __init__(
        self,
        place: Place,
        name: str,
        tls: TlsConfig | None,
        connect_timeout_s: float,
        keepalive_s: float,
        pending_max: int = PENDING_MAX,
        credential: Credential | None = None,
    ) -> None:
        self._place = place
        self.name = name
        self._tls = tls
        self._credential = credential
        self._keepalive_s = keepalive_s
        self.connect_timeout_s = connect_timeout_s
        self._pending_max = pending_max
        for url in place.urls:
            self._dials, self._dialer = url, BrokerDialer(url, tls, time.monotonic)
        self.closed = False
        self._closing = False
        """True if no new call may begin."""
        self._opened = False
        self._established = False
        """True once `open` has succeeded. From then on only this class tells why there is no session."""
        self._warnings = PeerWarnings(log)
        self._begin()

    def _begin(self) -> None:
        """Take a new identity and session: at the start, and in a child after a fork."""
        self.rng = random.Random(os.urandom(32))
        self.lock = BlockingLock("client")
        """Threads that wait for another thread wait for news on it."""
        self._reading = False
        self._writing = False
        self.dialling = False
        self._wire: BlockingConnection | None = None
        self.cuts = 0
        """Number of connections that ended before the kernel had taken everything said, and of closes before
        everything gathered was said."""
        self.addresses = Addresses(self._place, self.rng)
        self._schedule = SessionSchedule(self.url, self.rng)
        self._retry_at = 0.0
        self._session_by = INF
        """When a connection without a session is given up. It is not probed."""
        self._silence = Silence(self._keepalive_s)
        self._mover = BlockingMover(self)
        self._moving_aside = False
        """True while a thread moves this client, since the program's own calls do not wait."""
        self.conversation = MovingConversation.of(
            self.rng,
            os.urandom,
            name=self.name,
            keepalive_s=0.0,
            now=time.monotonic(),
            credential=self._credential,
        )
        self.conversation.recent.keeps = self._place.moves
        if self._place.moves:
            self.conversation.introduction.offer(SESSION)
        self._calling_back = False
        self._pending_warnings = PendingWarnings(time.monotonic)
        self.conversation.pendings.most = self._pending_max
        self.conversation.pendings.tell = self._pending_warnings.unheard

    # ------------------------------------------------------------------ its life

    def begin(self) -> None:
        """Let the next waiting call connect."""
        if self._opened:
            raise MeshError(ONCE)
        self._opened = self._established = True

    def open(self) -> None:
        """Wait for the session. Raises `Disconnected`, and closes the client, if there is none in time."""
        if self._opened:
            raise MeshError(ONCE)
        self._opened = True
        deadline = time.monotonic() + self.connect_timeout_s
        with self.ours():
            try:
                self._first_session(deadline)
            except BaseException:
                self.closed = True
                self._drop("")
                raise
            self._established = True

    def close(self) -> None:
        """Send what is gathered, wait at most a second until the broker has read it, and say goodbye.

        If it is interrupted while it waits, it still closes. If it is interrupted elsewhere, call it again.
        In a signal handler that interrupted a call, a thread does the closing once that call has released the
        lock.
        """
        if not self._opened or (self.closed and self._wire is None):
            self.closed = True
            return
        if self.lock.foreign:
            self._forked()
            self.closed = True
            return
        if self.lock.owned:
            self._closing = True
            threading.Thread(target=self._close, name=f"close {self.name}").start()
        else:
            self._close()

    def _close(self) -> None:
        with self.lock.held:
            try:
                if not self.closed:
                    self._drain(time.monotonic() + LINGER_S)
                self.closed = True
                self.cuts += self.conversation.gathered
                for item in self.conversation.close("closed"):
                    item.wake()
                self.send()
            finally:
                self.closed = True
                self._drop("closed")
            self.call_back()

    def _drain(self, deadline: float) -> None:
        conversation = self.conversation
        if self._wire is not None and conversation.settled:
            self.pump(lambda: not conversation.gathered, deadline, reconnect=False)
            stamp = conversation.sync()
            self.pump(lambda: conversation.synced >= stamp, deadline, reconnect=False)

    def ours(self) -> threading.RLock:
        """The lock of this process, after a check that the client may be used. Raises `Disconnected`."""
        if self.lock.foreign:
            self._forked()
        if self.closed or self._closing:
            raise Disconnected("the client is closed")
        if not self._opened:
            raise Disconnected("the client is not open; use it inside `with BlockingClient() as mesh:`")
        return self.lock.held

    def _forked(self) -> None:
        """Begin a session of its own in a forked child, and leave the parent's alone."""
        inherited, mover = self._wire, self._mover
        self._begin()
        mover.leave()
        if inherited is not None:
            inherited.leave()

    def unless_closed(self, error: MeshError) -> MeshError:
        """The error of a wait without success: ``error``, or that the client was closed meanwhile."""
        if not self.closed:
            return error
        kind = type(error) if isinstance(error, (NotAccepted, Unknown)) else Disconnected
        return kind("the client was closed meanwhile")

    @property
    def url(self) -> str:
        """The address of the session, of the last one, or of the current attempt."""
        return self.addresses.url

    @property
    def why_away(self) -> str:
        """Why the connection could not serve a call: part of a sentence."""
        return self.conversation.standing(self.url)

    # ------------------------------------------------------------------ the connection

    def _first_session(self, deadline: float) -> None:
        """Try the addresses of a round until one gives a session. They share the time until the deadline.
        Raises `Disconnected`."""
        while True:
            self._go_on()
            now = time.monotonic()
            left_s = (deadline - now) / (self.addresses.left + 1)
            try:
                self._session_there(now + left_s, left_s)
                break
            except Disconnected as error:
                tried, refused = self.addresses.tried, isinstance(error.__cause__, ConnectionRefused)
                if self.closed or not self.addresses.failed(str(error), refused=refused):
                    raise Disconnected(f"{tried}{error}") from error.__cause__
                self._drop(str(error))

    def _session_there(self, deadline: float, limit_s: float) -> None:
        self._dial(deadline)
        settled = self.pump(lambda: self.conversation.settled, deadline, reconnect=False)
        if not settled and self.conversation.falls_back:
            self._dial(deadline)
            settled = self.pump(lambda: self.conversation.settled, deadline, reconnect=False)
        if not settled:
            why = self.conversation.last_error or f"no answer in {round(limit_s, 3):g} s"
            raise Disconnected(f"no session with a broker at {self.url}: {why}")

    def _go_on(self) -> None:
        """Go on to the next address."""
        self.addresses.told(dialable(self.conversation.told))
        url = self.addresses.next()
        self._schedule.url = url
        if url != self._dials:
            self._dials, self._dialer = url, BrokerDialer(url, self._tls, time.monotonic)

    def _dial(self, deadline: float) -> None:
        """Dial once. One thread at a time does so, without the lock, so that other threads can use or close
        the client. Raises `Disconnected`."""
        timeout = round(min(self.connect_timeout_s, max(0.01, deadline - time.monotonic())), 3)
        try:
            self.dialling = True
            wire = self.lock.without(partial(self._dialer.connect, timeout))
        except SPError as error:
            raise Disconnected(why_no_session(self.url, error)) from error
        finally:
            self.dialling = False
            self.lock.notify_all()
        if self.closed:
            wire.close()
            raise Disconnected("the client was closed")
        if self._wire is not None:  # another thread's call connected before `open`
            wire.close()
            return
        self._wire = wire
        now = time.monotonic()
        self._session_by = now + self.connect_timeout_s
        self.conversation.connected(now)
        self._send(wire)

    def connect_beside(self, url: str, timeout: float) -> BlockingConnection | None:
        """Connect to another broker, without the lock, while this session goes on. None if that fails, or if
        the session has ended meanwhile."""
        wire, timeout = self._wire, round(min(self.connect_timeout_s, max(0.01, timeout)), 3)
        try:
            self.dialling = True
            dialer = BrokerDialer(url, self._tls, time.monotonic)
            beside = self.lock.without(partial(dialer.connect, timeout))
        except SPError:
            return None
        finally:
            self.dialling = False
            self.lock.notify_all()
        if self.closed or wire is not self._wire or not self.conversation.settled:
            beside.close()
            return None
        return beside

    def land(self, url: str, landing: Landing, wire: BlockingConnection) -> None:
        """Go on in the session that was made at another broker."""
        before, conversation, now = self._wire, self.conversation, time.monotonic()
        try:
            if before is not None:
                self.cuts += not conversation.said_bye and bool(before.unsent or conversation.has_output)
                with suppress(OSError):
                    before.send([conversation.prefix + encode(Kind.BYE, "moved")])
                before.close()
            self._wire = wire
            woken = conversation.land(landing, now)
        except PeerError as error:
            self._lose(error)
            return
        except BaseException:  # the session may be half there
            self._wire = wire
            self._drop(INTERRUPTED)
            raise
        self.addresses.url = self._schedule.url = url
        self._settled(now)
        for item in woken:
            item.wake()
        self.lock.notify_all()
        self._send(wire)

    def _redial(self, deadline: float, told: int) -> bool:
        """Take one step towards a connection: dial if it is time and no other thread does, otherwise wait for
        news after ``told``. False when the time is over."""
        now = time.monotonic()
        if not self.dialling and now >= self._retry_at:
            self._go_on()
            try:
                self._dial(deadline)
            except Disconnected as error:
                self.conversation.last_error = self.addresses.tried + str(error)
                refused = isinstance(error.__cause__, ConnectionRefused)
                others = self.addresses.failed(str(error), refused=refused)
                # an attempt gets the time that its call has left; that number of seconds must not make the
                # reason look new
                late = isinstance(error.__cause__, Timeout)
                why = f"no connection to {self.url} in time" if late else str(error.__cause__ or error)
                self._pause(why, others)
        elif now >= deadline:
            return False
        else:
            until = deadline if self.dialling else min(deadline, self._retry_at)
            self.lock.wait(min(until - now, WAIT_S), told)
        return True

    def _drop(self, reason: str) -> None:
        self._mover.drop()
        if self._wire is not None:
            self.cuts += bool(self._wire.unsent or self.conversation.has_output)
            self._wire.close()
            self._wire = None
        for item in self.conversation.disconnected(reason):
            item.wake()
        if self._established and not self.closed:
            others = self.addresses.lost(lasted=self._schedule.lasts(time.monotonic()))
            self._pause(self.conversation.last_error, others)
        self.lock.notify_all()

    def _pause(self, why: str, others: int) -> None:
        """Do not dial for a while after a session or an attempt has ended; warn of a new reason. ``others``:
        as in `SessionSchedule.ended`."""
        now = time.monotonic()
        pause_s, sentence = self._schedule.ended(now, why, others=others)
        self._retry_at = now + pause_s
        if sentence and not self.conversation.falls_back:
            self._warnings.warn(now, None, "%s", sentence)

    def _lose(self, error: Exception) -> None:
        """End the session of a failed connection, or go on at the broker where one is ready."""
        if self._mover.is_ready and not self.closed:
            self._mover.land()
            return
        why = system_message(error) if isinstance(error, OSError) else error
        self._drop(f"the connection to {self.url} was lost: {why}")

    @property
    def all_sent(self) -> bool:
        """True if nothing waits for the kernel: it has taken everything said, or a lost connection took it
        along."""
        return not self.conversation.has_output and (self._wire is None or not self._wire.unsent)

    def send(self) -> None:
        """Send what is to be said, as far as the kernel takes it now, if there is a connection."""
        if self._wire is not None:
            self._send(self._wire)

    def _send(self, wire: BlockingConnection) -> None:
        try:
            wire.send(self.conversation.take_control() + self.conversation.take_frames())
        except OSError as error:
            self._lose(error)
        except BaseException:  # what was sent may be incomplete, or be sent again
            self._drop(INTERRUPTED)
            raise

    def _read(self, wire: BlockingConnection) -> None:
        conversation = self.conversation
        settled = conversation.settled
        try:
            frames = wire.receive()
            if frames:
                for item in conversation.received(frames, time.monotonic()):
                    item.wake()
                if conversation.refused_sent:
                    sentence, conversation.refused_sent = conversation.refused_sent, ""
                    self._warnings.warn(time.monotonic(), sentence, "%s", sentence)
        except (OSError, SPError, PeerError) as error:
            if wire is self._wire:
                self._lose(error)
            return
        except BaseException:  # what was read may be lost
            self._drop(INTERRUPTED)
            raise
        if conversation.settled != settled:
            self._settled(time.monotonic())
        elif self._schedule.back_at is not None:
            self._tell_if_back(time.monotonic())
        if conversation.has_output:
            self._send(wire)

    def _settled(self, now: float) -> None:
        """Adapt to a session that began, or to a broker that said goodbye and will hang up next."""
        if self.conversation.settled:
            self.addresses.began()
            self._schedule.began(now)
            self._session_by = INF
        else:
            self._session_by = now + self.connect_timeout_s

    def _tell_if_back(self, now: float) -> None:
        """Log that a session is back once it has lasted, if the end of the one before was logged."""
        subscribed = any(feed.interrupted for feed in self.conversation.feeds)
        sentence = self._schedule.back(now, subscribed=subscribed)
        if sentence:
            self._warnings.warn(now, None, "%s", sentence)

    def pump(self, until: Callable[[], bool], deadline: float | None, *, reconnect: bool = True) -> bool:
        """Send and read, taking turns with other threads, until ``until()`` is true; False at the deadline.

        Gathered messages go out first, as far as credit allows, and again whenever credit arrives. ``until``
        only looks: if it wrote, that could end the connection that is waited for next. Call it with the lock
        held; the lock is released while waiting. Closing the client ends it.
        """
        limit = INF if deadline is None else deadline
        while True:
            told = self.lock.told
            self.expire()
            if self.conversation.pendings.calls and not self._calling_back:
                self.call_back()
                continue
            wire, conversation = self._wire, self.conversation
            if conversation.resend_at < INF:
                conversation.resend(time.monotonic())
            if conversation.settled and conversation.gathered:
                conversation.flush()
            if wire is not None and (conversation.has_output or wire.unsent):
                self._send(wire)
                if wire is not self._wire:
                    continue
            if conversation.leaves_at < INF and wire is not None:
                self._mover.send()
                if self._mover.step(limit if reconnect else -INF):
                    continue
            if until():
                return True
            if self.closed or (wire is None and not reconnect):
                return False
            if wire is None:
                if not self._redial(limit, told):
                    return False
                continue
            now = time.monotonic()
            if reconnect and now >= self._session_by:
                self._drop(f"no WELCOME from the broker in {self.connect_timeout_s:g} s")
                continue
            if self._asks(wire, now):
                continue
            if now >= limit:
                return False
            end = min(limit, self._session_by) if reconnect else limit
            end = min(end, conversation.pendings.due)
            if self.conversation.settled:
                end = min(end, conversation.resend_at, self._silence.due(conversation.keepalive.heard_at))
            if reconnect and conversation.leaves_at < INF:
                end = min(end, self._mover.due(now))
            self._await_events(wire, min(end - now, WAIT_S), told)

    def expire(self) -> None:
        """End what has been pending for too long."""
        pendings = self.conversation.pendings
        if pendings.due < INF:
            now = time.monotonic()
            if pendings.due <= now:
                pendings.expire(now, self.why_away)

    def call_back(self) -> None:
        """Make the callbacks that are due, one after the other and without the lock. A callback never makes
        others."""
        calls = self.conversation.pendings.calls
        if self._calling_back:
            return
        try:
            self._calling_back = True
            while calls:
                self.lock.without(partial(self._pending_warnings.call, *calls.popleft()))
        finally:
            self._calling_back = False

    def _asks(self, wire: BlockingConnection, now: float) -> bool:
        """True if it probed a silent broker or gave it up; then the caller must do more than wait."""
        if not self.conversation.settled:
            return False
        step = self._silence.next(now, self.conversation.keepalive.heard_at)
        if step is Next.GIVE_UP:
            if not wire.ready():
                silence_s = LAPSES * self._keepalive_s
                self._lose(Disconnected(f"nothing heard from the broker for {silence_s:g} s"))
                return True
            self._silence.again(now)
        if step is not Next.WAIT:
            self.conversation.ping()
        return step is not Next.WAIT

    def _await_events(self, wire: BlockingConnection, left_s: float, told: int) -> None:
        """Wait for the socket if no other thread does; otherwise wait for news from another thread."""
        events = 0
        if not self._reading:
            events |= select.POLLIN
        if wire.unsent and not self._writing:
            events |= select.POLLOUT
        if not events:
            self.lock.wait(left_s, told)
            return
        reads, writes = bool(events & select.POLLIN), bool(events & select.POLLOUT)
        beside = self._mover.wire if reads else None
        poll = partial(wire.poll(events, beside), max(0.0, left_s) * 1000)
        try:
            self._reading |= reads
            self._writing |= writes
            wire.watchers += 1
            if beside is not None:
                beside.watchers += 1
            found = self.lock.without(poll)
        finally:
            if reads:
                self._reading = False
            if writes:
                self._writing = False
            wire.watchers -= 1
            if beside is not None:
                beside.watchers -= 1
            try:
                wire.unwatched()
                if beside is not None:
                    beside.unwatched()
            finally:
                self.lock.notify_all()
        if found and reads and wire is self._wire:
            self._read(wire)
        if found and beside is not None and beside is self._mover.wire:
            self._mover.read()

    def nudge(self) -> None:
        """Have every waiting thread look again. A polling thread wakes when something arrives: the broker is
        probed."""
        if self._reading:
            self.conversation.sync()
        self.send()
        self.lock.notify_all()

    def catch_up(self) -> None:
        """Read what has already arrived: credit, or news that the connection is gone.

        A program whose calls never wait cannot connect to another broker in them. If its own is about to
        leave, a thread does so.
        """
        wire = self._wire
        if wire is not None and not self._reading and wire.ready():
            self._read(wire)
        beside = self._mover.wire
        if beside is not None:
            if not self._reading and beside.ready():
                self._mover.read()
            self._mover.step(-INF)
        leaves = self.conversation.leaves_at < INF and self._place.moves
        if leaves and not self._reading and not self._moving_aside and self._wire is not None:
            self._moving_aside = True
            threading.Thread(target=self._move_aside, name=f"move {self.name}", daemon=True).start()

    def _move_aside(self) -> None:
        """Take the steps to another broker, until this one has been left or is gone."""
        with self.lock.held:
            wire = self._wire
            try:
                self.pump(lambda: self._wire is not wire, None)
            finally:
                self._moving_aside = False
