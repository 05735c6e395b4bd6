"""The block: sealed once by the publisher, forwarded unopened, and opened by the subscriber.

A block holds messages of one topic and one level from one publisher, in order. Its header has a fixed width,
with the topic last. So a broker reads all it needs in one ``Struct`` call and forwards the rest untouched
(byte table in ``docs/reference/wire-format.md``)::

    0  u8   format, 1
    1  u8   flags: EQUAL 1, HEADERS 2, PIECE 4
    2  u8   level: 0 sent, 1 accepted, 2 stored
    3  u8   size of the topic
    4  u32  count of records
    8  u32  size of each body when EQUAL, else 0
    12 u64  sequence number of the first record; the others follow it
    20 u64  publisher
    28 u64  boot of the publisher
    36      topic
            PIECE only: u32 size of the whole body, u32 offset of this piece in it
            unless EQUAL: u32 size of each body
            HEADERS only: u32 size of each record's headers, 0 = none; then the headers, a msgpack map each
            bodies

A body above `SPLIT` bytes travels as several blocks, each with one piece, all under one sequence number.
`Assembler` puts them together at the subscriber. Sequence numbers are given when a block is sealed. They
belong to (publisher, boot), not to a topic. A retry sends the sealed bytes unchanged.

This module is pure: bytes in, bytes or lists out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, Final

import msgpack

from mesh.errors import BlockError
from mesh.wire.fields import shown

FORMAT: Final = 1
EQUAL: Final = 1
HEADERS: Final = 2
PIECE: Final = 4

SENT: Final = 0
ACCEPTED: Final = 1
STORED: Final = 2
LEVELS: Final = ("sent", "accepted", "stored")
"""Names of the levels by their number on the wire."""

SPLIT: Final = 65536 - 512
"""Bytes of bodies (and headers) after which a block is sealed; a larger body becomes pieces of this size. A
frame with such a block still fits one read of 64 KiB, which spares the receiver a copy."""
COUNT_MAX: Final = 4096
"""Most records in one block. A block overdraws a window of credit by no more than this."""
BLOCK_MAX: Final = SPLIT + 8192 + 36 + 255 + 8 + COUNT_MAX * 8
"""No block is larger; a frame that claims more is refused."""
BODY_MAX: Final = 64 << 20
"""Largest body of one message."""
UNFINISHED_MAX: Final = 2 * BODY_MAX
"""Bytes that unfinished large bodies may take while they are put together: two of the largest always fit."""
PIECE_COST: Final = 512
"""Bytes that a piece counts for beside its own, so that tiny pieces have a bound too."""
HEADERS_MAX: Final = 8192
"""Largest encoded headers of one message."""

HEAD: Final = struct.Struct(">BBBBIIQQQ")
HEAD_SIZE: Final = HEAD.size
SUFFIX: Final = struct.Struct(">QQ")
_PIECE: Final = struct.Struct(">II")
_COUNT_AND_SIZE: Final = struct.Struct(">II")
PIECE_SIZE: Final = _PIECE.size
"""Bytes behind a piece's topic: the size of the whole body, and the offset of this piece."""

HeaderValue = str | bytes | int | float | bool | None
Headers = Mapping[str, HeaderValue]


# --- sealing


def suffix_of(topic: bytes, publisher: int, boot: int) -> bytes:
    """The constant end of a topic's block headers, made once for each topic."""
    return SUFFIX.pack(publisher, boot) + topic


def seal(
    topic: bytes,
    bodies: Sequence[bytes],
    *,
    publisher: int,
    boot: int,
    sequence: int,
    level: int = SENT,
    headers: Sequence[bytes] | None = None,
) -> bytes:
    """Seal one block of whole records; ``headers`` are already encoded, and empty for a record without
    any."""
    flags, size, table = layout(bodies, headers)
    head = HEAD.pack(FORMAT, flags, level, len(topic), len(bodies), size, sequence, publisher, boot)
    return b"".join((head, topic, table, *bodies))


