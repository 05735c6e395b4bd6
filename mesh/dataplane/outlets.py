"""Where blocks wait for a consumer's credit: one `Outlet` for each subscription and for each link.

An outlet sends at once while the consumer's credit is above zero and nothing waits before it. Otherwise
the block waits here, and the credit of whoever sent it waits with it (`Held`): it goes back when the last
outlet that holds the block has sent or dropped it. That is the back-pressure: nobody's reading is ever
paused.

Policy for a consumer that stops
    A block waits with its source's credit as long as the consumer makes progress, that is, grants credit.
    What waits so is bounded by the windows of its sources and is never dropped: a consumer that keeps
    consuming holds its publishers back and loses nothing. After ``stall_s`` (10 s) without any, the outlet is
    *stalled*: all credit it held back is released and from then on blocks wait without holding credit.
    Of those that wait *free*, the oldest is dropped beyond ``messages_max``/``bytes_max`` and counted as
    slow. Any grant ends the stall. Blocks that came over a link wait free while less than a quarter of
    those bounds waits, and after ``link_stall_s`` (3 s) without progress, since other topics share the link.

The outlet of a link is the same machine: its consumer is the other broker.

Pure: an outlet appends finished frames to its port's ``ready`` list; whoever feeds it hands them to the pipe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from mesh.wire.session_frames import DATA_HEAD, ReceiveWindow, SendCredit

Buffer = bytes | memoryview
"""A block: bytes of its own, or a view into the frame it came in (no copy for large ones)."""

SEARCH_MAX: Final = 1024
"""Blocks looked at to find the oldest that waits free."""

_head: Final = DATA_HEAD.pack
_join: Final = b"".join


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Bounds and patience of one outlet."""

    messages_max: int = 65536
    bytes_max: int = 16 << 20
    stall_s: float = 10.0
    link_stall_s: float = 3.0


class Port(Protocol):
    """Where an outlet's frames go: one session of a client, or one link."""

    prefix: bytes
    """The SP backtrace that goes before every frame; empty on a link."""
    ready: list[bytes]
    """Frames for the pipe, handed over at the end of the turn."""

    def wake(self) -> None:
        """Called before the first frame goes into an empty ``ready``."""

    def waits(self, outlet: Outlet) -> None:
        """Called when a block waits in the outlet: it is to be looked at by `Outlet.check_stall`."""


class Source:
    """Who sent blocks here: its receive window. ``due`` collects the sources to which a grant is owed."""

    __slots__ = ("_due", "is_due", "is_link", "owner", "window")

    def __init__(self, owner: object, window: ReceiveWindow, due: list[Source], *, is_link: bool) -> None:
        self.owner = owner
        self.window = window
        self.is_link = is_link
        self.is_due = False
        self._due = due

    def settle(self, messages: int, size: int) -> None:
        """A block of this source has left every queue here. (`ReceiveWindow.settle`, without two calls a
        block.)"""
        window = self.window
        window.owed_messages += messages
        window.owed_bytes += size
        if not self.is_due and (
            window.owed_messages * 4 >= window.messages or window.owed_bytes * 4 >= window.bytes
        ):
            self.is_due = True
            self._due.append(self)


class Held:
    """The credit of one block, shared by the outlets in which it waits; given back by the last."""

    __slots__ = ("messages", "outlets", "size", "source")

    def __init__(self, source: Source, messages: int, size: int) -> None:
        self.source = source
        self.messages = messages
        self.size = size
        self.outlets = 0

    def release(self) -> None:
        self.outlets -= 1
        if self.outlets == 0:
            self.source.settle(self.messages, self.size)


class _Waiting:
    __slots__ = ("block", "flags", "held", "hops", "messages", "sequence", "whole")

    def __init__(
        self,
        block: Buffer,
        messages: int,
        hops: int,
        flags: int,
        sequence: int,
        held: Held | None,
        whole: bool,
    ) -> None:
        self.block = block
        self.messages = messages
        self.hops = hops
        self.flags = flags
        self.sequence = sequence
        self.held = held
        self.whole = whole  # a finished frame (ASK), not a block that wants a head


