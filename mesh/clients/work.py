"""`Work`: messages of a durable subscription, as ``Client.subscribe(..., durable=NAME)`` gives them.

A durable subscription is worked on at its home, the broker whose journal keeps its messages. If that is not
the client's own broker, the *entry*, Work goes there with a connection of its own (``home_search``).

Settlements are reported to the home at the end of the loop's turn or within `DEFER_S` (seconds), and at once
when a quarter of the window is settled. A cancelled wait for a message loses nothing. Several tasks may
iterate one Work; each message goes to one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from mesh.clients.attached_work import AttachedWork
from mesh.clients.calls import SUBSCRIBE_TIMEOUT_S, unattached
from mesh.clients.connection import ClientConnection
from mesh.clients.home_search import ATTACHED, WAIT, Ask, Failed, Follow, Step
from mesh.clients.jobs import Job, JobBatch, jobs
from mesh.clients.work_feeds import Portion, WorkFeed
from mesh.errors import Disconnected, MeshError
from protocols import AddressError

DEFER_S: Final = 0.001
"""Longest time that a settlement waits for others."""
HANDS_MIN: Final = 64
"""Tasks whose last message is remembered before tasks with settled messages are forgotten."""


class Work(AttachedWork[ClientConnection]):
    """Messages of a durable subscription: enter it, then iterate it, and settle each message.

    Entering returns once the subscription is on disk at every live broker but those in ``unreached``. It
    raises `OtherPatterns`, `HeldElsewhere` if nobody knows where the home is, `Disconnected` if the home
    cannot be reached, and `NotAccepted` with the broker's sentence for another refusal. Iterating raises
    `Detached` when the subscription is removed, or its journal has failed.

    If the block ends with an exception, the current message is tried again later, which counts as an attempt.
    All other unsettled messages go to others, or to this program when it comes back.
    """

    def __init__(
        self, entry: ClientConnection, dial: Callable[[str], ClientConnection], feed: WorkFeed
    ) -> None:
        super().__init__(entry, dial, feed)
        self._loop = entry.loop
        self._moving = asyncio.Lock()
        self._jobs: Iterator[Job] = iter(())
        self._hands: dict[asyncio.Task[object] | None, Job] = {}
        self._hands_max = HANDS_MIN
        self._turn = False
        """True while `_end_turn` is scheduled."""

    # ------------------------------------------------------------------ its life

    async def __aenter__(self) -> Work:
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                await self._attach()
        except TimeoutError as error:
            await self.aclose()
            if isinstance(error, MeshError):
                raise
            raise unattached(self.name, self._at.why_away) from error
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; if the program failed, its current message is tried again. Cancellation and interrupts are
        no failures."""
        for task, job in self._hands.items():
            if task is asyncio.current_task():
                failed = isinstance(error, Exception)
            else:
                failed = (
                    task is not None and task.done() and not task.cancelled() and task.exception() is not None
                )
            if failed:
                job.retry()
        await self.aclose()

    async def aclose(self) -> None:
        """Leave: settled messages are reported to the home, the others go to other consumers, and iteration
        ends."""
        self.closed = True
        self._hands.clear()
        self._jobs = iter(())
        feed, at = self._feed, self._at
        at.conversation.detach(feed)
        at.writer.hand_over()
        at.writer.write_now()
        feed.wake()
        if at is not self._entry:
            await at.aclose()

    # ------------------------------------------------------------------ where it is attached

    async def _attach(self) -> None:
        """Wait until it is attached. Raises why it cannot be."""
        async with self._moving:
            while True:
                feed, at = self._feed, self._at
                if self.closed or self._entry.closed:
                    raise Disconnected(f"work on {self.name} is closed")
                step = self._search.next(
                    feed,
                    at_entry=at is self._entry,
                    settled=at.conversation.settled,
                    now=self._loop.time(),
                )
                if step is ATTACHED:
                    return
                if step is WAIT:
                    await at.wait(feed, None)
                else:
                    await self._take(step)

    async def _take(self, step: Step) -> None:
        """Take one step of the search for the home."""
        match step:
            case Failed(error):
                raise error
            case Ask(pause_s):
                await asyncio.sleep(pause_s)
                await self._move_to(self._entry)
            case Follow(url, pause_s):
                await asyncio.sleep(pause_s)
                try:
                    home = self._dial(url)
                    await home.open()
                except (Disconnected, AddressError) as error:
                    await self._take(self._search.unreachable(self.name, error))
                    return
                if self.closed:  # closed meanwhile
                    await home.aclose()
                else:
                    await self._move_to(home)

    async def _move_to(self, there: ClientConnection) -> None:
        before, left = self._feed, self._at
        left.conversation.detach(before)
        self._at = there
        self._feed = there.conversation.attach(
            before.name, before.patterns, before.messages, before.size, self._counters
        )
        there.writer.hand_over()
        before.wake()
        if left is not self._entry and left is not there:
            await left.aclose()

    # ------------------------------------------------------------------ iterating

    def __aiter__(self) -> AsyncIterator[Job]:
        return self

    async def __anext__(self) -> Job:
        while True:
            portion = self._portion
            if portion is not None and not portion.void:
                for job in self._jobs:
                    self._take_in_hand(job)
                    return job
            portion = self._portion = self._feed.take()
            if portion is not None:
                self._jobs = jobs(portion, self)
            else:
                await self._news()

    async def batches(self) -> AsyncIterator[JobBatch]:
        """Iterate the same messages as one `JobBatch` after the other, each with as many as arrived together,
        at a fraction of the cost per message. Messages of a batch that single iteration has begun to hand out
        are not among them."""
        while True:
            portions = self._feed.take_all()
            if portions:
                yield JobBatch(portions, self)
                continue
            try:
                await self._news()
            except StopAsyncIteration:
                return

    async def _news(self) -> None:
        """Wait for messages. Raises StopAsyncIteration at the end, and the failure of the subscription."""
        if self.closed or self._entry.closed:
            raise StopAsyncIteration
        if not self._feed.ready:
            try:
                await self._attach()
            except Disconnected:
                if self.closed or self._entry.closed:
                    raise StopAsyncIteration from None
                raise
        feed = self._feed
        if not feed.portions and feed.ready:
            await self._at.wait(feed, None)

    def _take_in_hand(self, job: Job) -> None:
        hands = self._hands
        hands[asyncio.current_task()] = job
        if len(hands) > self._hands_max:
            self._hands = {task: held for task, held in hands.items() if not held.settled}
            self._hands_max = max(HANDS_MIN, 2 * len(self._hands))

    # ------------------------------------------------------------------ what the program says of messages

    def done(self, portion: Portion, messages: int) -> bool:
        return self._told(portion.done(messages))

    def retry(self, portion: Portion, index: int, after_s: float | None) -> bool:
        return self._told(portion.retry(index, after_s))

    def drop(self, portion: Portion, index: int, reason: str) -> bool:
        return self._told(portion.drop(index, reason))

    def _told(self, told: bool) -> bool:
        """Have a settlement reported at the end of the turn, or now if many have gathered."""
        if not told:
            return False
        if self._feed.said_late:
            self._say()
            self._at.writer.write_now()
        elif not self._turn:
            self._turn = True
            due_at = self._said_at + DEFER_S
            if self._loop.time() >= due_at:
                self._loop.call_soon(self._end_turn)
            else:
                self._loop.call_at(due_at, self._end_turn)
        return True

    def _end_turn(self) -> None:
        self._turn = False
        self._say()

    def _say(self) -> None:
        self._said_at = self._loop.time()
        self._at.conversation.tell(self._feed)
        self._at.writer.hand_over()