def layout(bodies: Sequence[bytes], headers: Sequence[bytes] | None = None) -> tuple[int, int, bytes]:
    """The flags, the size field and everything between topic and bodies for these records."""
    sizes = list(map(len, bodies))
    size = sizes[0] if sizes else 0
    count = len(sizes)
    if sizes.count(size) == count:
        flags, table = EQUAL, b""
    else:
        flags, size, table = 0, 0, struct.pack(f">{count}I", *sizes)
    if headers is not None:
        flags |= HEADERS
        table += struct.pack(f">{count}I", *map(len, headers)) + b"".join(headers)
    return flags, size, table


def seal_pieces(
    topic: bytes,
    body: bytes,
    *,
    publisher: int,
    boot: int,
    sequence: int,
    level: int = SENT,
    headers: bytes = b"",
) -> list[bytes]:
    """Seal one body larger than `SPLIT` as blocks of one piece each; its headers go with the first."""
    if len(body) > BODY_MAX:
        raise ValueError(f"a body of {len(body)} bytes is above the limit of {BODY_MAX}")
    blocks: list[bytes] = []
    for offset in range(0, len(body), SPLIT):
        piece = body[offset : offset + SPLIT]
        first_headers = headers if offset == 0 else b""
        flags, size, table = layout([piece], [first_headers] if first_headers else None)
        head = HEAD.pack(FORMAT, flags | PIECE, level, len(topic), 1, size, sequence, publisher, boot)
        blocks.append(b"".join((head, topic, _PIECE.pack(len(body), offset), table, piece)))
    return blocks


def split(bodies: Sequence[bytes], headers: Sequence[bytes] | None = None) -> list[tuple[int, int]]:
    """The places to split records into blocks of at most `SPLIT` bytes and `COUNT_MAX` records: (from, to)
    pairs.

    A record that is too large for that gets a block of its own.
    """
    count = len(bodies)
    sizes = list(map(len, bodies))
    if headers is not None:
        sizes = [body + len(head) for body, head in zip(sizes, headers, strict=True)]
    if count <= COUNT_MAX and sum(sizes) <= SPLIT:
        return [(0, count)]
    if sizes.count(sizes[0]) == count:  # the usual case: no need to add up
        step = min(COUNT_MAX, SPLIT // (sizes[0] or 1) or 1)
        return [(start, min(start + step, count)) for start in range(0, count, step)]
    parts: list[tuple[int, int]] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > SPLIT or index - start >= COUNT_MAX):
            parts.append((start, index))
            start, total = index, 0
        total += size
    parts.append((start, count))
    return parts


def cut(block: bytes, first: int, count: int) -> bytes:
    """Cut ``count`` records out of a sealed block, from its record ``first`` on: a block of the same
    publisher.

    The records keep their sequence numbers and headers. A cut of all records is the block itself. A piece of
    a body has one record, so nothing else can be cut from it.

    Raises ValueError for records that the block does not have, `BlockError` if its tables are damaged.
    """
    form, flags, level, topic_size, whole, size, sequence, publisher, boot = HEAD.unpack_from(block)
    if first < 0 or count < 1 or first + count > whole:
        owner = "a piece of a body, which is never cut" if flags & PIECE else f"a block of {whole}"
        raise ValueError(f"{count} records from {first} on are not in {owner}")
    if count == whole:
        return block
    head = HEAD.pack(form, flags, level, topic_size, count, size, sequence + first, publisher, boot)
    at = HEAD_SIZE + topic_size
    parts = [head, block[HEAD_SIZE:at]]
    if flags == EQUAL:
        parts.append(block[at + first * size : at + (first + count) * size])
        return b"".join(parts)
    headers, bodies = _starts(block)
    tables = range(at + 4 * first, headers[0], 4 * whole)
    parts += [block[start : start + 4 * count] for start in tables]
    if flags & HEADERS:
        parts.append(block[headers[first] : headers[first + count]])
    parts.append(block[bodies[first] : bodies[first + count]])
    return b"".join(parts)


