"""Blocks that wait for one consumer: which are kept, whose credit they hold, and which are dropped.

A `Backlog` is a policy. The outlet gives it blocks that cannot go at once, and takes them back, oldest first,
when the consumer has credit and its port has room:

* `LiveQueue`: for consumers under credit, subscriptions and links; see below.
* `NoQueue`: for consumers without credit, such as stock subscribers. Messages that cannot go at once are
  dropped, so the newest are lost, as with PUB.
* A cursor over a journal keeps nothing: it was given a position and finds the blocks there.

Policy of `LiveQueue`
    A waiting block holds its sender's credit as long as the consumer makes progress, that is, grants credit
    or reads. Such blocks are bounded by the windows of their senders and never dropped: a consumer that
    keeps consuming slows its publishers down and loses nothing. After ``stall_s`` without progress the
    consumer is *stalled*: all credit that it held is released, and from then on blocks wait *free*, without
    anybody's credit. Beyond ``messages_max`` and ``bytes_max``, and beyond the `Budget` that the
    subscriptions of one session share, the oldest free blocks are dropped. Progress ends the stall. Blocks
    without credit (from stock publishers, and questions) wait free at once. So do blocks from a link while
    less than a quarter of the bounds waits, and after ``link_stall_s`` without progress, since other topics
    share the link.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from mesh.dataplane.credit import HeldCredit, Ingress
from mesh.dataplane.options import DeliveryOptions

Buffer = bytes | memoryview
"""A block: its own bytes, or a view into its frame (which saves the copy of a large one)."""


class QueuedBlock:
    """One waiting block. ``number`` is its place in the consumer's sequence; with 0 it gets one when it goes.
    ``finished``: it is a whole frame (a question) and needs no head."""

    __slots__ = ("block", "finished", "flags", "held", "hops", "messages", "number")

    def __init__(
        self,
        block: Buffer,
        messages: int,
        hops: int = 0,
        flags: int = 0,
        *,
        number: int = 0,
        held: HeldCredit | None = None,
        finished: bool = False,
    ) -> None:
        self.block: Buffer | None = block
        """None once it was dropped."""
        self.messages = messages
        self.hops = hops
        self.flags = flags
        self.number = number
        self.held = held
        self.finished = finished


class Backlog(Protocol):
    """See the module."""

    @property
    def messages(self) -> int:
        """Messages that wait, as far as known."""

    @property
    def dropped(self) -> int:
        """Messages dropped, cumulative."""

    def push(self, item: QueuedBlock, now: float) -> bool:
        """Take a block that cannot go now. True if it uses ``item.number`` in the consumer's sequence, so
        that dropping it leaves a gap. False if it gets its number when it goes."""

    def pop(self) -> QueuedBlock | None:
        """The next block to go. None if none waits."""

    def progress(self, now: float) -> None:
        """The consumer granted credit or read."""

    def check_stall(self, now: float) -> None:
        """Call this now and then while blocks wait."""

    def close(self) -> int:
        """The consumer has left: give all credit back. Returns the messages that still waited."""


class NoQueue:
    """Drops and counts blocks that cannot go at once."""

    __slots__ = ("dropped",)

    messages = 0

    def __init__(self) -> None:
        self.dropped = 0

    def push(self, item: QueuedBlock, now: float) -> bool:
        self.dropped += item.messages
        return True

    def pop(self) -> QueuedBlock | None:
        return None

    def progress(self, now: float) -> None: ...

    def check_stall(self, now: float) -> None: ...

    def close(self) -> int:
        return 0


class Budget:
    """A bound for the bytes that wait free for several consumers together."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max


