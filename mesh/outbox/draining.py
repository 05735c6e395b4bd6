"""Which block of an outbox is sent next, and which rows may be freed. Pure.

Rows are sent in the order of appending, several at a time: as many as a window holds are *under way*. A row
is freed when homes have stored it. Until then it is resent in each new session.

**Sessions.** A session speaks for one boot, and the outbox may hold blocks of several: `boot` says which one
a session should have. It changes only when nothing is under way.

**Refused topics.** A topic is refused if no home keeps it, or if one of its homes is away. The topic is
*held*: its rows are passed over, so that others go on. After a pause its oldest row is sent alone, as a
probe. If that is stored, the topic goes on behind it; if it is refused, the pause doubles, up to
`PAUSE_MAX_S`. If more than `HELD_MAX` topics would be held, all sending pauses, and begins again at the
oldest row, with one row alone.

So the messages of a topic are stored in their order. The broker knows if a block *follows* another of its
topic, and refuses it if it refused the other. One case is not covered: a home refuses a block since its disk
is nearly full, and then has room for a later one that it was given already.

**The lowest number.** Each block carries the lowest number of its boot that the publisher still waits for.
Homes forget the numbers below it, and refuse them if they come again. So it never rises above a row that
could come again: a row that is not freed *on disk*, since a power loss would bring it back, or one that was
passed over. While a topic is held it does not rise at all.

A damaged row is never sent. The outbox keeps it, and ``damaged`` counts it. The lowest number does not rise
above it, since a backup may have it whole. A large body with a damaged piece is damaged.

**Numbers that homes take for past** lie below a lowest number that they were told. If such a block lay in the
outbox at its opening, it was freed then and has come back, by a backup, a copy, or a disk that lied. So it
was stored. If it was appended since, this program has not passed its number. So another program sends under
its numbers, and the block is refused: the message is kept, and its topic held.

A block that takes long (PENDING) stays under way and keeps its part of the window. A large body is then
resent after a pause: it may wait for a piece that a home has lost and nobody else has any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mesh.outbox.records import Damaged, OutboxBlock

WINDOW_BYTES: Final = 4 << 20
WINDOW_BLOCKS: Final = 1024
"""Bytes and blocks that may be under way, and that are read ahead of it: at least one block of each."""
HELD_MAX: Final = 64
PAUSE_MIN_S: Final = 0.5
PAUSE_MAX_S: Final = 15.0
BODY_S: Final = 2.0
BODY_MAX_S: Final = 32.0
"""First and longest pause before a large body that takes long is resent."""
PIECE_MISSING: Final = "another piece of its body is damaged"
CONFLICT: Final = "another program, perhaps a copy of this one, has sent other messages under their numbers"

Range = tuple[int, int]
"""The first and the last row, or the first and the last number of messages."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask the outbox for about so many bytes behind a row, without these topics."""

    after_row: int
    bytes_max: int
    without: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """A sealed block to send. ``below``: how far the lowest number that is waited for lies below its first
    number. ``again``: an earlier session or run may have sent it. ``follows``: another block of its topic is
    under way."""

    block: bytes
    below: int
    again: bool
    follows: bool


class _Sent(NamedTuple):
    """A row that is under way, or being freed."""

    row: int
    boot: int
    first: int
    last: int
    topic: bytes
    size: int


class _Held:
    """A topic that was refused, from ``row`` on. ``probe``: boot and number of the block that is tried."""

    __slots__ = ("due", "pause_s", "probe", "reason", "row")

    def __init__(self, row: int, reason: str, now: float) -> None:
        self.row = row
        self.reason = reason
        self.pause_s = PAUSE_MIN_S
        self.due = now + PAUSE_MIN_S
        self.probe: tuple[int, int] | None = None


