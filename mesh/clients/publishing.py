"""The publisher's end: messages gather by topic, are sealed into blocks, and wait to be acknowledged. Pure.

Messages gather (`forming`) until `flush` seals them into blocks. Each added message lowers ``room``, the
bytes that may still be gathered. At zero or below a flush is due; without credit or a session it stays there,
and callers wait. A new topic adds to ``room``. Otherwise a thousand topics in turn would make blocks of one
message each.

Sealing stops where credit stops; the rest stays gathered. Order is kept per topic within a level. Sequence
numbers are given at sealing and never change. A block of level accepted or stored is kept until its ACK. When
a new session begins it is sent again unchanged, marked ``AGAIN``.

Some blocks of level stored are sent again within a session (``resending``).
"""

from __future__ import annotations

import struct
from collections import deque
from math import inf
from typing import Final

from mesh.clients.pending import Pendings
from mesh.clients.recent import Recent
from mesh.clients.resending import Resending
from mesh.clients.tickets import Ticket, Waitable
from mesh.clients.unacknowledged import Sealed, Unacknowledged
from mesh.errors import NotAccepted, Unknown
from mesh.printable import listed
from mesh.topics import check_public_topic
from mesh.wire import blocks
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import AGAIN, SendCredit, data_head, encode

TURN_TOPIC: Final = 6144
"""Bytes that each topic adds to what may be gathered before a flush is due. With a flat budget 1 000 topics
would make one-message blocks."""
MESSAGE_COST: Final = 8
"""Bytes that each message counts for beside its body, so that empty ones have a bound too."""
TURN: Final = blocks.SPLIT - TURN_TOPIC
"""Bytes gathered before a flush is due, without `TURN_TOPIC`: one topic alone fills one block exactly."""
TURN_MAX: Final = 8 << 20
TOPICS_MAX: Final = 65536
"""Topics whose encoding is remembered."""
# backtrace, DATA head, block head up to the sequence number; publisher, boot and topic are the cached suffix
_FRAME: Final = struct.Struct(">4sBBBBBBHIQBIBBBBIIQ")
_frame: Final = _FRAME.pack


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
        """Add the headers of the body just added; earlier bodies get empty ones if these are the first."""
        if self.headers is None:
            if not headers:
                return
            self.headers = [b""] * (len(self.bodies) - 1)
        self.headers.append(headers)


