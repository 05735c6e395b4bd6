"""Messages on their way into an outbox: gathered, sealed into blocks, and appended together. Pure.

A call's messages are a `Parcel`: all of them are kept, or none. One append is in flight at a time. Parcels
that gather meanwhile become the next one, so that a thousand calls share one sync of the disk. Messages of
one topic keep the order of the calls.

**When it is full.** Parcels wait in a line for room, first come, first served. An append takes as many from
the head of the line as the outbox has room for. When the disk itself is full, the first parcel is tried
alone, again and again. A parcel whose caller gives up leaves the line. One that could never fit is refused at
once.

**When the disk fails.** What was being appended may be found when the outbox is opened again, so its outcome
is unknown. Parcels that the disk had not been given are refused, and so are all later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.clients.tickets import Waitable
from mesh.errors import MeshError, NotAccepted, OutboxFailed, StoreFull, Unknown
from mesh.topics import check_public_topic
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt

LEVEL: Final = "outbox"
APPEND_BYTES: Final = 4 << 20
"""Bytes of messages in one append, or one parcel."""
BLOCK_COST: Final = 512
"""Most bytes that an outbox counts for a block beside its messages: its head with a topic of 255 bytes, and
what it takes in the outbox."""
MESSAGE_COST: Final = 8
"""Bytes that an outbox counts for a message beside its body."""


def check_topic(topic: str) -> None:
    """Raises `TopicError` for a topic under which nothing can be published."""
    check_public_topic(topic)


class Parcel(Waitable):
    """The messages of one call. Done when they are on disk, or when they never will be."""

    __slots__ = ("count", "done", "error", "first", "headers", "parts", "size", "under_way")

    def __init__(self, parts: Sequence[tuple[bytes, Sequence[bytes]]], headers: bytes) -> None:
        super().__init__()
        self.parts = parts
        """Topics and bodies."""
        self.headers = headers
        """Headers of the message, if there is only one."""
        self.count = sum(len(bodies) for _, bodies in parts)
        size = sum(sum(map(len, bodies)) for _, bodies in parts) + len(headers)
        cut = 2 * size // blocks.SPLIT + self.count // blocks.COUNT_MAX
        self.size = size + MESSAGE_COST * self.count + BLOCK_COST * (len(parts) + cut)
        """Estimate of its bytes in an outbox, from below."""
        self.first = 0
        """The number of the first message of its first topic, once it is sealed."""
        self.under_way = False
        """True if the disk has been given it."""
        self.done = False
        self.error: MeshError | None = None

    def end(self, error: MeshError | None = None) -> None:
        self.done, self.error = True, error

    def receipt(self, index: int, count: int = 1) -> Receipt:
        """The receipt of ``count`` messages from the ``index``-th on. Raises what else became of them."""
        if self.error is not None:
            raise self.error
        return Receipt(LEVEL, "", self.number(index), count)

    # --- what a `Ticket` has, for messages that nobody waits for (``pending``)

    broker: Final = ""
    absent: Final = ()
    homes: Final = ()

    def number(self, index: int) -> int:
        return self.first + index

    def outcome(self, index: int, count: int = 1, error: MeshError | None = None) -> Receipt | MeshError:
        """The outcome of ``count`` messages. ``error`` is the one with which their caller gave up, if it
        did."""
        return error or self.error or self.receipt(index, count)


class Filling:
    """Parcels on their way into one outbox. ``room_max``: bytes of the whole outbox."""

    def __init__(self, path: str, publisher: int, boot: int, room_max: int) -> None:
        self._path = path
        self._publisher = publisher
        self._boot = boot
        self._room_max = room_max
        self._growth_max = min(room_max, blocks.SPLIT)
        self._line: list[Parcel] = []
        self._growing: dict[str, tuple[Parcel, list[bytes], float]] = {}
        """Parcels that `gather` may add to, by topic, with their bodies and timeouts."""
        self._under_way: list[Parcel] = []
        self._last = 0
        """The last number of an append that did not fail."""
        self.full = ""
        """Why the disk took nothing the last time; empty if it did."""
        self.failure = ""
        """Why nothing is taken any more."""

    @property
    def busy(self) -> bool:
        """True if anything waits to be on disk."""
        return bool(self._line or self._under_way)

    def add(self, given: Sequence[tuple[str, Sequence[bytes]]], headers: bytes = b"") -> Parcel:
        """Add messages by topic. ``headers`` are for a single message only.

        Raises `TopicError`, and `NotAccepted` if they can never be taken.
        """
        parcel = Parcel([(check_public_topic(topic), bodies) for topic, bodies in given], headers)
        for topic, _ in given:  # what is gathered later comes later
            self._growing.pop(topic, None)
        if self.failure:
            raise NotAccepted(self.failure)
        if parcel.size > self._room_max:
            raise NotAccepted(
                f"{parcel.size} bytes do not fit the outbox {self._path} of {self._room_max} bytes"
            )
        self._line.append(parcel)
        return parcel

    def gather(self, topic: str, body: bytes, headers: bytes, limit_s: float) -> tuple[Parcel, int]:
        """Gather a message into a parcel whose messages have the same timeout; return the parcel and the
        message's place there. Raises as `add`."""
        if not headers and topic in self._growing:
            parcel, bodies, its_limit_s = self._growing[topic]
            size = parcel.size + len(body) + MESSAGE_COST
            if limit_s == its_limit_s and size <= self._growth_max:
                bodies.append(body)
                parcel.count += 1
                parcel.size = size
                return parcel, len(bodies) - 1
        bodies = [body]
        parcel = self.add([(topic, bodies)], headers)
        if not headers:
            self._growing[topic] = parcel, bodies, limit_s
        return parcel, 0

    def new_turn(self) -> None:
        """Begin a turn: messages gathered from now on get a later deadline than those before."""
        self._growing.clear()

    def give_up(self, parcel: Parcel) -> bool:
        """Give up a parcel, since its caller no longer waits. Returns True if its messages are certainly not
        in the outbox."""
        if parcel.under_way:
            parcel.end(Unknown("nobody waits for it any more"))
            return False
        if parcel in self._line:
            self._line.remove(parcel)
            self._growing.clear()
        return True

    def next_append(self, held: int) -> list[bytes]:
        """Sealed blocks to append now to an outbox that holds ``held`` bytes; tell `appended` the outcome.
        Empty if there is nothing to append or no room, or while an append is in flight."""
        if self._under_way or not self._line:
            return []
        room = APPEND_BYTES if not self.full else 1
        left = self._room_max - held
        for parcel in self._line:
            if parcel.size > left or room <= 0:
                break
            left -= parcel.size
            room -= parcel.size
            self._under_way.append(parcel)
        del self._line[: len(self._under_way)]
        self._growing.clear()
        return self._sealed(self._under_way)

    def appended(self, error: Exception | None) -> list[Parcel]:
        """Note the outcome of the last append. Returns the parcels to wake."""
        parcels, self._under_way = self._under_way, []
        if isinstance(error, StoreFull):
            self.full = str(error)
            for parcel in parcels:
                parcel.under_way = False
            self._line = [parcel for parcel in parcels if not parcel.done] + self._line
            return []
        if isinstance(error, OutboxFailed):
            ended = self._end(parcels, Unknown(f"the message may be in the outbox: {error}"))
            return [*ended, *self.fail(str(error))]
        if error is not None:
            return [*self._end(parcels, NotAccepted(str(error))), *self.fail(str(error))]
        self.full = ""
        self._last += sum(parcel.count for parcel in parcels)
        return self._end(parcels, None)

    def fail(self, why: str) -> list[Parcel]:
        """Refuse everything from now on. Returns the parcels to wake."""
        self.failure = why
        self._growing.clear()
        waiting, self._line = self._line, []
        return self._end(waiting, NotAccepted(why))

    def why_waiting(self, held: int) -> str:
        """Why what waits is not on disk: part of a sentence."""
        if self.full:
            return self.full
        if self._under_way:
            return f"the disk of the outbox {self._path} has not answered"
        return f"the outbox {self._path} is full: it holds {held} of {self._room_max} bytes"

    # --- internals

    @staticmethod
    def _end(parcels: list[Parcel], error: MeshError | None) -> list[Parcel]:
        for parcel in parcels:
            if not parcel.done:
                parcel.end(error)
        return parcels

    def _sealed(self, parcels: list[Parcel]) -> list[bytes]:
        by_topic: dict[bytes, list[tuple[Parcel, Sequence[bytes]]]] = {}
        for parcel in parcels:
            parcel.under_way = True
            for topic, bodies in parcel.parts:
                by_topic.setdefault(topic, []).append((parcel, bodies))
        sealed: list[bytes] = []
        sequence = self._last + 1
        for topic, together in by_topic.items():
            gathered: list[bytes] = []
            headers: list[bytes] = []
            for parcel, bodies in together:
                if topic == parcel.parts[0][0]:
                    parcel.first = sequence + len(gathered)
                headers += [parcel.headers] if parcel.headers else [b""] * len(bodies)
                gathered += bodies
            sealed += self._blocks(topic, gathered, headers, sequence)
            sequence += len(gathered)
        return sealed

    def _blocks(self, topic: bytes, bodies: list[bytes], headers: list[bytes], first: int) -> list[bytes]:
        sealed: list[bytes] = []
        for start, stop in blocks.split(bodies, headers):
            named = {"publisher": self._publisher, "boot": self._boot, "sequence": first + start}
            part, heads = bodies[start:stop], headers[start:stop]
            if len(part) == 1 and len(part[0]) > blocks.SPLIT:
                sealed += blocks.seal_pieces(topic, part[0], level=blocks.STORED, headers=heads[0], **named)
            else:
                sealed.append(
                    blocks.seal(
                        topic, part, level=blocks.STORED, headers=heads if any(heads) else None, **named
                    )
                )
        return sealed