@lru_cache(
    maxsize=8
)  # blocks are cut from front to end: adding up the sizes for each cut would take quadratic time
def _starts(block: bytes) -> tuple[list[int], list[int]]:
    """The offsets of each record's headers and body; each list ends with the end of the last record."""
    form, flags, _, topic_size, count, size, *_ = HEAD.unpack_from(block)
    at = HEAD_SIZE + topic_size
    at, sizes, header_sizes = _tables(block, at, len(block), form, flags, count, size)
    headers = list(accumulate(header_sizes or (), initial=at))
    return headers, list(accumulate(sizes or (size,) * count, initial=headers[-1]))


def pack_headers(headers: Headers | None) -> bytes:
    """Encode the headers of one message. Raises ValueError or TypeError with a sentence for the caller."""
    if not headers:
        return b""
    for key, value in headers.items():
        if not isinstance(key, str):
            raise TypeError(f"header names are str, not {type(key).__name__}")
        if value is not None and not isinstance(value, (str, bytes, int, float)):
            raise TypeError(
                f"header {shown(key)} is a {type(value).__name__}, not str, bytes, int, float, bool or None"
            )
    try:
        encoded: bytes = msgpack.packb(dict(headers))
    except OverflowError as error:
        raise ValueError("an int in headers has 64 bits at most") from error
    if len(encoded) > HEADERS_MAX:
        raise ValueError(f"headers of {len(encoded)} bytes are above the limit of {HEADERS_MAX}")
    return encoded


_SCALARS: Final = frozenset((str, bytes, int, float, bool, type(None)))


def unpack_headers(encoded: bytes) -> dict[str, HeaderValue] | None:
    """Decode the headers of one record or question; None if there are none.

    Accepts only what `pack_headers` makes. Raises `BlockError` for more than `HEADERS_MAX` bytes, for bytes
    that are not msgpack, and for a map of anything but names and plain values.
    """
    if not encoded:
        return None
    if len(encoded) > HEADERS_MAX:
        raise BlockError(f"the headers of a record have {len(encoded)} bytes; allowed are {HEADERS_MAX}")
    try:
        headers: Any = msgpack.unpackb(encoded, max_array_len=0, max_ext_len=0)
    except ValueError as error:  # every msgpack error is one; that of a forbidden byte has no text
        raise BlockError(
            f"the headers of a record are not msgpack: {str(error) or 'a forbidden byte'}"
        ) from error
    if type(headers) is not dict or not all(type(key) is str for key in headers):
        raise BlockError("the headers of a record are not a map of names")
    for key, value in headers.items():
        if type(value) not in _SCALARS:
            raise BlockError(
                f"header {shown(key)} of a record is a {type(value).__name__}, not a plain value"
            )
    return headers


def check_headers(data: bytes, start: int) -> None:
    """Raise `BlockError` unless the headers of every record in a block that passed `check` can be unpacked.

    The broker that receives a block from a client calls this, so that one publisher's bad headers reach
    nobody; other brokers need not check again. It costs nothing for a block without headers, and equal
    headers are checked once.
    """
    if data[start + 1] & HEADERS:
        for encoded in dict.fromkeys(open_block(data, start).headers or ()):
            unpack_headers(encoded)


# --- opening


class Opened:
    """A block that was read: its header fields and its records. Plain slots, since one is made for each
    received block."""

    __slots__ = (
        "bodies",
        "boot",
        "headers",
        "level",
        "offset",
        "publisher",
        "sequence",
        "topic",
        "whole_size",
    )

    def __init__(
        self,
        topic: bytes,
        level: int,
        sequence: int,
        publisher: int,
        boot: int,
        bodies: Sequence[bytes],
        headers: list[bytes] | None,
        whole_size: int,
        offset: int,
    ) -> None:
        self.topic = topic
        self.level = level
        self.sequence = sequence
        self.publisher = publisher
        self.boot = boot
        self.bodies = bodies
        self.headers = headers
        self.whole_size = whole_size  # 0: not a piece
        self.offset = offset


