"""What becomes of a socket's peers, as a stream to iterate.

```
attaching --admitted--> attached --> detached
     |
     +---- refused (by the pattern, the ``admit`` hook or a receiver): nothing follows
```

Each pipe has each of these once, in this order. A stream holds ``limit`` events for a reader that is slow;
then the oldest are dropped and counted in ``missed``. A reader may close pipes and its socket as it likes:
events are read in a task of its own, never inside the socket.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, Self
from weakref import ref

from protocols.options import check_integer
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.waiting import Waiters

EVENTS_MAX: Final = 1024

EventKind = Literal["attaching", "attached", "detached"]


@dataclass(frozen=True, slots=True)
class PipeEvent:
    """``reason`` says, of a pipe that is detached, why; the word to count by is ``pipe.close_cause``."""

    kind: EventKind
    pipe: PipeView
    reason: str = ""


class PipeEvents:
    """Made by ``socket.events()``; ends when the socket has closed, or with `close`."""

    def __init__(self, limit: int = EVENTS_MAX) -> None:
        check_integer("limit", limit, 1)
        self.missed = 0
        """Events that were dropped because nobody read them in time."""
        self._events: deque[PipeEvent] = deque(maxlen=limit)
        self._readers = Waiters()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PipeEvent:
        """The next event, in order. Cancelled, none was taken."""
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._readers.wait(None)
        return self._events.popleft()

    def close(self) -> None:
        """No more events come; those that are there can still be read."""
        self._closed = True
        self._readers.wake_all()

    def _put(self, event: PipeEvent) -> None:
        if self._closed:
            return
        if len(self._events) == self._events.maxlen:
            self.missed += 1
        self._events.append(event)
        self._readers.wake(1)


class PipeNews:
    """A socket's side: tells all streams that somebody still holds."""

    def __init__(self) -> None:
        self._streams: list[ref[PipeEvents]] = []

    def open(self, limit: int) -> PipeEvents:
        stream = PipeEvents(limit)
        self._streams = [known for known in self._streams if known() is not None]
        self._streams.append(ref(stream))
        return stream

    def tell(self, kind: EventKind, pipe: Pipe, reason: str = "") -> None:
        if not self._streams:
            return
        event = PipeEvent(kind, view_of(pipe), reason)
        for known in self._streams:
            stream = known()
            if stream is not None:
                stream._put(event)

    def close(self) -> None:
        for known in self._streams:
            stream = known()
            if stream is not None:
                stream.close()
