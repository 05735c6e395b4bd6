"""When a client's messages leave: gathered, flushed, handed to the pipe, written.

A published message is *gathered* with others of its topic (``publishing``), because a block of many costs
hardly more than a block of one. *Flushing* seals what is gathered and hands the frames to the pipe, which
writes at the end of the loop turn, or now if told to.

* A message after `LONE_S` of silence is flushed and written at once, for its round trip.
* A message is flushed and written at the end of its loop turn if nothing was gathered before it.
* While messages come turn after turn, they are flushed every `DEFER_S`.
* When a turn's budget of bytes is full, it is flushed and written. After `SEALS` times, or when the kernel
  takes no more, ``publish`` yields to the loop: nothing is read while a coroutine never suspends.
* Without credit or a session, messages gather until there is no room either.
* When credit comes, they are flushed at the end of the loop turn.

`turn` runs at the end of each loop turn while messages come, and stops after a turn without one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mesh.clients.conversation import Conversation
from protocols import Pipe

DEFER_S: Final = 0.001
"""Longest time a message waits for others while they keep coming."""
SEALS: Final = 4
"""Blocks sealed by size and written before ``publish`` yields to the loop; one if the kernel is full."""
LONE_S: Final = 0.0003
"""The first message after such a pause does not wait for the end of its loop turn."""


class Writer:
    """Writes a client's messages to one pipe at a time. Without a pipe, what is gathered stays where it
    is."""

    __slots__ = (
        "_conversation",
        "_deferred_at",
        "_idle",
        "_loop",
        "_seals",
        "_stuck",
        "lone",
        "pipe",
        "scheduled",
    )

    def __init__(self, conversation: Conversation, loop: asyncio.AbstractEventLoop) -> None:
        self._conversation = conversation
        self._loop = loop
        self.pipe: Pipe | None = None
        self.scheduled = False
        """True while a `turn` is scheduled."""
        self.lone = False
        """True if the message just scheduled came after a pause: `flush_lone` is due."""
        self._idle = True
        self._deferred_at = 0.0
        self._seals = 0
        self._stuck: list[bytes] = []

    # ------------------------------------------------------------------ to the pipe

    def attach(self, pipe: Pipe) -> None:
        """Write to this pipe from now on."""
        self.pipe = pipe
        self.hand_over()

    def detach(self) -> None:
        """Note that the pipe is gone, with everything that it had not taken. The conversation knows what to
        resend."""
        self.pipe = None
        self._stuck = []

    def hand_over(self) -> None:
        """Hand the conversation's frames to the pipe; what does not fit waits until the pipe is writable."""
        pipe, conversation = self.pipe, self._conversation
        if pipe is None:
            return
        for frame in conversation.take_control():
            pipe.send_control(frame)
        frames = conversation.take_frames()
        if self._stuck:
            frames = self._stuck + frames
        if frames:
            taken = pipe.send_many(frames)
            self._stuck = frames[taken:] if taken < len(frames) else []

    def write_now(self) -> None:
        """Write what was just handed over now, not at the end of the loop turn: somebody waits for it."""
        if self.pipe is not None:
            self.pipe.flush()

    # ------------------------------------------------------------------ gathered messages

    def schedule(self) -> None:
        """Schedule a turn: a message was gathered and none is scheduled."""
        now = self._loop.time()
        self.lone = now - self._deferred_at > LONE_S and self._conversation.room > 0
        self.scheduled = True
        self._deferred_at = now
        self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """Run at the end of each loop turn while messages come: flush if they waited long enough, or if
        nothing was gathered before them."""
        self.scheduled = False
        if not self._conversation.gathered:
            self._idle = True
            return
        now = self._loop.time()
        if self._idle or now - self._deferred_at >= DEFER_S:
            was_idle, self._idle = self._idle, False
            self._deferred_at = now
            self.flush()
            if was_idle:
                self.write_now()
            if self._conversation.gathered:
                return  # no credit: the next CREDIT flushes
        self.scheduled = True
        self._loop.call_soon(self.turn)

    def flush(self) -> None:
        """Seal what is gathered, as far as credit reaches, and hand it over."""
        self._conversation.flush()
        self.hand_over()

    def flush_lone(self) -> None:
        """Flush and write a message after a pause at once."""
        self.lone = self._idle = False
        self.flush()
        self.write_now()

    def seal(self) -> bool:
        """Flush and write a full turn's budget. True when it is also time to yield to the loop."""
        self.flush()
        self.write_now()
        self._seals += 1
        if self._seals < SEALS and self.pipe is not None and not self.pipe.queued:
            return False
        self._seals = 0
        return True

    def credit_came(self) -> None:
        """Flush at the end of this turn, since the frames just read may have brought credit."""
        if not self.scheduled and self._conversation.gathered and not self._conversation.blocked:
            self.schedule()
            self.lone = False
