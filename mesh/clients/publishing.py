"""The publisher's end: messages gather by topic, are sealed into blocks, and wait to be acknowledged. Pure.

Messages gather (`forming`) until `flush` seals them into blocks. Whoever adds lowers ``room``, the bytes
that may still be gathered: at zero or below a flush is due, and while there is no credit, or no session,
it stays there and one waits. A new topic adds to ``room``, or a thousand topics in turn would make blocks
of one message each.

Sealing stops where credit stops; the rest stays gathered. Order is per topic within a level. Sequence numbers
are given at sealing and never change: a block of level accepted is kept until its ACK and sent again as it
is, marked ``AGAIN``, when a new session begins.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from mesh.errors import MeshError, NotAccepted, Unknown
from mesh.topics import check_public_topic
from mesh.wire import blocks
from mesh.wire.session_frames import AGAIN, Receipt, SendCredit, data_head

TURN_TOPIC: Final = 6144
"""Bytes that each topic adds to what is gathered before a flush is due (a flat budget would seal one-message
blocks at 1 000 topics)."""
MESSAGE_COST: Final = 8
"""Bytes that each message counts for beside its body, so that empty ones have a bound too."""
TURN: Final = blocks.SPLIT - TURN_TOPIC
"""Bytes gathered before a flush is due, without those: one topic alone fills one block exactly."""
TURN_MAX: Final = 8 << 20
TOPICS_MAX: Final = 65536
"""Topics whose encoding is remembered."""
# backtrace, DATA head, block head up to the sequence number; publisher, boot and topic are the cached suffix
_FRAME: Final = struct.Struct(">4sBBBBBBHIQBIBBBBIIQ")
_frame: Final = _FRAME.pack


class Waitable:
    """Something a caller may wait for; ``waiters`` are called in order, once each, by the shell. A dict, as
    thousands may give up in any order."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Callable[[], None], None] = {}

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter()


class Ticket(Waitable):
    """The acknowledgement of one batch: done when every block of it is accepted, or one of it has failed.

    Several callers may share a batch of several blocks, so each asks for the `receipt` of its own messages.
    """

    __slots__ = (
        "_accepted",
        "_refused",
        "absent",
        "broker",
        "cancelled",
        "done",
        "error",
        "first",
        "pending",
        "sealed_to",
        "sealed_whole",
        "waited",
    )

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        """Sequence number of the first message; 0 until it is sealed."""
        self.sealed_to = 0
        """Sequence number of the last message that is sealed."""
        self.sealed_whole = False
        """True if that is all of the batch."""
        self.pending = 0
        self.waited = 0
        """Messages whose callers have not given up."""
        self.done = False
        self.error: MeshError | None = None
        self.broker = ""
        self.absent: tuple[str, ...] = ()
        """Whom any of its acknowledgements named."""
        self.cancelled: list[int] = []
        """Places in the batch of messages taken back; ascending once it is sealed."""
        self._accepted: tuple[tuple[int, int], ...] = ()
        self._refused: tuple[tuple[int, int], ...] = ()

    @property
    def sealed(self) -> bool:
        return self.first > 0

    def accept(self, first: int, last: int) -> None:
        """A block of it was accepted."""
        self._accepted += ((first, last),)
        self.pending -= 1

    def refuse(self, first: int, last: int, error: NotAccepted) -> None:
        """A block of it was certainly not accepted. What is not sealed yet will not be sent."""
        self._refused += ((first, last),)
        self.pending -= 1
        self.fail(error)

    def doubt(self, error: Unknown) -> None:
        """A block of it was refused, of which an earlier copy may have been accepted."""
        self.pending -= 1
        self.fail(error)

    def fail(self, error: MeshError) -> None:
        if not self.done:
            self.done = True
            self.error = error

    def number(self, index: int) -> int:
        """Sequence number of the ``index``-th message, once the first is sealed."""
        return self.first + index - bisect_left(self.cancelled, index)

    def receipt(self, index: int, count: int = 1) -> Receipt:
        """The receipt of ``count`` messages from the ``index``-th on. Raises what else became of them."""
        first = self.number(index)
        last = first + count - 1
        if self.error is not None and _shared(self._accepted, first, last) < count:
            sealed = ((self.first, self.sealed_to),) if self.sealed else ()
            sent = _shared(sealed, first, last) - _shared(self._refused, first, last)
            if isinstance(self.error, NotAccepted) and sent:
                raise Unknown(f"some of the messages may have been accepted: {self.error}")
            if isinstance(self.error, Unknown) and not sent:
                raise NotAccepted(f"none of the messages was accepted, others may have been: {self.error}")
            raise self.error
        return Receipt("accepted", self.broker, first, count, self.absent)


