"""Which consumers take suspects, so that the message that kills its consumers is found.

A suspect is a message that was in flight when its consumer died. It goes to a consumer that has nothing else,
so that a second death counts against this message alone. For this purpose some consumers become probers: they
get nothing new, and once they have settled what they hold, they get one suspect at a time. At most half of
the consumers are probers, plus those that have nothing else to do.

A message that nobody settles must not hold up the rest. After ``patience_s`` a prober is ready for the next
suspect anyway, and what it holds is counted as stuck. A suspect that kills its consumer later than that was
not alone, so no attempt is counted. Therefore patience doubles with each such death, until no message is a
suspect.
"""

from __future__ import annotations

from mesh.work.consumers import Consumer
from mesh.work.rows import Row


class Probing:
    """The probers, and the number of messages that are suspects, wherever they are."""

    __slots__ = ("_patience_least_s", "_patience_max_s", "_patience_s", "_suspected", "probers")

    def __init__(self, patience_s: float, patience_max_s: float) -> None:
        self.probers: dict[Consumer, None] = {}
        self._suspected = 0
        self._patience_s = self._patience_least_s = patience_s
        self._patience_max_s = patience_max_s

    def accuse(self, row: Row, records: int, *, alone: bool) -> None:
        """Make suspects of these records, which were in flight when their consumer died."""
        if records & row.suspected and not alone:
            self._patience_s = min(2 * self._patience_s, self._patience_max_s)
        self._suspected += (records & ~row.suspected).bit_count()
        row.suspected |= records

    def acquit(self, row: Row, records: int) -> None:
        """End the suspicion: these records were settled, or given back by a living consumer."""
        cleared = records & row.suspected
        if cleared:
            row.suspected ^= cleared
            self._suspected -= cleared.bit_count()
            if not self._suspected:
                self._patience_s = self._patience_least_s

    def appoint(self, consumer: Consumer, now: float) -> None:
        self.probers[consumer] = None
        consumer.probing = True
        consumer.stuck = 0
        consumer.since = now

    def dismiss(self, consumer: Consumer) -> None:
        """Let a prober work as before. Other consumers are not affected."""
        if consumer.probing:
            del self.probers[consumer]
            consumer.probing = False
            consumer.suspect = None

    def wants(self, waiting: int, limit: int) -> bool:
        """True if one more prober is of use for so many waiting suspects."""
        free = sum(1 for consumer in self.probers if consumer.suspect is None)
        return free < waiting and len(self.probers) < limit

    def ready(self) -> list[Consumer]:
        """Probers that may get a suspect now."""
        return [consumer for consumer in self.probers if consumer.ready_to_probe]

    def unneeded(self, waiting: int, limit: int) -> list[Consumer]:
        """Probers without a suspect that cannot get one, or that are more than the limit."""
        excess = len(self.probers) - limit
        unneeded: list[Consumer] = []
        for consumer in self.probers:
            if consumer.suspect is None and (
                not waiting or consumer.stuck >= consumer.window or len(unneeded) < excess
            ):
                unneeded.append(consumer)
        return unneeded

    def lose_patience(self, now: float) -> None:
        """Count the messages that a prober did not settle in time as stuck."""
        for consumer in self.probers:
            if now >= consumer.since + self._patience_s:
                consumer.stuck = consumer.in_flight
                consumer.suspect = None
                consumer.since = now

    @property
    def next_due(self) -> float:
        return min((consumer.since + self._patience_s for consumer in self.probers), default=float("inf"))