def open_block(data: bytes, start: int = 0) -> Opened:
    """Read the block that fills ``data`` from ``start`` on. Raises `BlockError`."""
    end = len(data)
    if end - start < HEAD_SIZE:
        raise BlockError(f"a block of {end - start} bytes is shorter than its header of {HEAD_SIZE}")
    form, flags, level, topic_size, count, size, sequence, publisher, boot = HEAD.unpack_from(data, start)
    topic_at = start + HEAD_SIZE
    at = topic_at + topic_size
    whole_size = offset = 0
    if flags & PIECE:
        if end - at < 8:
            raise BlockError("a piece ends before its size and offset")
        whole_size, offset = _PIECE.unpack_from(data, at)
        at += 8
    at, sizes, header_sizes = _tables(data, at, end, form, flags, count, size)
    if flags & PIECE and (
        count != 1 or whole_size > BODY_MAX or offset + sizes_sum(sizes, size) > whole_size
    ):
        raise BlockError(f"a piece at {offset} does not fit a body of {whole_size} bytes")
    headers = None
    if header_sizes is not None:
        headers = slices(data, at, header_sizes)
        at += sum(header_sizes)
    bodies = equal_slices(data, at, count, size) if sizes is None else slices(data, at, sizes)
    topic = data[topic_at : topic_at + topic_size]
    return Opened(topic, level, sequence, publisher, boot, bodies, headers, whole_size, offset)


def check(data: bytes, start: int) -> None:
    """Raise `BlockError` unless a well-formed block fills ``data`` from ``start``; makes no records.

    A broker calls this for every block of a client, so that no subscriber gets one it cannot open.
    """
    end = len(data)
    if end - start < HEAD_SIZE:
        raise BlockError(f"a block of {end - start} bytes is shorter than its header of {HEAD_SIZE}")
    form, flags, level, topic_size, count, size, sequence, _, _ = HEAD.unpack_from(data, start)
    at = start + HEAD_SIZE + topic_size
    if level >= len(LEVELS):
        raise BlockError(f"level {level} is not known here; known are 0 (sent), 1 (accepted) and 2 (stored)")
    if sequence + count >= 1 << 63:
        raise BlockError("the sequence numbers of a block pass 2^63")
    if flags == EQUAL and form == FORMAT and count and count <= COUNT_MAX and end == at + count * size:
        return
    if flags & PIECE:
        open_block(data, start)
    else:
        _tables(data, at, end, form, flags, count, size)


def check_piece(data: bytes, start: int) -> None:
    """Raise `BlockError` unless a checked block with the flag PIECE is one that `seal_pieces` makes.

    It is for those who keep pieces until a body is whole. It guarantees that a body has at most ``BODY_MAX //
    SPLIT + 1`` pieces, each with its place.
    """
    block = open_block(data, start)
    offset, size = block.offset, len(block.bodies[0])
    if offset % SPLIT or size != min(SPLIT, block.whole_size - offset) or (offset and not size):
        raise BlockError(
            f"a piece of {size} bytes at {offset} of a body of {block.whole_size} bytes; pieces have {SPLIT}"
            " bytes, but for the last"
        )


def is_last_piece(data: bytes, start: int) -> bool:
    """True if a checked block with the flag PIECE ends its body."""
    block = open_block(data, start)
    return block.offset + len(block.bodies[0]) == block.whole_size


def offset_of(data: bytes | memoryview, start: int = 0) -> int:
    """Offset of the piece in a checked block within its body; 0 for a block of whole messages."""
    if not data[start + 1] & PIECE:
        return 0
    _, offset = _PIECE.unpack_from(data, start + HEAD_SIZE + data[start + 3])
    return int(offset)


