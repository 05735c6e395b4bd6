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
    """What takes the program's word of messages: the ``Work`` that they came by."""

    def done(self, portion: Portion, messages: int) -> bool: ...

    def retry(self, portion: Portion, index: int, after_s: float | None) -> bool: ...

    def drop(self, portion: Portion, index: int, reason: str) -> bool: ...


class Job(msgspec.Struct, eq=False, gc=False):
    """One message of a durable subscription: `done`, `retry` or `drop` says what became of it.

    Each returns True if the home will be told. It returns False if the message was settled before, or if
    the session that brought it has ended: then another consumer gets the message, and ``late`` counts it.

    Made as a `Delivery` is, and for the same reasons: one for every message.
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
        """The same at each delivery of the message, also as a dead letter, and no other message's."""
        portion = self._portion
        return f"{portion.publisher:016x}-{portion.boot:x}-{portion.sequence + self._index}"

    @property
    def attempt(self) -> int:
        """1, and one more for each that failed."""
        return self._portion.attempt

    @property
    def redelivered(self) -> bool:
        """Whether a consumer had it before, as far as the home knows since it started."""
        return self._portion.redelivered

    @property
    def settled(self) -> bool:
        """Whether the program has said what became of it."""
        return not self._portion.left >> self._index & 1

    def done(self) -> bool:
        """It is processed, and never delivered again."""
        return self._worker.done(self._portion, 1 << self._index)

    def retry(self, after: float | None = None) -> bool:
        """Deliver it again, to any consumer: ``after`` that many seconds, or by default after a delay that
        doubles with each attempt. After 20 attempts it becomes a dead letter. Raises TypeError, ValueError:
        7 days at most."""
        after_s = None if after is None else checked_after(after)
        return self._worker.retry(self._portion, self._index, after_s)

    def drop(self, reason: str = "") -> bool:
        """It can never be processed: make it a dead letter, with the reason."""
        if not isinstance(reason, str):
            raise TypeError(f"a reason is a str, not {type(reason).__name__}")
        return self._worker.drop(self._portion, self._index, reason)


def jobs(portion: Portion, worker: Worker) -> Iterator[Job]:
    """The messages of a portion, one by one."""
    packed: Any = repeat(None) if portion.headers is None else portion.headers
    return map(Job, repeat(portion.topic), portion.bodies, packed, count(), repeat(portion), repeat(worker))


class JobBatch:
    """Messages that arrived together: ``topics`` and ``bodies`` are lists of one length."""

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
        """The same messages as objects, for programs that have something else to say than `done` of some."""
        for portion in self._portions:
            yield from jobs(portion, self._worker)

    def done(self) -> bool:
        """Settle all of them as done, except those that were settled one by one. False if the session that
        brought them has ended."""
        told = [self._worker.done(portion, portion.left) for portion in self._portions if portion.left]
        return all(told)
