"""A heartbeat over a graph of bounded degree: a workload for the runner, and no more than that.

This is *not* Mangrove's membership, which is a full mesh today and has its machine in `mesh.membership`. It
has the traffic that the overlay to come is meant to have: every broker surveys a handful of neighbours each
period, they answer at once, questions and answers carry a digest of the table, and what changes is flooded.
So what it says is how fast the runner is, and how it holds up at ten thousand brokers.

Rules: a neighbour that misses one round is suspected, one that misses three in a row is dead; a round that
nobody answers accuses nobody. A record is (broker, incarnation, rank); the greater (incarnation, rank) wins.
Who hears ill of itself answers with a greater incarnation. A table holds only what differs from "alive, as in
the beginning", since ten thousand tables of ten thousand rows would not fit. Digests that differ in two
rounds running cause both tables to be sent.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from simulations.cores.field import Field, Message, Place, Wire
from simulations.scheduler import nanoseconds

SURVEY: Final = 0
ANSWER: Final = 1
NEWS: Final = 2
TABLE: Final = 3

ALIVE: Final = 0
SUSPECT: Final = 1
DEAD: Final = 2
NAMES: Final = ("alive", "suspect", "dead")
MISSES_MAX: Final = 3

Record = tuple[int, int, int]
"""Broker, incarnation, rank."""
_AT_FIRST: Final = (0, ALIVE)


class Gossip:
    """One broker's life; see the module. Messages are (kind, round, digest, records)."""

    __slots__ = (
        "_field",
        "_peers",
        "_place",
        "answers",
        "differs",
        "digest",
        "due_ns",
        "incarnation",
        "misses",
        "next_round_ns",
        "round",
        "table",
        "waiting",
    )

    def __init__(self, field: Field, place: Place, peers: list[Wire], rng: random.Random) -> None:
        self._field = field
        self._place = place
        self._peers = peers
        self.incarnation = 0
        self.round = 0
        self.digest = 0
        self.table: dict[int, tuple[int, int]] = {}
        self.misses: dict[int, int] = {}
        self.differs: dict[int, int] = {}
        self.waiting = False
        self.answers = 0
        for wire in peers:
            wire.back.mark = 0  # of an earlier life
        period_ns = nanoseconds(field.options.period_s)
        self.next_round_ns = self.due_ns = field.now_ns + int(period_ns * rng.random())

    sparse: ClassVar[bool] = True

    def view(self) -> dict[str, str]:
        return {f"broker-{number}": NAMES[rank] for number, (_, rank) in self.table.items()}

    # --- time

    def tick(self, now_ns: int) -> None:
        if self.waiting:
            self._judge()
            self.due_ns = self.next_round_ns
        else:
            self._begin_round(now_ns)

    def _begin_round(self, now_ns: int) -> None:
        options = self._field.options
        self.round += 1
        self.waiting = True
        self.answers = 0
        self.due_ns = now_ns + nanoseconds(options.deadline_s)
        self.next_round_ns = max(self.next_round_ns + nanoseconds(options.period_s), self.due_ns)
        survey = (SURVEY, self.round, self.digest, ())
        send = self._field.send
        for wire in self._peers:
            send(wire, survey)

    def _judge(self) -> None:
        self.waiting = False
        if self.answers == len(self._peers) or (not self.answers and len(self._peers) > 1):
            return
        missing = [wire.target.number for wire in self._peers if wire.back.mark != self.round]
        for number in missing:
            misses = self.misses[number] = self.misses.get(number, 0) + 1
            incarnation, rank = self.table.get(number, _AT_FIRST)
            accused = DEAD if misses >= MISSES_MAX else SUSPECT
            if rank < accused:
                self._learn((number, incarnation, accused), None, f"missed {misses} in a row")

    # --- messages

    def receive(self, wire: Wire, message: Message, now_ns: int) -> Message | None:
        kind, round, digest, records = message
        for record in records:
            self._hear(record, wire)
        if kind == SURVEY:
            if digest != self.digest:
                self._compare(wire, digest)
            return (ANSWER, round, self.digest, ())
        if kind == ANSWER:
            if round == self.round and self.waiting:
                wire.mark = round
                self.answers += 1
                if self.misses:
                    self.misses.pop(wire.source.number, None)
            if digest != self.digest:
                self._compare(wire, digest)
        return None

    def lost(self, wire: Wire, now_ns: int) -> None:
        """A reset says nothing here: only rounds do."""

    def _compare(self, wire: Wire, digest: int) -> None:
        """News may be on its way; a difference that stays is worth an exchange."""
        peer = wire.source.number
        both = digest ^ self.digest
        if self.differs.get(peer) != both:
            self.differs[peer] = both
            return
        del self.differs[peer]
        me = (self._place.number, self.incarnation, ALIVE)
        records = (me, *((number, *known) for number, known in self.table.items()))
        self._field.send(wire.back, (TABLE, 0, self.digest, records))

    def _hear(self, record: Record, wire: Wire) -> None:
        number, incarnation, rank = record
        if number != self._place.number:
            self._learn(record, wire, "reported")
        elif rank != ALIVE and incarnation >= self.incarnation:
            self.incarnation = incarnation + 1
            self._tell((number, self.incarnation, ALIVE), None)
            self._keep(number, (0, ALIVE), (self.incarnation, ALIVE))

    def _learn(self, record: Record, wire: Wire | None, reason: str) -> None:
        number, incarnation, rank = record
        known = self.table.get(number, _AT_FIRST)
        if (incarnation, rank) <= known:
            return
        self._keep(number, known, (incarnation, rank))
        if rank == ALIVE:
            self.misses.pop(number, None)
        if rank != known[1]:
            name = f"broker-{number}"
            self._field.changed(self._place.name, name, NAMES[known[1]], NAMES[rank], reason)
        self._tell(record, wire)

    def _keep(self, number: int, before: tuple[int, int], after: tuple[int, int]) -> None:
        if number in self.table:
            self.digest ^= _mixed(number, self.table[number])
        self.table[number] = after
        self.digest ^= _mixed(number, after)

    def _tell(self, record: Record, wire: Wire | None) -> None:
        source = None if wire is None else wire.source
        news = (NEWS, 0, self.digest, (record,))
        for peer in self._peers:
            if peer.target is not source:
                self._field.send(peer, news)


def _mixed(number: int, known: tuple[int, int]) -> int:
    """Well-mixed bits of a record (splitmix64), the same in every process."""
    bits = number * 0x9E3779B97F4A7C15 + known[0] * 0xD1B54A32D192ED03 + known[1] * 0x8CB92BA72F3D8DD7
    bits &= 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return bits ^ bits >> 31
