"""The site's view of its broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Queue(Protocol):
    """A durable subscription of this broker; `mesh.dataplane.queue_status.QueueStatus` is one."""

    @property
    def name(self) -> str: ...
    @property
    def waiting(self) -> int: ...
    @property
    def size(self) -> int | None: ...

    def entry(self, now_us: int) -> dict[str, Any]: ...


class Figures(NamedTuple):
    """The status before it is cut to the size of an answer, and all durable subscriptions of the broker."""

    status: Mapping[str, Any]
    queues: Sequence[Queue]
    now_us: int
    """Microseconds since the epoch."""


Answered = Callable[[Sequence[bytes], Sequence[str]], None]
"""Takes the statuses of all brokers that answered, and the names of those that did not."""


class Source(Protocol):
    """The broker, as `mesh.broker.http_source` shows it."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def waits_for(self) -> Sequence[str]:
        """While it joins: names and addresses of the brokers that have not answered."""

    def status(self) -> bytes:
        """The status as JSON, cut to the size of an answer."""

    def figures(self) -> Figures: ...

    def ask_all(self, deadline_s: float, bytes_max: int, then: Answered) -> None:
        """Ask all brokers for their status; answers beyond so many bytes count as silent."""
