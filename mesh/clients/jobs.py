"""Messages of durable subscriptions as programs see them: `Job` and `JobBatch`, for both clients. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat
from typing import Any, Protocol

import msgspec

from mesh.clients.arguments import checked_after
from mesh.clients.work_feeds import Portion
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue


class Worker(Protocol):
    """Takes a program's settlements: the ``Work`` that brought the messages."""

    def done(self, portion: Portion, messages: int) -> bool: ...

    def retry(self, portion: Portion, index: int, after_s: float | None) -> bool: ...

    def drop(self, portion: Portion, index: int, reason: str) -> bool: ...


class Job(msgspec.Struct, eq=False, gc=False):
    """One message of a durable subscription. Settle it with `done`, `retry` or `drop`.

    Each returns True if the home will be told. It returns False if the message was settled before, or if the
    session that brought it has ended. In the latter case another consumer gets the message, and ``late``
    counts it.

    It is a Struct for the same reasons as `Delivery`: one is made for every message.
    """

    topic: str
    body: bytes
    _packed: bytes | None
    _index: int
    _portion: Portion
    _worker: Worker

    def __repr__(self) -> str:
        return f"<Job {self.topic} {len(self.body)} bytes, attempt {self.attempt}>"

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The publisher's headers; empty for none."""
        return (blocks.unpack_headers(self._packed) if self._packed else None) or {}

    @property
    def key(self) -> str | None:
        """The publisher's own id for the message, if it gave one."""
        key = self.headers.get("key")
        return key if isinstance(key, str) else None

    @property
    def id(self) -> str:
        """The message's id. It is the same at each delivery, also of a dead letter, and no other message has
        it."""
        portion = self._portion
        return f"{portion.publisher:016x}-{portion.boot:x}-{portion.sequence + self._index}"

    @property
    def attempt(self) -> int:
        """Number of this attempt: 1, plus the attempts that failed."""
        return self._portion.attempt

    @property
    def redelivered(self) -> bool:
        """True if a consumer had it before, as far as the home knows since it started."""
        return self._portion.redelivered

    @property
    def settled(self) -> bool:
        """True if the program has settled the message."""
        return not self._portion.left >> self._index & 1

    def done(self) -> bool:
        """Settle the message as processed: it is never delivered again."""
        return self._worker.done(self._portion, 1 << self._index)

    def retry(self, after: float | None = None) -> bool:
        """Have it delivered again, to any consumer, ``after`` that many seconds (7 days at most). By default
        the delay doubles with each attempt. After 20 attempts it becomes a dead letter. Raises TypeError,
        ValueError."""
        after_s = None if after is None else checked_after(after)
        return self._worker.retry(self._portion, self._index, after_s)

    def drop(self, reason: str = "") -> bool:
        """Make the message a dead letter, with the reason: it can never be processed. A message of
        ``$dlq.NAME``, which is one already, is removed for good."""
        if not isinstance(reason, str):
            raise TypeError(f"a reason is a str, not {type(reason).__name__}")
        return self._worker.drop(self._portion, self._index, reason)


def jobs(portion: Portion, worker: Worker) -> Iterator[Job]:
    """Yield the messages of a portion one by one."""
    packed: Any = repeat(None) if portion.headers is None else portion.headers
    return map(Job, repeat(portion.topic), portion.bodies, packed, count(), repeat(portion), repeat(worker))


class JobBatch:
    """Messages that arrived together: ``topics`` and ``bodies`` are lists of equal length."""

    __slots__ = ("_portions", "_worker", "bodies", "topics")

    def __init__(self, portions: list[Portion], worker: Worker) -> None:
        self._portions = portions
        self._worker = worker
        self.topics: list[str] = []
        self.bodies: list[bytes] = []
        for portion in portions:
            self.topics += [portion.topic] * len(portion.bodies)
            self.bodies += portion.bodies

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return zip(self.topics, self.bodies, strict=True)

    def jobs(self) -> Iterator[Job]:
        """Yield the same messages as objects, for programs that settle some of them in another way than
        `done`."""
        for portion in self._portions:
            yield from jobs(portion, self._worker)

    def done(self) -> bool:
        """Settle all messages as done, except those that were settled one by one. False if the session that
        brought them has ended."""
        told = [self._worker.done(portion, portion.left) for portion in self._portions if portion.left]
        return all(told)