class Draining:
    """Decides what an outbox sends, and what it may free. ``opened_at``: the last row that lay in it when it
    was opened."""

    def __init__(self, opened_at: int, *, window_bytes: int = WINDOW_BYTES, held_max: int = HELD_MAX) -> None:
        self.window_bytes = window_bytes
        self.held_max = held_max
        self.session_boot: int | None = None
        """The boot of the current session; None if there is none."""
        self._opened_at = self._end = self._sent_to = opened_at
        self._cursor = 0
        """Rows up to this one were read or passed over."""
        self._asked: Range | None = None
        """The read in flight: the row behind which it reads, and the last row at that time."""
        self._ready: deque[OutboxBlock] = deque()
        self._ready_bytes = 0
        self._under_way: dict[int, _Sent] = {}
        self._numbers: dict[int, list[int]] = {}
        """Rows under way by their first number."""
        self._under_way_bytes = 0
        self._in_topic: dict[bytes, int] = {}
        """Numbers under way, by topic."""
        self._long: dict[int, tuple[float, float]] = {}
        """By number of a large body under way: when it is resent, and the pause after that."""
        self._freeing: dict[int, _Sent] = {}
        self._held: dict[bytes, _Held] = {}
        self._damaged: dict[int, Damaged] = {}
        self._broken: set[tuple[int, int]] = set()
        """Boots and first numbers of bodies with a damaged piece."""
        self._alone = False
        """True if at most one number may be under way, since everything was refused."""
        self._pause_s = PAUSE_MIN_S
        self._paused_to: float | None = None
        self._paused_why = ""
        self._told: dict[int, int] = {}
        """By boot, the lowest number that homes were told."""

    # --- contents

    def appended(self, rows: Sequence[OutboxBlock]) -> None:
        """Add rows that were committed."""
        for row in rows:
            follows = self._cursor == self._end and self._asked is None
            self._end = row.row
            if follows and self._reads_ahead():
                self._cursor = row.row
                self._add_ready(row)

    def wants(self) -> Read | None:
        """The next read; give its result to `found`. None if there is nothing to read, or a read is in
        flight."""
        if self._asked is not None or self._cursor >= self._end or not self._reads_ahead():
            return None
        self._asked = (self._cursor, self._end)
        passed_over = tuple(topic for topic, held in self._held.items() if held.probe is None)
        return Read(self._cursor, self.window_bytes, passed_over)

    def found(self, rows: Sequence[OutboxBlock | Damaged]) -> None:
        """Take the result of a read that `wants` asked for."""
        assert self._asked is not None
        after_row, end = self._asked
        self._asked = None
        if after_row != self._cursor:
            return  # rows were put back meanwhile
        self._cursor = rows[-1].row if rows else end
        for row in rows:
            if row.row in self._under_way or row.row in self._freeing:
                continue
            if isinstance(row, Damaged):
                self._leave_out(row)
            elif (row.boot, row.first) in self._broken:
                self._damaged[row.row] = Damaged(row.row, row.boot, row.first, row.last, PIECE_MISSING)
            else:
                self._add_ready(row)
        if self._cursor >= self._end:
            self._give_up_probes()

    @property
    def drained(self) -> bool:
        """True if all rows are freed, except damaged ones."""
        return self._cursor >= self._end and not (
            self._ready or self._under_way or self._freeing or self._held or self._asked
        )

    @property
    def damaged(self) -> int:
        """Number of blocks that were found damaged."""
        return len(self._damaged)

    def held(self) -> dict[bytes, str]:
        """Refused topics, and the reasons."""
        return {topic: held.reason for topic, held in self._held.items()}

    @property
    def paused(self) -> str:
        """Why all sending pauses; empty while it does not."""
        return self._paused_why if self._paused_to is not None or self._alone else ""

    # --- sessions

    @property
    def boot(self) -> int | None:
        """The boot that the session should have; None if any will do."""
        if self._under_way:
            return self.session_boot
        return self._ready[0].boot if self._ready else self.session_boot

    def session_began(self, boot: int) -> None:
        """Note that a session of this boot began; a previous one is over."""
        if self.session_boot is not None:
            self.session_over()
        self.session_boot = boot

    def session_over(self) -> None:
        """Note that the session ended: nothing is under way any more, and is resent in the next session."""
        self.session_boot = None
        self._goes_again(self._under_way.values())
        self._under_way.clear()
        self._numbers.clear()
        self._in_topic.clear()
        self._long.clear()
        self._under_way_bytes = 0
        self._put_back(0)

    # --- sending

    @property
    def next_due(self) -> float | None:
        """When `take`, and then `wants`, may have something to do although nothing has happened."""
        if self.session_boot is None:
            return None
        if self._paused_to is not None:
            return None if self._under_way else self._paused_to
        under_way = {row.topic for row in self._under_way.values()}
        due = [it.due for topic, it in self._held.items() if it.probe is None and topic not in under_way]
        return min([*due, *(at for at, _ in self._long.values())], default=None)

    def take(self, now: float, bytes_max: int, messages_max: int = 1 << 62) -> list[Send]:
        """The blocks to send now, in order, of at most so many bytes and messages but for the last one; they
        are under way from now on. Ask again after each event, and then look at `wants`."""
        self._end_pauses(now)
        if self._long:
            self._send_again_what_takes_long(now)
        if self.session_boot is None or self._paused_to is not None:
            return []
        rows: list[tuple[OutboxBlock, bool]] = []
        while (
            bytes_max > 0 and messages_max > 0 and self._ready and self._has_room_for(row := self._ready[0])
        ):
            if row.boot != self.session_boot:
                break
            self._ready.popleft()
            self._ready_bytes -= len(row.block)
            if not self._is_passed_over(row.topic) and self._may_go(row):
                rows.append((row, self._begin(row)))
                bytes_max -= len(row.block)
                messages_max -= row.last - row.first + 1
        if not rows:
            return []
        lowest = self._lowest(self.session_boot)
        sends = [
            Send(row.block, row.first - lowest, row.row <= self._sent_to, follows) for row, follows in rows
        ]
        self._sent_to = max(self._sent_to, rows[-1][0].row)
        return sends

    def acknowledged(self, ranges: Iterable[Range]) -> list[Range]:
        """Note that homes have stored these numbers; returns the rows to free. Call `freed` when they are."""
        return self._acknowledged(self._answered(ranges))

    def past(self, ranges: Iterable[Range], now: float) -> list[Range]:
        """Note that homes take these numbers for past; returns the rows to free, as `acknowledged`."""
        rows = self._answered(ranges)
        self._refuse([row for row in rows if row.row > self._opened_at], CONFLICT, now)
        return self._acknowledged([row for row in rows if row.row <= self._opened_at])

    def _acknowledged(self, rows: list[_Sent]) -> list[Range]:
        if not rows:
            return []
        self._alone = False
        self._pause_s = PAUSE_MIN_S
        for row in rows:
            self._freeing[row.row] = row
            held = self._held.get(row.topic)
            if held is not None and held.probe == (row.boot, row.first):
                del self._held[row.topic]
                self._put_back(held.row)
        return _merged([row.row for row in rows])

    def freed(self, ranges: Iterable[Range]) -> None:
        """Note that these rows are freed on disk."""
        for first, last in ranges:
            for row in range(first, last + 1):
                self._freeing.pop(row, None)

    def refused(self, ranges: Iterable[Range], reason: str, now: float) -> None:
        """Note that certainly no home has these numbers."""
        self._refuse(self._answered(ranges), reason, now)

    def takes_long(self, ranges: Iterable[Range], now: float) -> None:
        """Note that some homes have not confirmed yet that they keep these numbers."""
        for first, last in ranges:
            for number, rows in self._numbers.items():
                if first <= number <= last and len(rows) > 1 and number not in self._long:
                    self._long[number] = (now + BODY_S, 2 * BODY_S)

    # --- internals

    def _answered(self, ranges: Iterable[Range]) -> list[_Sent]:
        rows = [row for first, last in ranges for row in self._pop(first, last)]
        if self._long:
            for row in rows:
                self._long.pop(row.first, None)
        return rows

    def _send_again_what_takes_long(self, now: float) -> None:
        for number, (at, pause_s) in list(self._long.items()):
            if at <= now:
                self._long[number] = (now + pause_s, min(BODY_MAX_S, 2 * pause_s))
                is_sent = not self._ready or self._ready[0].first != number
                if is_sent and number in self._numbers:
                    sent = self._pop(number, number)
                    self._goes_again(sent)
                    self._put_back(sent[0].row - 1)

    def _refuse(self, rows: Iterable[_Sent], reason: str, now: float) -> None:
        for row in rows:
            if self._paused_to is None:
                self._hold(row, reason, now)
            else:  # everything begins anew; a read in flight left out this row, as it was under way
                self._put_back(row.row - 1)
        if len(self._held) > self.held_max:
            self._held.clear()
            self._alone = True
            self._paused_why = reason
            self._paused_to = now + self._pause_s
            self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s)
            self._withdraw_partial_body()
            self._put_back(0)

    def _withdraw_partial_body(self) -> None:
        """Take back the body that was sent last if some of its pieces may still be unsent: nobody answers it
        before it is whole."""
        if self._under_way:
            last = next(reversed(self._under_way.values()))
            if self._cursor < self._end or any(row.first == last.first for row in self._ready):
                self._pop(last.first, last.first)

    def _reads_ahead(self) -> bool:
        return self._ready_bytes < self.window_bytes and len(self._ready) < WINDOW_BLOCKS

    def _leave_out(self, row: Damaged) -> None:
        self._damaged[row.row] = row
        self._broken.add((row.boot, row.first))
        pieces = [it for it in self._ready if (it.boot, it.first) == (row.boot, row.first)]
        for piece in pieces:
            self._ready.remove(piece)
            self._ready_bytes -= len(piece.block)
        sent = self._pop(row.first, row.first) if row.boot == self.session_boot else []
        others: list[OutboxBlock | _Sent] = [*pieces, *sent]
        for it in others:
            self._damaged[it.row] = Damaged(it.row, it.boot, it.first, it.last, PIECE_MISSING)

    def _add_ready(self, row: OutboxBlock) -> None:
        self._ready.append(row)
        self._ready_bytes += len(row.block)

    def _put_back(self, row: int) -> None:
        """Read again from behind a row."""
        self._cursor = min(self._cursor, row)
        while self._ready and self._ready[-1].row > row:
            self._ready_bytes -= len(self._ready.pop().block)
        if self._asked is not None:  # its result is void
            self._asked = (-1, self._end)

    def _is_passed_over(self, topic: bytes) -> bool:
        held = self._held.get(topic)
        return held is not None and held.probe is None

    def _has_room_for(self, row: OutboxBlock) -> bool:
        if not self._under_way or row.first in self._numbers:  # pieces of a body are stored with the last one
            return True
        if self._alone:
            return False
        fits = self._under_way_bytes + len(row.block) <= self.window_bytes
        return fits and len(self._under_way) < WINDOW_BLOCKS

    def _may_go(self, row: OutboxBlock) -> bool:
        """True if a block may be sent now. On a topic that is being probed only the probe may; the first
        block that comes is the probe."""
        held = self._held.get(row.topic)
        if held is None:
            return True
        if held.probe == _PROBE:
            held.probe = (row.boot, row.first)
        return held.probe == (row.boot, row.first)

    def _begin(self, row: OutboxBlock) -> bool:
        """Note that a block is under way; True if others of its topic are."""
        others = self._in_topic.get(row.topic, 0)
        if row.first in self._numbers:
            others -= 1
        else:
            self._in_topic[row.topic] = others + 1
        size = len(row.block)
        self._under_way[row.row] = _Sent(row.row, row.boot, row.first, row.last, row.topic, size)
        self._numbers.setdefault(row.first, []).append(row.row)
        self._under_way_bytes += size
        return others > 0

    def _pop(self, first: int, last: int) -> list[_Sent]:
        """Take out the rows under way that have these numbers; nearly always they begin at the first
        number."""
        numbers = self._numbers
        popped: list[_Sent] = []
        while first <= last:
            if first not in numbers:
                first = min((number for number in numbers if first <= number <= last), default=last + 1)
                continue
            for row in numbers.pop(first):
                popped.append(self._under_way.pop(row))
                self._under_way_bytes -= popped[-1].size
            topic = popped[-1].topic
            self._in_topic[topic] -= 1
            if not self._in_topic[topic]:
                del self._in_topic[topic]
            first = popped[-1].last + 1
        return popped

    def _hold(self, row: _Sent, reason: str, now: float) -> None:
        held = self._held.get(row.topic)
        if held is None:
            self._held[row.topic] = _Held(row.row - 1, reason, now)
            return
        if row.row - 1 <= held.row or held.probe is not None:
            held.reason = reason
        held.row = min(held.row, row.row - 1)
        if held.probe is not None:
            held.probe = None
            held.pause_s = min(PAUSE_MAX_S, 2 * held.pause_s)
            held.due = now + held.pause_s

    def _goes_again(self, sent: Iterable[_Sent]) -> None:
        """Have rows resent that were sent and not answered. On a topic that became held since, they go before
        the refused block."""
        for row in sent:
            held = self._held.get(row.topic)
            if held is not None:
                held.row = min(held.row, row.row - 1)

    def _end_pauses(self, now: float) -> None:
        if self._paused_to is not None:
            if now < self._paused_to or self._under_way:
                return
            self._paused_to = None
        due = [topic for topic, held in self._held.items() if held.probe is None and held.due <= now]
        if due:
            under_way = {row.topic for row in self._under_way.values()}
            for topic in due:
                if topic not in under_way:  # blocks sent behind the refused one are answered first
                    held = self._held[topic]
                    held.probe = _PROBE
                    self._put_back(held.row)

    def _give_up_probes(self) -> None:
        """Give up probes once everything is read: the refused block of such a topic is damaged by now."""
        topics = {row.topic for row in self._ready}
        for topic in [topic for topic, held in self._held.items() if held.probe == _PROBE]:
            if topic not in topics:
                del self._held[topic]

    def _lowest(self, boot: int) -> int:
        """The lowest number of a boot that homes may be told."""
        if self._held or self._paused_to is not None:
            return self._told.get(boot, 0)
        unfreed: list[_Sent | Damaged] = [
            *self._under_way.values(),
            *self._freeing.values(),
            *self._damaged.values(),
        ]
        lowest = self._told[boot] = min(row.first for row in unfreed if row.boot == boot)
        return lowest


_PROBE: Final = (-1, -1)
"""The probe of a topic whose oldest row has not been read again yet."""


def _merged(rows: list[int]) -> list[Range]:
    """Merge rows into ranges."""
    ranges: list[Range] = []
    for row in sorted(rows):
        if ranges and ranges[-1][1] + 1 == row:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return ranges
