"""A heartbeat over a graph of bounded degree: a workload for the runner, and no more than that.

This is *not* Mangrove's membership, which is a full mesh today and has its machine in
`mesh.cluster.membership`. It
has the traffic that the overlay to come is meant to have: every broker surveys a handful of neighbours each
period, they answer at once, questions and answers carry a digest of the table, and what changes is flooded.
So what it says is how fast the runner is, and how it holds up at ten thousand brokers.

**Rules.** A neighbour that misses one round is suspected, one that misses three in a row is dead; a round
that nobody answers accuses nobody. One that others call alive again is not judged for ten rounds, or until it
answers: one bad link must not kill. A record is (place, version, bits): a version is the incarnation times
four, and the rank, so the greater one wins; the bits go into the digest. Who hears ill of itself answers with
a greater incarnation. Digests that differ in two messages running by the same bits cause the table to be
sent.

**What keeps a split of thousands finite.** One half then finds all of the other dead, and all are alive again
at its end. News is gathered for a moment (`NEWS_PAUSE_NS`) and goes as one message, and none of it goes to
those who are held for dead: a link that is cut would hold it all for after the cut, when a table says the
same at once.

**Memory.** What every message needs is in lists over all brokers. A table holds only what differs from
"alive, as in the beginning", since ten thousand tables of ten thousand rows would not fit; records are
shared.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from typing import ClassVar, Final

from simulations.cores.core import Message
from simulations.cores.field import Field, PlaceState
from simulations.kernel.scheduler import MILLISECOND, nanoseconds

SURVEY: Final = 0
ANSWER: Final = 1
NEWS: Final = 2
TABLE: Final = 3

ALIVE: Final = 0
SUSPECT: Final = 1
DEAD: Final = 2
NAMES: Final = ("alive", "suspect", "dead")
MISSES_MAX: Final = 3
UNJUDGED_ROUNDS: Final = 10
NEWS_PAUSE_NS: Final = 30 * MILLISECOND

Record = tuple[int, int, int]
"""Place, version, bits."""
_NO_ROUND: Final = 0


class Gossip:
    """All brokers; see the module. Messages are (kind, round, digest, records)."""

    sparse: ClassVar[bool] = True

    def __init__(self, field: Field) -> None:
        self._field = field
        self._targets = field.wires.targets
        self._random = random.Random(f"{field.seed}:phases").random
        self._period_ns = nanoseconds(field.options.period_s)
        self._deadline_ns = nanoseconds(field.options.deadline_s)
        places = len(field.names)
        self._wires = [array("i", wires.values()) for wires in field.wires.of]
        """To the neighbours, by place. So is all that follows, but where it says otherwise."""
        self._round = [0] * places
        self._asking = [_NO_ROUND] * places
        """The round whose answers are waited for."""
        self._answered: list[list[int]] = [[] for _ in range(places)]
        """The wires by which they came."""
        self._judging = bytearray(places)
        """Whether it is called next to judge a round, and not to begin one."""
        self._next_round_ns = array("q", [0]) * places
        self._digests = [0] * places
        self._tables: list[dict[int, Record]] = [{} for _ in range(places)]
        self._news: list[dict[int, Record]] = [{} for _ in range(places)]
        """To be told, by whom it is about."""
        self._misses: dict[int, int] = {}
        """Rounds running without an answer, by the wire it would come by; below 0 for who is not judged."""
        self._differs: dict[int, int] = {}
        """How digests differed at the last message that came by a wire."""
        self._table_sent_ns: dict[int, int] = {}
        """When a table last went back by a wire."""

    def begin(self, place: int, now_ns: int) -> None:
        self._round[place], self._asking[place], self._judging[place] = 0, _NO_ROUND, False
        self._answered[place] = []
        self._digests[place] = 0
        self._tables[place], self._news[place] = {}, {}
        for wire in self._wires[place]:
            self._misses.pop(wire ^ 1, None)
            self._differs.pop(wire ^ 1, None)
            self._table_sent_ns.pop(wire ^ 1, None)
        self._next_round_ns[place] = now_ns + int(self._period_ns * self._random())
        self._field.wake(place, self._next_round_ns[place])

    def view(self, place: int) -> dict[str, str]:
        names = self._field.names
        return {names[record[0]]: NAMES[_rank(record[1])] for record in self._tables[place].values()}

    # --- rounds

    def tick(self, place: int, now_ns: int) -> None:
        if self._judging[place]:
            self._judging[place] = False
            self._field.wake(place, self._next_round_ns[place])
            self._judge(place)
        else:
            self._judging[place] = True
            judge_ns = now_ns + self._deadline_ns
            self._field.wake(place, judge_ns)
            self._next_round_ns[place] = max(self._next_round_ns[place] + self._period_ns, judge_ns)
            self._begin_round(place)

    def _begin_round(self, place: int) -> None:
        round = self._round[place] + 1
        self._round[place] = self._asking[place] = round
        self._answered[place] = []
        survey = (SURVEY, round, self._digests[place], ())
        send = self._field.send
        for wire in self._wires[place]:
            send(wire, survey)

    def _judge(self, place: int) -> None:
        self._asking[place] = _NO_ROUND
        answered, wires = self._answered[place], self._wires[place]
        if len(answered) == len(wires) or (not answered and len(wires) > 1):
            return
        for wire in wires:
            if wire ^ 1 not in answered:
                self._missed(place, wire)

    def _missed(self, place: int, wire: int) -> None:
        misses = self._misses[wire ^ 1] = self._misses.get(wire ^ 1, 0) + 1
        if misses <= 0:
            return
        neighbour = self._targets[wire]
        known = self._version(place, neighbour)
        accused = DEAD if misses >= MISSES_MAX else SUSPECT
        if _rank(known) < accused:
            self._learn(place, _record(neighbour, _incarnation(known), accused), f"missed {misses} in a row")

    # --- messages

    def receive(self, wire: int, message: Message, now_ns: int) -> Message | None:
        kind, round, digest, records = message
        place = self._targets[wire]
        if records:
            self._hear(place, records)
            return None
        if digest != self._digests[place]:
            self._compare(wire, place, digest, now_ns)
        if kind == SURVEY:
            return (ANSWER, round, self._digests[place], ())
        if round == self._asking[place]:
            self._answered[place].append(wire)
            if self._misses:
                self._misses.pop(wire, None)
        return None

    def lost(self, wire: int, now_ns: int) -> None:
        """A reset says nothing here: only rounds do."""

    def _compare(self, wire: int, place: int, digest: int, now_ns: int) -> None:
        """News may be on its way; a difference that stays is worth a table, once a period."""
        both = digest ^ self._digests[place]
        if self._differs.get(wire) != both:
            self._differs[wire] = both
            return
        if now_ns - self._table_sent_ns.get(wire, -self._period_ns) < self._period_ns:
            return
        del self._differs[wire]
        self._table_sent_ns[wire] = now_ns
        records = {place: _record(place, 0, ALIVE), **self._tables[place]}
        self._field.send(wire ^ 1, (TABLE, 0, 0, tuple(records.values())))

    # --- the table

    def _version(self, place: int, other: int) -> int:
        known = self._tables[place].get(other)
        return 0 if known is None else known[1]

    def _hear(self, place: int, records: Iterable[Record]) -> None:
        known = self._tables[place].get
        for record in records:
            other, version, _ = record
            held = known(other)
            if held is not record and version > (0 if held is None else held[1]):
                if other == place:
                    self._hear_of_itself(place, record)
                else:
                    self._learn(place, record, "reported")

    def _hear_of_itself(self, place: int, record: Record) -> None:
        """What others hold is right if it is of an earlier life, and answered if it is ill."""
        if _rank(record[1]) != ALIVE:
            record = _record(place, _incarnation(record[1]) + 1, ALIVE)
            self._tell(place, record)
        self._keep(place, record)

    def _learn(self, place: int, record: Record, reason: str) -> None:
        other, version, _ = record
        before, after = _rank(self._version(place, other)), _rank(version)
        self._keep(place, record)
        if after == ALIVE and self._misses:
            wire = self._field.wires.of[place].get(other)
            if wire is not None and wire ^ 1 in self._misses:
                self._misses[wire ^ 1] = -UNJUDGED_ROUNDS
        if after != before:
            name = self._field.names[other]
            self._field.changed(place, name, NAMES[before], NAMES[after], reason)
        self._tell(place, record)

    def _keep(self, place: int, record: Record) -> None:
        table = self._tables[place]
        before = table.get(record[0])
        self._digests[place] ^= record[2] if before is None else record[2] ^ before[2]
        table[record[0]] = record

    # --- news

    def _tell(self, place: int, record: Record) -> None:
        news = self._news[place]
        if not news:
            self._field.after(NEWS_PAUSE_NS, self._send_news, (place, news))
        news[record[0]] = record

    def _send_news(self, what: tuple[int, dict[int, Record]]) -> None:
        place, news = what
        state = self._field.states[place]
        if self._news[place] is not news or state is PlaceState.DOWN:
            return  # of an earlier life
        if state is PlaceState.PAUSED:
            self._field.after(NEWS_PAUSE_NS, self._send_news, what)
            return
        self._news[place] = {}
        message = (NEWS, 0, 0, tuple(news.values()))
        for wire in self._wires[place]:
            if _rank(self._version(place, self._targets[wire])) != DEAD:
                self._field.send(wire, message)


def _rank(version: int) -> int:
    return version & 3


def _incarnation(version: int) -> int:
    return version >> 2


def _record(place: int, incarnation: int, rank: int) -> Record:
    """With well-mixed bits (splitmix64), the same in every process; none for what all hold in the beginning,
    so that an empty table and one that says so have the same digest."""
    version = incarnation << 2 | rank
    if not version:
        return (place, 0, 0)
    bits = place * 0x9E3779B97F4A7C15 + version * 0xD1B54A32D192ED03 & 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return (place, version, bits ^ bits >> 31)
