"""The consumers of a durable subscription: each one's window, its messages, and which one is next.

The next message goes to the consumer that holds the fewest. Consumers with room lie in levels by powers of
two of what they hold. The lowest level comes first, and within a level they take turns. So a slow consumer
gets less without being measured, and a turn costs the same for two consumers and for thousands.
"""

from __future__ import annotations

from collections import OrderedDict

from mesh.work.rows import Row


class Consumer:
    """One client's session that works on a subscription.

    It may have ``window`` messages unsettled. Once they have ``bytes_max`` bytes it gets no more, so one
    message may overdraw them.

    While it is ``probing`` it gets suspects only. It is ready for one when it holds nothing but ``stuck``
    messages, those that it did not settle for too long. ``since`` is the time when it last got one or began
    to wait.
    """

    __slots__ = (
        "bytes",
        "bytes_max",
        "in_flight",
        "level",
        "number",
        "probing",
        "released",
        "rows",
        "since",
        "stuck",
        "suspect",
        "window",
    )

    def __init__(self, number: int, window: int, bytes_max: int) -> None:
        self.number = number
        self.window = window
        self.bytes_max = bytes_max
        self.in_flight = 0
        self.released = 0  # messages that it had and no longer has
        self.bytes = 0
        self.rows: dict[int, Row] = {}
        self.level = -1  # not in a roster
        self.probing = False
        self.suspect: tuple[int, int] | None = None
        self.stuck = 0
        self.since = 0.0

    def take(self, row: Row, records: int) -> None:
        """Note that these records are in flight here."""
        row.out[self.number] = row.out.get(self.number, 0) | records
        row.handed_out = True
        self.rows[row.number] = row
        count = records.bit_count()
        self.in_flight += count
        self.bytes += count * row.each

    def release(self, row: Row, records: int) -> None:
        """Note that these records are no longer in flight here."""
        left = row.out[self.number] & ~records
        if left:
            row.out[self.number] = left
        else:
            del row.out[self.number]
            del self.rows[row.number]
        count = records.bit_count()
        self.in_flight -= count
        self.released += count
        self.bytes -= count * row.each
        if self.suspect is not None and self.suspect[0] == row.number and records >> self.suspect[1] & 1:
            self.suspect = None
        self.stuck = min(self.stuck, self.in_flight - (self.suspect is not None))

    def fits(self, row: Row) -> int:
        """How many of a row's messages its bytes have room for: at least one."""
        return max(1, (self.bytes_max - self.bytes) // (row.each or 1))

    @property
    def ready_to_probe(self) -> bool:
        return self.suspect is None and self.in_flight <= self.stuck and self.in_flight < self.window


class Roster:
    """Consumers that may get messages now."""

    __slots__ = ("_levels", "_size", "_used")

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[Consumer, None]] = {}
        self._used = 0  # bit n: level n has a consumer
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def place(self, consumer: Consumer) -> None:
        """Put a consumer behind those that hold as much as it does; take it out if it may get nothing."""
        self.remove(consumer)
        if consumer.probing or consumer.in_flight >= consumer.window or consumer.bytes >= consumer.bytes_max:
            return
        level = consumer.level = consumer.in_flight.bit_length()
        self._levels.setdefault(level, OrderedDict())[consumer] = None
        self._used |= 1 << level
        self._size += 1

    def remove(self, consumer: Consumer) -> None:
        if consumer.level < 0:
            return
        consumers = self._levels[consumer.level]
        del consumers[consumer]
        if not consumers:
            self._used ^= 1 << consumer.level
        consumer.level = -1
        self._size -= 1

    def next(self) -> Consumer | None:
        """The consumer that gets the next messages; None if no consumer has room."""
        if not self._used:
            return None
        return next(iter(self._levels[(self._used & -self._used).bit_length() - 1]))