def _shared(ranges: Sequence[tuple[int, int]], first: int, last: int) -> int:
    """How many numbers from ``first`` to ``last`` are in these ranges, which do not overlap."""
    return sum(max(0, min(last, end) - max(first, begin) + 1) for begin, end in ranges)


class Batch:
    """Messages of one topic and level that are not sealed yet."""

    __slots__ = ("bodies", "headers", "level", "ticket", "topic")

    def __init__(self, topic: str, level: int, bodies: list[bytes]) -> None:
        self.topic = topic
        self.level = level
        self.bodies = bodies
        self.headers: list[bytes] | None = None
        self.ticket: Ticket | None = None

    def add_headers(self, headers: bytes) -> None:
        """Headers for the body just added (and none for those before it, if these are the first)."""
        if self.headers is None:
            if not headers:
                return
            self.headers = [b""] * (len(self.bodies) - 1)
        self.headers.append(headers)


class _Unacked:
    __slots__ = ("again", "blocks", "count", "first", "last", "ticket")

    def __init__(self, blocks: list[bytes], count: int, first: int, last: int, ticket: Ticket) -> None:
        self.blocks = blocks
        self.count = count  # messages, as credit counts them, of each block
        self.first = first
        self.last = last
        self.ticket = ticket
        self.again = False
        """True if it was sent in an earlier session, whose broker may have accepted it."""