class Outlet:
    """Blocks on their way to one consumer. ``number`` is the subscription's, 0 on a link."""

    __slots__ = (
        "bytes_out",
        "credit",
        "dropped",
        "free_bytes",
        "free_messages",
        "messages_out",
        "number",
        "options",
        "port",
        "progress_at",
        "queue",
        "queued_bytes",
        "queued_messages",
        "sequence",
        "stalled",
    )

    def __init__(self, port: Port, number: int, options: DeliveryOptions, now: float) -> None:
        self.port = port
        self.number = number
        self.options = options
        self.credit = SendCredit()
        self.queue: deque[_Waiting] = deque()
        self.queued_messages = 0
        self.queued_bytes = 0
        self.free_messages = 0
        """Of those queued, the ones that hold no source's credit."""
        self.free_bytes = 0
        self.sequence = 0
        """Number of the last block offered; a dropped one leaves a gap that the consumer can see."""
        self.stalled = False
        self.progress_at = now
        self.messages_out = 0
        self.bytes_out = 0
        self.dropped = 0
        """Messages dropped because the consumer was slow."""

    # --- blocks in

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """Send the block now if it may go now; False: it must `wait`."""
        credit = self.credit
        if credit.messages <= 0 or credit.bytes <= 0 or self.queue:
            return False
        self.sequence = sequence = self.sequence + 1
        size = len(block)
        credit.messages -= messages
        credit.bytes -= size
        self.messages_out += messages
        self.bytes_out += size
        port = self.port
        ready = port.ready
        if not ready:
            port.wake()
        head = _head(0x93, 5, 0xC4, 16, hops, flags, 0, self.number, sequence, 0xC6, size)
        ready.append(_join((port.prefix, head, block)))
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: Held | None, now: float
    ) -> None:
        """Let a block that was offered wait, at the expense of its source unless the consumer is stalled."""
        self.sequence += 1
        self._wait(_Waiting(block, messages, hops, flags, self.sequence, held, False), now)

    def offer_frame(self, frame: bytes, now: float) -> None:
        """A finished session frame (ASK) that counts as one message of this subscription."""
        if self.credit.open and not self.queue:
            self.credit.spend(1, len(frame))
            self.messages_out += 1
            self.bytes_out += len(frame)
            if not self.port.ready:
                self.port.wake()
            self.port.ready.append(self.port.prefix + frame)
            return
        self._wait(_Waiting(frame, 1, 0, 0, 0, None, True), now)

    def _wait(self, item: _Waiting, now: float) -> None:
        if not self.queue:
            self.progress_at = now  # it had nothing to take until now
            self.port.waits(self)
        held = item.held
        if held is not None:
            if self._holds(held.source, now):
                held.outlets += 1
            else:
                item.held = None
        self.queue.append(item)
        self.queued_messages += item.messages
        self.queued_bytes += len(item.block)
        if item.held is None:
            self.free_messages += item.messages
            self.free_bytes += len(item.block)
            self._bound()

    def _bound(self) -> None:
        """Drop the oldest of what waits free until it keeps its bounds; one block may be larger than they
        are."""
        options = self.options
        while (self.free_messages > options.messages_max or self.free_bytes > options.bytes_max) and len(
            self.queue
        ) > 1:
            self._drop(self._oldest_free())

    def _oldest_free(self) -> int:
        """Its place in the queue. Not far from the front, or the front itself goes, held or not."""
        for index, item in enumerate(islice(self.queue, SEARCH_MAX)):
            if item.held is None:
                return index
        return 0

    def _holds(self, source: Source, now: float) -> bool:
        """Whether a block from this source waits at its source's expense."""
        if self.stalled:
            return False
        if not source.is_link:
            return True
        options = self.options
        if self.queued_messages * 4 < options.messages_max and self.queued_bytes * 4 < options.bytes_max:
            return False
        return now - self.progress_at < options.link_stall_s

    def _drop(self, index: int) -> None:
        item = self.queue[index]
        del self.queue[index]
        self._forget(item)
        self.dropped += item.messages

    def _forget(self, item: _Waiting) -> None:
        self.queued_messages -= item.messages
        self.queued_bytes -= len(item.block)
        if item.held is not None:
            item.held.release()
        else:
            self.free_messages -= item.messages
            self.free_bytes -= len(item.block)

    # --- the consumer

    def granted(self, messages: int, size: int, now: float) -> None:
        """The consumer gave credit: it lives, and what waits goes out as far as the credit reaches."""
        self.credit.grant(messages, size)
        self.progress_at = now
        self.stalled = False
        credit, queue, port = self.credit, self.queue, self.port
        if queue and not port.ready:
            port.wake()
        while queue and credit.messages > 0 and credit.bytes > 0:
            item = queue.popleft()
            size = len(item.block)
            credit.messages -= item.messages
            credit.bytes -= size
            self.messages_out += item.messages
            self.bytes_out += size
            if item.whole:
                port.ready.append(_join((port.prefix, item.block)))
            else:
                head = _head(
                    0x93, 5, 0xC4, 16, item.hops, item.flags, 0, self.number, item.sequence, 0xC6, size
                )
                port.ready.append(_join((port.prefix, head, item.block)))
            self._forget(item)

    def check_stall(self, now: float) -> bool:
        """To be called now and then while blocks wait. True when the outlet has just become stalled."""
        if not self.queue or self.stalled:
            return False
        silent_s = now - self.progress_at
        if silent_s >= self.options.link_stall_s:
            self._release(links_only=True)
        if silent_s < self.options.stall_s:
            return False
        self.stalled = True
        self._release(links_only=False)
        return True

    def _release(self, *, links_only: bool) -> None:
        for item in self.queue:
            held = item.held
            if held is not None and (held.source.is_link or not links_only):
                item.held = None
                self.free_messages += item.messages
                self.free_bytes += len(item.block)
                held.release()
        self._bound()

    def close(self) -> int:
        """The consumer is gone: give all credit back; returns the messages that still waited."""
        waiting = self.queued_messages
        while self.queue:
            self._forget(self.queue.popleft())
        return waiting
