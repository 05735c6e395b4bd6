"""`BlockingWork`: messages of a durable subscription, as ``BlockingClient.subscribe(durable=)`` gives them.

As `mesh.clients.work`, in the threads that call. It belongs to the process that made it. Several threads may
take from it; each message goes to one of them.

No loop turn ends here, at whose end settlements could be reported together. So a settlement is reported at
once, with one exception: a program that takes one message after the other. Its settlements within `GATHER_S`,
while more messages wait here, are reported together with the next settlement or call after that time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from math import inf
from typing import Final

from mesh.clients.arguments import checked_seconds
from mesh.clients.attached_work import AttachedWork
from mesh.clients.blocking_copies import belongs_to_this_process
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.calls import SUBSCRIBE_TIMEOUT_S, unattached
from mesh.clients.home_search import ATTACHED, WAIT, Ask, Failed, Follow, Step
from mesh.clients.jobs import Job, JobBatch, jobs
from mesh.clients.work_feeds import Portion, WorkFeed
from mesh.errors import Disconnected
from protocols import AddressError

GATHER_S: Final = 0.001


class BlockingWork(AttachedWork[BlockingSession]):
    """Messages of a durable subscription: iterate it, or `receive` with a timeout, and settle each message.

    It has the methods of `Work`, without ``await``.
    """

    def __init__(
        self, entry: BlockingSession, dial: Callable[[str], BlockingSession], feed: WorkFeed
    ) -> None:
        super().__init__(entry, dial, feed)
        self._pid = os.getpid()
        self._moving = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._hands: dict[int, Job] = {}
        belongs_to_this_process(self)

    # ------------------------------------------------------------------ its life

    def open(self) -> None:
        """Pass the barrier. Raises as entering a `Work` does, and then closes."""
        try:
            if not self._attach(time.monotonic() + SUBSCRIBE_TIMEOUT_S):
                raise unattached(self.name, self._at.why_away)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BlockingWork:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; if the program failed with an `Exception`, its current message is tried again. An interrupt
        is no `Exception`."""
        job = self._hands.get(threading.get_ident())
        if job is not None and isinstance(error, Exception) and os.getpid() == self._pid:
            job.retry()
        self.close()

    def close(self) -> None:
        """Leave: settled messages are reported to the home, the others go to other consumers, and iteration
        ends."""
        self.closed = True
        at, feed = self._at, self._feed
        if os.getpid() != self._pid:
            return
        self._hands.clear()
        self._jobs.clear()
        self._leave(at, feed)

    def _leave(self, at: BlockingSession, feed: WorkFeed) -> None:
        with suppress(Disconnected), at.ours():  # a session that has ended is fine here
            at.conversation.detach(feed)
            at.nudge()
        if at is not self._entry:
            at.close()

    def forget_received(self) -> None:
        """Drop the messages that a fork has copied into this child."""
        self._portion = None
        self._jobs.clear()

    # ------------------------------------------------------------------ where it is attached

    def _attach(self, deadline: float | None) -> bool:
        """Wait until it is attached; False at the deadline, or when it is closed. Raises why it cannot be
        attached."""
        with self._moving:
            while not self._over:
                feed, at = self._feed, self._at
                now = time.monotonic()
                step = self._search.next(
                    feed, at_entry=at is self._entry, settled=at.conversation.settled, now=now
                )
                if step is ATTACHED:
                    return True
                if step is WAIT:
                    self._await(at, feed, deadline)
                else:
                    self._take_unless_over(step, deadline)
                if deadline is not None and not feed.ready and time.monotonic() >= deadline:
                    return False
        return False

    def _await(self, at: BlockingSession, feed: WorkFeed, deadline: float | None) -> None:
        """Wait for the answer of the broker that was asked. If that broker is not the entry, the end of its
        session ends the wait, too."""
        conversation, follows = at.conversation, at is not self._entry
        with at.lock.held:
            at.pump(
                lambda: feed.ready or feed.closed or self.closed or (follows and not conversation.settled),
                deadline,
            )

    def _take_unless_over(self, step: Step, deadline: float | None) -> None:
        try:
            self._take(step, deadline)
        except Disconnected:
            if not self._over:  # an error after a close does not matter
                raise

    def _take(self, step: Step, deadline: float | None) -> None:
        """Take one step of the search for the home."""
        match step:
            case Failed(error):
                raise error
            case Ask(pause_s):
                self._pause(pause_s, deadline)
                self._move_to(self._entry)
            case Follow(url, pause_s):
                self._pause(pause_s, deadline)
                try:
                    home = self._dial(url)
                    home.open()
                except (Disconnected, AddressError) as error:
                    self._take(self._search.unreachable(self.name, error), deadline)
                    return
                if self._over:  # closed meanwhile
                    home.close()
                else:
                    self._move_to(home)

    def _pause(self, pause_s: float, deadline: float | None) -> None:
        end = time.monotonic() + pause_s
        if pause_s:
            with self._lock_of(self._entry):
                self._entry.pump(lambda: self.closed, min(end, inf if deadline is None else deadline))

    def _move_to(self, there: BlockingSession) -> None:
        before, left = self._feed, self._at
        with there.ours():
            self._feed = there.conversation.attach(
                before.name, before.patterns, before.messages, before.size, self._counters
            )
            self._at = there
            there.send()
        self._leave(left, before)

    @property
    def _over(self) -> bool:
        return self.closed or self._entry.closed

    def _lock_of(self, session: BlockingSession) -> AbstractContextManager[object]:
        """A session's lock. Raises `Disconnected` in any process but its own."""
        if os.getpid() != self._pid:
            raise Disconnected("this work belongs to the process that made it; subscribe again")
        return session.lock.held

    # ------------------------------------------------------------------ iterating

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        job = self.receive(None)
        if job is None:
            raise StopIteration
        return job

    def receive(self, timeout: float | None = None) -> Job | None:
        """Return the next message; None if none came in time, or it was closed. Raises `Detached` when the
        subscription is over."""
        portion = self._portion
        if portion is not None and not portion.void:
            try:
                job = self._jobs.popleft()
            except IndexError:
                pass
            else:
                self._hands[threading.get_ident()] = job
                return job
        limit_s = None if timeout is None else checked_seconds("timeout", timeout)
        found = self._await_job(None if limit_s is None else time.monotonic() + limit_s)
        if found is not None:
            self._hands[threading.get_ident()] = found
        return found

    def _await_job(self, deadline: float | None) -> Job | None:
        while True:
            at = self._at
            with self._lock_of(at):
                if at is self._at:
                    job = self._next_job()
                    if job is not None or self._over:
                        return job
                    self._say()
            if not self._await_news(deadline):
                return None

    def _next_job(self) -> Job | None:
        """A message that has arrived, taken with the lock held; None if there is none."""
        if self._portion is None or self._portion.void:
            self._jobs.clear()
        if not self._jobs:
            self._at.catch_up()
            self._portion = self._feed.take()
            if self._portion is not None:
                self._jobs.extend(jobs(self._portion, self))
                self._at.lock.notify_all()  # there may be some for other threads
        return self._jobs.popleft() if self._jobs else None

    def batches(self) -> Iterator[JobBatch]:
        """Iterate the same messages as one `JobBatch` after the other, each with as many as arrived together,
        until it is closed. Messages of a batch that `receive` has begun to hand out are not among them."""
        while not self._over:
            at = self._at
            with self._lock_of(at):
                at.catch_up()
                portions = self._feed.take_all() if at is self._at else []
            if portions:
                yield JobBatch(portions, self)
            else:
                self._await_news(None)

    def _await_news(self, deadline: float | None) -> bool:
        """Attach again if it is not attached; otherwise wait for messages, or for those that another thread
        left. False when there is nothing more to wait for."""
        at, feed = self._at, self._feed
        if not feed.ready:
            return self._attach(deadline)
        with self._lock_of(at):
            came = at.pump(
                lambda: bool(feed.portions or self._jobs or not feed.ready or feed.closed or self.closed),
                deadline,
            )
        return came or not (deadline is not None and time.monotonic() >= deadline)

    # ------------------------------------------------------------------ what the program says of messages

    def done(self, portion: Portion, messages: int) -> bool:
        with self._lock_of(self._at):
            return self._told(portion.done(messages))

    def retry(self, portion: Portion, index: int, after_s: float | None) -> bool:
        with self._lock_of(self._at):
            return self._told(portion.retry(index, after_s))

    def drop(self, portion: Portion, index: int, reason: str) -> bool:
        with self._lock_of(self._at):
            return self._told(portion.drop(index, reason))

    def _told(self, told: bool) -> bool:
        """Have a settlement reported now, or soon."""
        if told:
            late = not self._jobs or self._feed.said_late
            if late or time.monotonic() - self._said_at >= GATHER_S:
                self._say()
        return told

    def _say(self) -> None:
        if self._feed.unsaid and not self._at.closed:
            self._at.conversation.tell(self._feed)
            self._at.send()
            self._said_at = time.monotonic()