class Publishing:
    """Everything that one client publishes. Its blocks carry (``publisher``, ``boot``), its frames the
    backtrace ``prefix``."""

    # touched by every message: in the dict of an object with so many attributes a look-up is slower
    __slots__ = ("__dict__", "forming", "room")

    def __init__(self, *, publisher: int, boot: int, prefix: bytes) -> None:
        self.publisher = publisher
        self.boot = boot
        self.prefix = prefix
        self.broker = ""
        """The name of the broker of the current or last session."""
        self.settled = False
        """True while there is a session."""
        self.leaves_at = inf
        """When the current broker will have left, if it has said so."""
        self.stores = True
        """True if the broker of the current or last session speaks level stored."""
        self.credit = SendCredit()
        # gathered and not sealed; read and written directly by a shell's `publish`
        self.forming: dict[str, list[bytes]] = {}
        self.room = 0
        self._kept = TURN
        self.dropped = 0
        """Messages that were not taken for want of credit."""
        self.pendings = Pendings(self.cancel)
        """Outcomes of messages that nobody waits for yet."""
        self._resending = Resending()
        self.recent = Recent()
        self.refused_sent = ""
        """Why messages of level sent were refused. A shell logs it and empties it."""
        self._accepting: dict[str, Batch] = {}
        self._storing: dict[str, Batch] = {}
        # gathered and not sealed, by level and topic; read directly by a shell's `publish_soon`
        self.waiting = {"accepted": self._accepting, "stored": self._storing}
        self._backlog: deque[Batch] = deque()
        self._again: deque[tuple[bytes, int]] = deque()
        self._unacked = Unacknowledged()
        self._lowest_told = 0
        """The lowest pending number of level stored that the broker of this session was told. 0: none, as no
        block of that level was sent."""
        self._suffixes: dict[str, bytes] = {}
        self._suffixes_max = TOPICS_MAX
        self._sequence = 0
        self._frames: list[bytes] = []
        self._published = 0
        self._blocks_out = 0

    @property
    def gathered(self) -> bool:
        """True while messages wait to be sealed or sent."""
        return bool(self.forming or self._accepting or self._storing or self._backlog or self._again)

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
        """Add one message of any level, with headers; return (ticket, index in its batch). Raises
        `TopicError`."""
        return self.add_many(topic, [body], level, headers)

    def add_many(
        self, topic: str, bodies: list[bytes], level: int, headers: bytes = b""
    ) -> tuple[Ticket | None, int]:
        """Add messages of one topic; return (ticket, index of the first). ``headers`` are for a single
        message only.

        Raises `TopicError`, and `NotAccepted` for a level that the broker does not speak.
        """
        if type(topic) is not str or topic not in self._suffixes:
            self._remember(topic)
        if level == blocks.STORED and self.settled and not self.stores:
            raise NotAccepted(self._stores_nothing())
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
        batches = self._accepting if level == blocks.ACCEPTED else self._storing
        batch = batches.get(topic)
        if batch is None:
            batch = batches[topic] = Batch(topic, level, [])
            batch.ticket = Ticket(level)
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
        """Give up messages whose caller no longer waits: take them back if they are not sealed yet. False if
        some were sent. With its last caller a batch ends: its unsealed rest is never sealed, and nothing is
        resent."""
        if ticket.done:
            return False
        ticket.waited -= count
        if not ticket.sealed:
            ticket.cancelled += range(index, index + count)
            return True
        if ticket.waited > 0:
            return False
        ticket.fail(Unknown("nobody waits for the acknowledgement any more"))
        self._give_up()
        if self._backlog and self._backlog[0].ticket is ticket:  # the rest of a batch is first in line
            self._backlog.popleft()
        return ticket.number(index) > ticket.sealed_to

    def _remember(self, topic: str) -> bytes:
        encoded = check_public_topic(topic)
        if len(self._suffixes) >= self._suffixes_max:
            kept = self._suffixes  # topics that are being gathered must stay
            self._suffixes = {name: kept[name] for name in self._gathering() if name in kept}
            # otherwise each new topic would look through all of them
            self._suffixes_max = max(TOPICS_MAX, 2 * len(self._suffixes))
        suffix = self._suffixes[topic] = blocks.suffix_of(encoded, self.publisher, self.boot)
        return suffix

    def _identify(self, publisher: int) -> list[Waitable]:
        """Publish under this id from now on. Brokers would not recognise unacknowledged blocks of another id
        as resent. So they are not resent, and may have been accepted."""
        if publisher == self.publisher:
            return []
        self.publisher = publisher
        for topic, suffix in self._suffixes.items():
            self._suffixes[topic] = blocks.suffix_of(suffix[16:], publisher, self.boot)
        return self._fail_unacked(
            "before it was acknowledged, another broker took over, which knows this client by another id"
        )

    def _fail_unacked(self, why: str) -> list[Waitable]:
        """End everything in flight as `Unknown`."""
        woken: list[Waitable] = []
        for sealed in self._unacked:
            ticket = sealed.ticket
            if not ticket.done:
                ticket.fail(Unknown(ticket.why(why)))
                woken.append(ticket)
        self._unacked.clear()
        self.recent.clear()
        return woken

    def _gathering(self) -> list[str]:
        return [
            *self.forming,
            *self._accepting,
            *self._storing,
            *(batch.topic for batch in self._backlog),
        ]

    def _add_headed(self, topic: str, body: bytes, headers: bytes) -> None:
        """Add a message of level sent with headers, behind what is gathered, so that a topic's order
        holds."""
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
        """Put everything gathered in a line."""
        forming, self.forming = self.forming, {}
        for topic, bodies in forming.items():
            self._backlog.append(Batch(topic, blocks.SENT, bodies))
        for batches in (self._accepting, self._storing):
            self._backlog.extend(batches.values())
            batches.clear()

    def flush(self) -> None:
        """Seal and queue what is gathered, as far as credit reaches."""
        credit = self.credit
        if not self.settled or credit.messages <= 0 or credit.bytes <= 0:
            self._give_up()
            self.shut()
            return
        if self._again:
            self._send_again()
        if self._backlog or self._accepting or self._storing:
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
        """Stop gathering until `resume`."""
        if self.room > 0:
            self._kept = self.room
            self.room = 0

    def resume(self) -> None:
        """Gather again, since there is credit. Gathered messages are sealed at once only if they fill a turn,
        so that blocks grow while credit is short. The caller flushes at the end of its turn."""
        if self._kept <= 0 or self._again:
            self.flush()
        else:
            self.room = min(self._kept, max(TURN_TOPIC, self.credit.messages * MESSAGE_COST))

    def _flush_forming(self) -> None:
        """The fast way, for level sent without headers: one Struct call and one join a block."""
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
                self._seal_batch(Batch(topic, blocks.SENT, bodies))  # it counts by itself
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
        """Cut, seal and queue any batch. The part that credit does not reach goes to the front of the
        backlog."""
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
            self._unacked.add(Sealed(sealed, count, first, self._sequence, batch.ticket))
        self._published += count
        for block in sealed:
            self._send_block(block, count, 0)

    def _send_block(self, block: bytes, count: int, flags: int) -> None:
        """Queue a sealed block, or keep it until there is credit."""
        if not self.credit.open or (self._again and not flags & AGAIN):
            self._again.append((block, count))
            return
        self.credit.spend(count, len(block))
        self._blocks_out += 1
        behind = 0
        if block[2] == blocks.STORED:
            first = blocks.HEAD.unpack_from(block)[6]
            behind = self._unacked.behind(first)
            self._lowest_told = max(self._lowest_told, first - behind)
        self._frames.append(self.prefix + data_head(0, flags, behind, 0, len(block)) + block)

    def _send_again(self) -> None:
        waiting = self._again
        while waiting and self.credit.open:
            block, count = waiting.popleft()
            first = 0 if block[2] == blocks.SENT else blocks.HEAD.unpack_from(block)[6]
            if not first or self._unacked.waits(first) or self.recent.repeats(first):
                self._send_block(block, count, AGAIN)

    def _give_up(self) -> None:
        """Ask for credit back, when there is none. The broker holds the credit of level stored until the
        homes answer. It can return that of messages for which nobody waits any more."""
        if not self._lowest_told or not self.settled or self.credit.open:
            return
        lowest = self._unacked.lowest(self._sequence + 1)
        if lowest > self._lowest_told:
            self._lowest_told = lowest
            frame = encode(Durable.LOWEST, self.publisher, self.boot, lowest)
            self._frames.append(self.prefix + frame)

    def _acknowledged(self, ranges: list[list[int]], absent: list[str], homes: list[str]) -> list[Waitable]:
        woken: list[Waitable] = []
        for sealed in self._unacked.find(ranges):
            if sealed.over:
                continue
            self._unacked.remove(sealed)
            ticket = sealed.ticket
            ticket.accept(sealed.first, sealed.last, self.broker, absent, homes)
            if self.recent.keeps and ticket.level == blocks.ACCEPTED:
                self.recent.add(sealed)
            if not ticket.done and ticket.pending == 0 and ticket.sealed_whole:
                ticket.done = True
                woken.append(ticket)
        return woken

    def _waits_for(
        self, first: int, last: int, kept: list[str], waiting: list[str], now: float
    ) -> list[Waitable]:
        """Note that some homes of a block have not confirmed yet that they keep it."""
        for sealed in self._unacked.find([(first, last)]):
            sealed.ticket.wait_for(kept, waiting)
            self._resending.takes_long(sealed, now)
        return []

    def _refused(self, ranges: list[list[int]], reason: str, now: float) -> list[Waitable]:
        woken: list[Waitable] = []
        found = self._unacked.find(ranges)
        if not found:  # of level sent, which nobody waits for
            self.refused_sent = f"broker {self.broker} refused messages of level sent: {reason}"
        for sealed in found:
            if sealed.over or sealed.put_off or self.leaves_at < inf:
                continue  # the next broker gets what a leaving one refuses
            ticket = sealed.ticket
            if sealed.again and ticket.level == blocks.STORED and not ticket.done:
                ticket.standing = f"broker {self.broker} refused to have it stored again: {reason}"
                self._resending.refused(sealed, now)
                continue
            self._unacked.remove(sealed)
            if not ticket.done:
                woken.append(ticket)
            if sealed.again:
                ticket.doubt(
                    Unknown(
                        f"broker {self.broker} refused a second copy of the message, the first one may have"
                        f" been accepted: {reason}"
                    )
                )
            else:
                error = NotAccepted(f"broker {self.broker} refused the message: {reason}")
                ticket.refuse(sealed.first, sealed.last, error)
        return woken

    def _is_past(self, first: int, last: int, homes: list[str], now: float) -> list[Waitable]:
        """Note that homes were told that nobody waits for these numbers any more, which this publisher never
        said."""
        woken: list[Waitable] = []
        for sealed in self._unacked.find([(first, last)]):
            self._unacked.remove(sealed)
            if not sealed.ticket.done:
                woken.append(sealed.ticket)
            sealed.ticket.doubt(
                Unknown(
                    f"{listed(homes)} forgot the number of the message, since another client"
                    " publishes under the id of this one"
                )
            )
        return woken

    @property
    def resend_at(self) -> float:
        """When to call `resend`."""
        return self._resending.at

    def resend(self, now: float) -> None:
        """Resend what is due; forget what nobody waits for any more."""
        for sealed in self._resending.due(now, self._is_sent):
            if sealed.ticket.done:
                self._unacked.remove(sealed)
            elif not sealed.over:
                sealed.again = True
                self._again += ((block, sealed.count) for block in sealed.blocks)
        self.flush()

    def _is_sent(self, sealed: Sealed) -> bool:
        waiting = {id(block) for block, _ in self._again}
        return not any(id(block) in waiting for block in sealed.blocks)

    def _resume(self) -> None:
        """Resend everything unacknowledged in a new session, before anything new. A client that moves first
        repeats what was acknowledged last.

        Large bodies of level sent that were sent in part cannot become whole any more: they are counted as
        dropped.
        """
        heads = [blocks.HEAD.unpack_from(block) for block, _ in self._again]
        self.dropped += len({head[6] for head in heads if head[2] == blocks.SENT})
        self._resending.clear()
        self._again.clear()
        for sealed in self.recent.repeat():
            self._again += ((block, sealed.count) for block in sealed.blocks)
        for sealed in list(self._unacked):
            if sealed.ticket.done:
                self._unacked.remove(sealed)
            else:
                sealed.again, sealed.put_off = True, False
                self._again += ((block, sealed.count) for block in sealed.blocks)

    def _stores_nothing(self) -> str:
        what = "level stored and durable subscriptions"
        return f"broker {self.broker} does not know {what}; they need a newer version of Mangrove"

    def _refuse_stored(self) -> list[Waitable]:
        """Fail everything of level stored: the broker of a new session does not speak it."""
        woken: list[Waitable] = []
        why = self._stores_nothing()
        for sealed in [each for each in self._unacked if each.ticket.level == blocks.STORED]:
            self._unacked.remove(sealed)
            if not sealed.ticket.done:
                sealed.ticket.doubt(Unknown(f"an earlier copy of the message may be stored: {why}"))
                woken.append(sealed.ticket)
        self._gather_backlog()
        for batch in [each for each in self._backlog if each.level == blocks.STORED]:
            self._backlog.remove(batch)
            if batch.ticket is not None and not batch.ticket.done:
                batch.ticket.fail(NotAccepted(why))
                woken.append(batch.ticket)
        return woken

    def _give_up_publishing(self) -> list[Waitable]:
        """End what is in flight as `Unknown`, and what is only gathered as `NotAccepted`: the program is
        done."""
        woken = self._fail_unacked("the client was closed before the broker answered")
        for batch in (*self._accepting.values(), *self._storing.values(), *self._backlog):
            if batch.ticket is not None and not batch.ticket.done:
                batch.ticket.fail(NotAccepted("the client was closed before the message was sent"))
                woken.append(batch.ticket)
        self._accepting.clear()
        self._storing.clear()
        self._backlog.clear()
        self._again.clear()
        self._resending.clear()
        self.forming = {}
        return woken