def published_by(block: bytes, publisher: int) -> bytes:
    """The same block under another publisher."""
    named = publisher.to_bytes(8, "big")
    return block if block[20:28] == named else block[:20] + named + block[28:]


def largest_body(data: bytes, start: int = 0) -> int:
    """Size of the largest body in a checked block; for a piece, of the whole body."""
    flags, count, size = data[start + 1], *_COUNT_AND_SIZE.unpack_from(data, start + 4)
    at = start + HEAD_SIZE + data[start + 3]
    if flags & PIECE:
        return int(_PIECE.unpack_from(data, at)[0])
    return int(size) if flags & EQUAL else max(struct.unpack_from(f">{count}I", data, at))


def sizes_sum(sizes: tuple[int, ...] | None, size: int) -> int:
    """Size of the one body of a piece, in either layout."""
    return size if sizes is None else sum(sizes)


def _tables(
    data: bytes, at: int, end: int, form: int, flags: int, count: int, size: int
) -> tuple[int, tuple[int, ...] | None, tuple[int, ...] | None]:
    """Check the tables; return the offset behind them, the sizes of the bodies (None: equal) and those of the
    headers (None: none)."""
    if form != FORMAT:
        raise BlockError(f"a block of format {form}; this program knows {FORMAT}")
    if flags & ~(EQUAL | HEADERS | PIECE):
        raise BlockError(f"a block has unknown flags {flags:#x}")
    if not 0 < count <= COUNT_MAX:
        raise BlockError(f"a block of {count} records; allowed are 1 to {COUNT_MAX}")
    sizes: tuple[int, ...] | None = None
    header_sizes: tuple[int, ...] | None = None
    tables = (0 if flags & EQUAL else 1) + (1 if flags & HEADERS else 0)
    if end - at < tables * 4 * count:
        raise BlockError(f"a block of {count} records ends within its tables")
    if flags & EQUAL:
        bodies_size = count * size
    else:
        sizes = struct.unpack_from(f">{count}I", data, at)
        bodies_size = sum(sizes)
        at += 4 * count
    if flags & HEADERS:
        header_sizes = struct.unpack_from(f">{count}I", data, at)
        at += 4 * count
        bodies_size += sum(header_sizes)
    if at + bodies_size != end:
        raise BlockError(f"a block's records need {bodies_size} bytes and there are {end - at}")
    return at, sizes, header_sizes


def slices(data: bytes, at: int, sizes: Sequence[int]) -> list[bytes]:
    """Cut ``data`` into neighbouring parts of these sizes."""
    ends = list(accumulate(sizes, initial=at))
    return [data[start:stop] for start, stop in zip(ends, islice(ends, 1, None), strict=False)]


def equal_slices(data: bytes, at: int, count: int, size: int) -> Sequence[bytes]:
    """Cut ``count`` neighbours of one size, by one call of a compiled Struct (15 ns a record against 87 by
    slicing)."""
    if count > 1024:
        return (
            [data[start : start + size] for start in range(at, at + count * size, size)]
            if size
            else [b""] * count
        )
    return _equal_struct(count, size).unpack_from(data, at)


@lru_cache(maxsize=512)  # a bounded memo of a pure function; publishers use few (count, size) pairs
def _equal_struct(count: int, size: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * count)


