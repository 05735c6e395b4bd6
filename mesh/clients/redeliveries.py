"""Messages that `Delivery.retry` took back, until they are due again. Pure."""

from __future__ import annotations

from heapq import heappop, heappush

from mesh.clients.messages import Delivery


class Redeliveries:
    """The retried messages of one subscription, ordered by due time. They need no timer: a call that waits
    for messages waits no longer than ``due_at``."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Delivery]] = []
        self._added = 0

    @property
    def due_at(self) -> float | None:
        """When the next one is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, delivery: Delivery, due_at: float) -> None:
        """Keep a message until it is due."""
        self._added += 1  # orders messages that are due at the same time
        heappush(self._heap, (due_at, self._added, delivery))

    def take(self, now: float) -> Delivery | None:
        """Take the next message, if it is due."""
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def clear(self) -> None:
        self._heap.clear()