class Publishing:
    """What one client publishes: (``publisher``, ``boot``) is in its blocks, ``prefix`` the backtrace of its
    frames."""

    # what every message touches; on an object of so many attributes the others are looked up slower
    __slots__ = ("__dict__", "forming", "room")

    def __init__(self, *, publisher: int, boot: int, prefix: bytes) -> None:
        self.publisher = publisher
        self.boot = boot
        self.prefix = prefix
        self.broker = ""
        """Name of the broker of the current, or last, session."""
        self.settled = False
        """True while there is a session."""
        self.credit = SendCredit()
        # gathered and not sealed; read and written directly by a shell's `publish`
        self.forming: dict[str, list[bytes]] = {}
        self.room = 0
        self._kept = TURN
        self.dropped = 0
        """Messages that were not taken for want of credit."""
        self._accepting: dict[str, Batch] = {}
        self._backlog: deque[Batch] = deque()
        self._again: deque[tuple[bytes, int]] = deque()
        self._unacked: dict[int, _Unacked] = {}
        self._suffixes: dict[str, bytes] = {}
        self._suffixes_max = TOPICS_MAX
        self._sequence = 0
        self._frames: list[bytes] = []
        self._published = 0
        self._blocks_out = 0

    @property
    def gathered(self) -> bool:
        """True while messages wait to be sealed or sent."""
        return bool(self.forming or self._accepting or self._backlog or self._again)

    @property
    def blocked(self) -> bool:
        """True while nothing more may be sent."""
        return not self.credit.open

    def open_topic(self, topic: str) -> list[bytes]:
        """The list that gathers a topic's messages of level sent. Raises `TopicError`."""
        if type(topic) is not str or topic not in self._suffixes:
            self._remember(topic)
        bodies = self.forming[topic] = []
        if self.room < TURN_MAX:
            self.room += TURN_TOPIC
        return bodies

    def add(self, topic: str, body: bytes, level: int, headers: bytes) -> tuple[Ticket | None, int]:
        """One message of any level, with headers; (ticket, index in its batch). Raises `TopicError`."""
        return self.add_many(topic, [body], level, headers)

    def add_many(
        self, topic: str, bodies: list[bytes], level: int, headers: bytes = b""
    ) -> tuple[Ticket | None, int]:
        """Messages of one topic; the index is that of the first. ``headers`` belong to a single message
        only."""
        if type(topic) is not str or topic not in self._suffixes:
            self._remember(topic)
        self.room -= sum(map(len, bodies)) + MESSAGE_COST * len(bodies)
        if level == blocks.SENT:
            if headers:
                self._add_headed(topic, bodies[0], headers)
            else:
                gathered = self.forming.get(topic)
                if gathered is None:
                    gathered = self.open_topic(topic)
                gathered += bodies
            return None, 0
        batch = self._accepting.get(topic)
        if batch is None:
            batch = self._accepting[topic] = Batch(topic, level, [])
            batch.ticket = Ticket()
            if self.room < TURN_MAX:
                self.room += TURN_TOPIC
        index = len(batch.bodies)
        batch.bodies += bodies
        if headers or batch.headers is not None:
            batch.add_headers(headers)
            if batch.headers is not None:
                batch.headers += [b""] * (len(batch.bodies) - len(batch.headers))
        assert batch.ticket is not None
        batch.ticket.waited += len(bodies)
        return batch.ticket, index

    def cancel(self, ticket: Ticket, index: int, count: int = 1) -> bool:
        """A caller gives up: take its messages back if they are not sealed yet; False when some are under
        way. With its last caller a batch ends: what is not sealed of it never is, and nothing is sent
        again."""
        if ticket.done:
            return False
        ticket.waited -= count
        if not ticket.sealed:
            ticket.cancelled += range(index, index + count)
            return True
        if ticket.waited > 0:
            return False
        ticket.fail(Unknown("nobody waits for the acknowledgement any more"))
        if self._backlog and self._backlog[0].ticket is ticket:  # a rest is first in line
            self._backlog.popleft()
        return ticket.number(index) > ticket.sealed_to

    def _remember(self, topic: str) -> bytes:
        encoded = check_public_topic(topic)
        if len(self._suffixes) >= self._suffixes_max:
            kept = self._suffixes  # topics that are being gathered must stay
            self._suffixes = {name: kept[name] for name in self._gathering() if name in kept}
            self._suffixes_max = max(TOPICS_MAX, 2 * len(self._suffixes))  # or each new one would look at all
        suffix = self._suffixes[topic] = blocks.suffix_of(encoded, self.publisher, self.boot)
        return suffix

    def _identify(self, publisher: int) -> list[Waitable]:
        """Publish under this id from now on. What is not acknowledged under another one would not be
        recognised as sent before: it is not sent again, and may have been accepted."""
        if publisher == self.publisher:
            return []
        self.publisher = publisher
        for topic, suffix in self._suffixes.items():
            self._suffixes[topic] = blocks.suffix_of(suffix[16:], publisher, self.boot)
        return self._fail_unacked("a broker without publisher secrets took over before it was acknowledged")

    def _fail_unacked(self, why: str) -> list[Waitable]:
        """What is under way ends as `Unknown`."""
        woken: list[Waitable] = []
        for entry in self._unacked.values():
            if not entry.ticket.done:
                entry.ticket.fail(Unknown(why))
                woken.append(entry.ticket)
        self._unacked.clear()
        return woken

    def _gathering(self) -> list[str]:
        return [*self.forming, *self._accepting, *(batch.topic for batch in self._backlog)]

    def _add_headed(self, topic: str, body: bytes, headers: bytes) -> None:
        """Level sent with headers: behind what is gathered, so that a topic's order holds."""
        self._gather_backlog()
        last = self._backlog[-1] if self._backlog else None
        if last is None or last.topic != topic or last.level != blocks.SENT or last.headers is None:
            last = Batch(topic, blocks.SENT, [])
            last.headers = []
            self._backlog.append(last)
        last.bodies.append(body)
        assert last.headers is not None
        last.headers.append(headers)

    def _gather_backlog(self) -> None:
        """Everything gathered, in a line."""
        forming, self.forming = self.forming, {}
        for topic, bodies in forming.items():
            self._backlog.append(Batch(topic, blocks.SENT, bodies))
        accepting, self._accepting = self._accepting, {}
        self._backlog.extend(accepting.values())

    def flush(self) -> None:
        """Seal and queue what is gathered, as far as credit reaches."""
        credit = self.credit
        if not self.settled or credit.messages <= 0 or credit.bytes <= 0:
            self.shut()
            return
        if self._again:
            self._send_again()
        if self._backlog or self._accepting:
            self._gather_backlog()
            self._flush_backlog()
        elif self.forming:
            self._flush_forming()
        if credit.messages > 0 and credit.bytes > 0:
            self.room = min(TURN, credit.messages * MESSAGE_COST)
            return
        self.room = 0
        self._kept = TURN + TURN_TOPIC * len(self.forming)
        for bodies in self.forming.values():
            self._kept -= sum(map(len, bodies)) + MESSAGE_COST * len(bodies)

    def shut(self) -> None:
        """Nothing more may be gathered until `resume`."""
        if self.room > 0:
            self._kept = self.room
            self.room = 0

    def resume(self) -> None:
        """There is credit again. What is gathered is not sealed at once, unless it fills a turn: blocks
        grow while credit is short, and whoever drives this flushes at the end of its turn."""
        if self._kept <= 0 or self._again:
            self.flush()
        else:
            self.room = min(self._kept, max(TURN_TOPIC, self.credit.messages * MESSAGE_COST))

    def _flush_forming(self) -> None:
        """The fast way, for level sent without headers: one Struct call, one join a block."""
        forming, self.forming = self.forming, {}
        suffixes, prefix, credit = self._suffixes, self.prefix, self.credit
        add, join = self._frames.append, b"".join
        sequence = self._sequence + 1
        blocks_out = published = 0
        for topic, bodies in forming.items():
            count = len(bodies)
            if not count:
                continue
            if credit.messages <= 0 or credit.bytes <= 0:
                self.forming[topic] = bodies
                continue
            size = len(bodies[0])
            suffix = suffixes[topic]
            if count == 1:
                total = size
                equal = size <= blocks.SPLIT
            else:
                sizes = list(map(len, bodies))
                total = size * count
                equal = sizes.count(size) == count and total <= blocks.SPLIT and count <= blocks.COUNT_MAX
            if not equal:
                self._sequence = sequence - 1
                self._seal_batch(Batch(topic, blocks.SENT, bodies))  # counts by itself
                sequence = self._sequence + 1
                continue
            whole = total + len(suffix) + 20
            chars = len(suffix) - 16
            head = _frame(
                prefix, 0x93, 5, 0xC4, 16, 0, 0, 0, 0, 0, 0xC6, whole, 1, 1, 0, chars, count, size, sequence
            )  # fmt: skip
            add(join((head, suffix, *bodies)))
            sequence += count
            blocks_out += 1
            published += count
            credit.messages -= count
            credit.bytes -= whole
        self._published += published
        self._sequence = sequence - 1
        self._blocks_out += blocks_out

    def _flush_backlog(self) -> None:
        while self._backlog and self.credit.open:
            self._seal_batch(self._backlog.popleft())

    def _seal_batch(self, batch: Batch) -> None:
        """Any batch: cut, sealed, queued. What credit does not reach goes to the front of the backlog."""
        ticket = batch.ticket
        if ticket is not None and ticket.done:
            return  # its callers were told that it failed
        if ticket is not None and not ticket.sealed:
            if ticket.cancelled:
                self._leave_out(batch, ticket)
            ticket.first = self._sequence + 1
            if not batch.bodies:
                ticket.done = True
                return
        bodies, headers = batch.bodies, batch.headers
        for start, stop in blocks.split(bodies, headers):
            if not self.credit.open:
                rest = Batch(batch.topic, batch.level, bodies[start:])
                rest.headers = headers[start:] if headers is not None else None
                rest.ticket = ticket
                self._backlog.appendleft(rest)  # first in line, so that the batch's numbers stay one range
                return
            self._seal_records(
                batch, bodies[start:stop], headers[start:stop] if headers is not None else None
            )
        if ticket is not None:
            ticket.sealed_whole = True

    def _leave_out(self, batch: Batch, ticket: Ticket) -> None:
        gone = set(ticket.cancelled)
        ticket.cancelled = sorted(gone)
        batch.bodies = [body for index, body in enumerate(batch.bodies) if index not in gone]
        if batch.headers is not None:
            batch.headers = [head for index, head in enumerate(batch.headers) if index not in gone]

    def _seal_records(self, batch: Batch, bodies: list[bytes], headers: list[bytes] | None) -> None:
        suffix = self._suffixes[batch.topic]
        first = self._sequence + 1
        self._sequence += len(bodies)
        count = len(bodies)
        topic = suffix[16:]
        if count == 1 and len(bodies[0]) > blocks.SPLIT:
            sealed = blocks.seal_pieces(
                topic,
                bodies[0],
                publisher=self.publisher,
                boot=self.boot,
                sequence=first,
                level=batch.level,
                headers=headers[0] if headers else b"",
            )
        else:
            if headers is not None and not any(headers):
                headers = None
            sealed = [
                blocks.seal(
                    topic,
                    bodies,
                    publisher=self.publisher,
                    boot=self.boot,
                    sequence=first,
                    level=batch.level,
                    headers=headers,
                )
            ]
        if batch.ticket is not None:
            batch.ticket.pending += 1
            batch.ticket.sealed_to = self._sequence
            self._unacked[first] = _Unacked(sealed, count, first, self._sequence, batch.ticket)
        self._published += count
        for block in sealed:
            self._send_block(block, count, 0)

    def _send_block(self, block: bytes, count: int, flags: int) -> None:
        """Queue a sealed block, or keep it for when there is credit."""
        if not self.credit.open or (self._again and not flags & AGAIN):
            self._again.append((block, count))
            return
        self.credit.spend(count, len(block))
        self._blocks_out += 1
        self._frames.append(self.prefix + data_head(0, flags, 0, 0, len(block)) + block)

    def _send_again(self) -> None:
        waiting = self._again
        while waiting and self.credit.open:
            block, count = waiting.popleft()
            self._send_block(block, count, AGAIN)

    def _acknowledged(self, ranges: list[list[int]], absent: list[str]) -> list[Waitable]:
        woken: list[Waitable] = []
        for entry in self._pop_unacked(ranges):
            ticket = entry.ticket
            ticket.accept(entry.first, entry.last)
            ticket.broker = self.broker
            if absent:
                ticket.absent = tuple(dict.fromkeys((*ticket.absent, *absent)))
            if not ticket.done and ticket.pending == 0 and ticket.sealed_whole:
                ticket.done = True
                woken.append(ticket)
        return woken

    def _pop_unacked(self, ranges: list[list[int]]) -> list[_Unacked]:
        """The blocks that lie whole within the ranges; nearly always they begin where a range begins."""
        found: list[_Unacked] = []
        unacked = self._unacked
        for first, last in ranges:
            at = first if first in unacked else self._first_unacked(first, last)
            while (entry := unacked.get(at)) is not None and entry.last <= last:
                found.append(unacked.pop(at))
                at = entry.last + 1
                if at <= last and at not in unacked:
                    at = self._first_unacked(at, last)
        return found

    def _first_unacked(self, first: int, last: int) -> int:
        return min((number for number in self._unacked if first <= number <= last), default=0)

    def _refused(self, ranges: list[list[int]], reason: str) -> list[Waitable]:
        woken: list[Waitable] = []
        for entry in self._pop_unacked(ranges):
            ticket = entry.ticket
            if not ticket.done:
                woken.append(ticket)
            if entry.again:
                ticket.doubt(
                    Unknown(
                        f"broker {self.broker} refused a second copy of the message, the first one may have"
                        f" been accepted: {reason}"
                    )
                )
            else:
                error = NotAccepted(f"broker {self.broker} refused the message: {reason}")
                ticket.refuse(entry.first, entry.last, error)
        return woken

    def _resume(self) -> None:
        """A new session: everything that is not acknowledged goes out again, before anything new.

        What was left of large bodies of level sent cannot be whole any more: counted as dropped.
        """
        heads = [blocks.HEAD.unpack_from(block) for block, _ in self._again]
        self.dropped += len({head[6] for head in heads if head[2] == blocks.SENT})
        self._unacked = {first: entry for first, entry in self._unacked.items() if not entry.ticket.done}
        for entry in self._unacked.values():
            entry.again = True
        self._again = deque(
            (block, entry.count) for entry in self._unacked.values() for block in entry.blocks
        )

    def _give_up_publishing(self) -> list[Waitable]:
        """The program is done: what is under way ends as `Unknown`, what is only gathered as
        `NotAccepted`."""
        woken = self._fail_unacked("the client was closed before the broker answered")
        for batch in (*self._accepting.values(), *self._backlog):
            if batch.ticket is not None and not batch.ticket.done:
                batch.ticket.fail(NotAccepted("the client was closed before the message was sent"))
                woken.append(batch.ticket)
        self._accepting.clear()
        self._backlog.clear()
        self._again.clear()
        self.forming = {}
        return woken