class Assembler:
    """Puts pieces of large bodies together, one body at a time for each (publisher, topic).

    Unfinished bodies take at most ``bytes_max``, where each piece counts `PIECE_COST` beside its bytes.
    Beyond that the body that was continued longest ago is given up, and counted in ``given_up``. A body also
    ends when a piece does not continue it, or begins the next one. The loss was then counted where that piece
    was dropped, or where its publisher stopped.
    """

    __slots__ = ("_bytes", "_open", "bytes_max", "given_up")

    def __init__(self, bytes_max: int = UNFINISHED_MAX) -> None:
        self.bytes_max = bytes_max
        self.given_up = 0
        self._bytes = 0
        self._open: dict[tuple[int, int, bytes], _Unfinished] = {}

    def add(self, block: Opened) -> tuple[bytes, bytes] | None:
        """Add one piece; returns (body, headers) if it was the last one missing."""
        key = (block.publisher, block.boot, block.topic)
        piece = block.bodies[0]
        body = self._open.pop(key, None)
        if body is not None and (body.sequence != block.sequence or body.size != block.offset):
            self._bytes -= body.cost
            body = None
        if body is None:
            if block.offset != 0:
                return None  # its beginning was dropped and counted before
            body = _Unfinished(block.sequence, block.headers[0] if block.headers else b"")
        body.pieces.append(piece)
        body.size += len(piece)
        if body.size >= block.whole_size:
            self._bytes -= body.cost
            return b"".join(body.pieces), body.headers
        body.cost += len(piece) + PIECE_COST
        self._bytes += len(piece) + PIECE_COST
        self._open[key] = body  # to the end: behind bodies that were continued earlier
        while self._bytes > self.bytes_max:
            self._bytes -= self._open.pop(next(iter(self._open))).cost
            self.given_up += 1
        return None


class _Unfinished:
    __slots__ = ("cost", "headers", "pieces", "sequence", "size")

    def __init__(self, sequence: int, headers: bytes) -> None:
        self.cost = 0
        self.sequence = sequence
        self.headers = headers
        self.pieces: list[bytes] = []
        self.size = 0


class Seen:
    """Remembers the sequence numbers of each publisher that have passed, wherever a retry could come through
    twice.

    For each (publisher, boot) at most ``ranges_max`` ranges are kept; the lowest are forgotten first, as if
    never seen. At most ``publishers_max`` publishers are kept; the one silent for longest is forgotten.
    ``forgotten`` counts both.
    """

    __slots__ = ("_publishers", "forgotten", "publishers_max", "ranges_max")

    def __init__(self, publishers_max: int = 1024, ranges_max: int = 1024) -> None:
        self.publishers_max = publishers_max
        self.ranges_max = ranges_max
        self.forgotten = 0
        self._publishers: dict[tuple[int, int], list[list[int]]] = {}

    def __len__(self) -> int:
        return len(self._publishers)

    def add(self, publisher: int, boot: int, sequence: int, count: int) -> bool:
        """Note the records as seen; False if all of them were seen before (a sealed block never changes its
        bounds)."""
        key = (publisher, boot)
        ranges = self._publishers.get(key)
        end = sequence + count
        if ranges is None:
            if len(self._publishers) >= self.publishers_max:
                del self._publishers[next(iter(self._publishers))]
                self.forgotten += 1
            self._publishers[key] = [[sequence, end]]
            return True
        if len(self._publishers) * 2 > self.publishers_max:  # the order of use matters only when it gets full
            self._publishers[key] = self._publishers.pop(key)
        last = ranges[-1]
        if last[1] == sequence:  # in order, as nearly always
            last[1] = end
            return True
        if sequence > last[1]:
            ranges.append([sequence, end])
            if len(ranges) > self.ranges_max:
                del ranges[0]
                self.forgotten += 1
            return True
        return self._add_old(ranges, sequence, end)

    def _add_old(self, ranges: list[list[int]], sequence: int, end: int) -> bool:
        index = next(i for i, known in enumerate(ranges) if sequence <= known[1])
        known = ranges[index]
        if known[0] <= sequence and end <= known[1]:
            return False
        merged = [sequence, end]
        rest = index
        while rest < len(ranges) and ranges[rest][0] <= end:
            merged = [min(merged[0], ranges[rest][0]), max(merged[1], ranges[rest][1])]
            rest += 1
        ranges[index:rest] = [merged]
        if len(ranges) > self.ranges_max:
            del ranges[0]
            self.forgotten += 1
        return True