class LiveQueue:
    """See the module."""

    __slots__ = (
        "_budget",
        "_bytes",
        "_free",
        "_free_bytes",
        "_free_messages",
        "_gone",
        "_items",
        "_options",
        "_progress_at",
        "dropped",
        "messages",
        "stalled",
    )

    def __init__(self, options: DeliveryOptions, budget: Budget, now: float) -> None:
        self.messages = 0
        self.dropped = 0
        self.stalled = False
        self._options = options
        self._budget = budget
        self._items: deque[QueuedBlock] = deque()
        self._free: deque[QueuedBlock] = deque()
        """The items that hold nobody's credit, in the same order."""
        self._gone = 0
        """Dropped blocks whose places are still among the items."""
        self._bytes = 0
        self._free_messages = 0
        self._free_bytes = 0
        self._progress_at = now

    def __len__(self) -> int:
        return len(self._items) - self._gone

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    def held(self) -> Iterator[QueuedBlock]:
        """The items that hold their sender's credit, oldest first."""
        return (item for item in self._items if item.held is not None)

    def push(self, item: QueuedBlock, now: float) -> bool:
        if not self:
            self._progress_at = now  # until now the consumer had nothing to read
        assert item.block is not None
        size = len(item.block)
        held = item.held
        if held is not None:
            if self._holds(held.ingress, now):
                held.outlets += 1
            else:
                item.held = held = None
        self._items.append(item)
        self.messages += item.messages
        self._bytes += size
        if held is None:
            self._add_free(item, size)
            self._bound()
        return True

    def pop(self) -> QueuedBlock | None:
        items = self._items
        while items:
            item = items.popleft()
            if item.block is None:
                self._gone -= 1
                continue
            size = len(item.block)
            self.messages -= item.messages
            self._bytes -= size
            if item.held is not None:
                item.held.release()
            else:
                self._free.popleft()  # both are in the same order, so it is the first here
                self._count_free(-item.messages, -size)
            return item
        return None

    def progress(self, now: float) -> None:
        self._progress_at = now
        self.stalled = False

    def check_stall(self, now: float) -> None:
        if not self or self.stalled:
            return
        silent_s = now - self._progress_at
        if silent_s >= self._options.stall_s:
            self.stalled = True
            self._release(links_only=False)
        elif silent_s >= self._options.link_stall_s:
            self._release(links_only=True)

    def close(self) -> int:
        waiting = self.messages
        while self.pop() is not None:
            pass
        return waiting

    def _holds(self, ingress: Ingress, now: float) -> bool:
        """True if a block from this sender waits with its credit."""
        if self.stalled:
            return False
        if not ingress.is_link:
            return True
        options = self._options
        if self.messages * 4 < options.messages_max and self._bytes * 4 < options.bytes_max:
            return False
        return now - self._progress_at < options.link_stall_s

    def _release(self, *, links_only: bool) -> None:
        for item in self._items:
            held = item.held
            if held is not None and (held.ingress.is_link or not links_only):
                item.held = None
                held.release()
        self._count_free(-self._free_messages, -self._free_bytes)
        self._free.clear()
        for item in self._items:
            if item.held is None and item.block is not None:
                self._add_free(item, len(item.block))
        self._bound()

    def _add_free(self, item: QueuedBlock, size: int) -> None:
        self._free.append(item)
        self._count_free(item.messages, size)

    def _count_free(self, messages: int, size: int) -> None:
        self._free_messages += messages
        self._free_bytes += size
        self._budget.bytes += size

    def _bound(self) -> None:
        """Drop the oldest free blocks until they are within their bounds. One block may exceed them."""
        options, budget = self._options, self._budget
        while (
            self._free_messages > options.messages_max
            or self._free_bytes > options.bytes_max
            or budget.bytes > budget.bytes_max
        ):
            if not self._free or len(self) == 1:
                return
            self._drop(self._free.popleft())

    def _drop(self, item: QueuedBlock) -> None:
        """Its place stays among the items until it reaches the front, or until most places are empty."""
        assert item.block is not None
        size = len(item.block)
        item.block = None
        self.messages -= item.messages
        self._bytes -= size
        self._count_free(-item.messages, -size)
        self.dropped += item.messages
        self._gone += 1
        items = self._items
        while items and items[0].block is None:
            items.popleft()
            self._gone -= 1
        if self._gone * 2 > len(items) + 16:
            self._items = deque(item for item in items if item.block is not None)
            self._gone = 0
