"""The arrivals and departures of a socket's peers, as a stream to iterate.

```
attaching --admitted--> attached --> detached
     |
     +---- refused (by the pattern, the ``admit`` hook or a receiver): nothing follows
```

Each pipe has each of these once, in this order. A stream holds ``limit`` events for a slow reader, then drops
the oldest and counts them in ``missed``. A reader may close pipes and its socket: it reads events in a
separate task, never inside the socket.
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
    """For a detached pipe, ``reason`` says why it ended; ``pipe.close_cause`` is the word for counters."""

    kind: EventKind
    pipe: PipeView
    reason: str = ""


class PipeEvents:
    """Made by ``socket.events()``; ends when the socket has closed, or with `close`."""

    def __init__(self, limit: int = EVENTS_MAX) -> None:
        check_integer("limit", limit, 1)
        self.missed = 0
        """The number of events dropped because the reader was too slow."""
        self._events: deque[PipeEvent] = deque(maxlen=limit)
        self._readers = Waiters()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PipeEvent:
        """Return the next event, in order. A cancelled call takes none."""
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._readers.wait(None)
        return self._events.popleft()

    def close(self) -> None:
        """Add no more events; those already there can still be read."""
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
    """The socket's side: tells all streams that a program still holds."""

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
