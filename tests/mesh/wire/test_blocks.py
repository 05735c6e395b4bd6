"""Blocks: a sealed block opens as it was, and nothing else opens."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import BlockError
from mesh.wire import blocks
from mesh.wire.blocks import (
    ACCEPTED,
    COUNT_MAX,
    HEAD_SIZE,
    SPLIT,
    Assembler,
    Seen,
    check,
    check_headers,
    cut,
    open_block,
    pack_headers,
    seal,
    seal_pieces,
    split,
    unpack_headers,
)

BODIES = st.lists(st.binary(max_size=60), min_size=1, max_size=40)


def sealed(*bodies: bytes, headers: list[bytes] | None = None) -> bytes:
    return seal(b"t.u", bodies, publisher=1, boot=2, sequence=3, headers=headers)


def test_the_header_is_as_documented() -> None:
    block = seal(b"t.u", [b"xy", b"zw"], publisher=0x0102, boot=0x0304, sequence=5, level=ACCEPTED)
    assert block.hex() == (
        "01" "01" "01" "03" "00000002" "00000002"
        "0000000000000005" "0000000000000102" "0000000000000304"
        "742e75" "7879" "7a77"
    )  # fmt: skip
    mixed = seal(b"t", [b"a", b"bc"], publisher=1, boot=1, sequence=1, headers=[b"", b"\x80"])
    assert mixed[HEAD_SIZE + 1 :].hex() == "0000000100000002000000000000000180616263"
    assert mixed[1] == blocks.HEADERS


@given(BODIES, st.booleans(), st.integers(0, 1), st.integers(0, 1 << 62), st.booleans())
def test_an_opened_block_equals_the_sealed_one(
    bodies: list[bytes], equal: bool, level: int, sequence: int, headed: bool
) -> None:
    if equal:
        bodies = [body.ljust(60, b".") for body in bodies]
    headers = [pack_headers({"n": index}) if index % 2 else b"" for index in range(len(bodies))]
    block = seal(
        b"a.b",
        bodies,
        publisher=7,
        boot=8,
        sequence=sequence,
        level=level,
        headers=headers if headed else None,
    )
    check(b"\0" * 5 + block, 5)
    opened = open_block(b"\0" * 5 + block, 5)
    assert list(opened.bodies) == bodies and opened.headers == (headers if headed else None)
    assert (opened.topic, opened.level, opened.sequence) == (b"a.b", level, sequence)
    assert (opened.publisher, opened.boot, opened.whole_size) == (7, 8, 0)


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_a_block_error_only(data: bytes) -> None:
    for read in (open_block, lambda data: check(data, 0)):
        try:
            read(data)
        except BlockError:
            pass


@given(BODIES, st.data())
def test_a_damaged_block_opens_within_its_bounds_or_not_at_all(
    bodies: list[bytes], data: st.DataObject
) -> None:
    block = bytearray(sealed(*bodies, headers=[pack_headers({"a": 1})] * len(bodies)))
    at = data.draw(st.integers(0, len(block) - 1))
    block[at] = data.draw(st.integers(0, 255))
    try:
        opened = open_block(bytes(block))
    except BlockError:
        return
    assert len(opened.bodies) <= COUNT_MAX
    assert sum(map(len, opened.bodies)) <= len(block)


@pytest.mark.parametrize("cut_off", [1, 2, 5, 20, HEAD_SIZE])
def test_a_block_that_is_cut_short_or_has_more_behind_it_is_refused(cut_off: int) -> None:
    for block in (sealed(b"ab", b"cd"), sealed(b"a", b"bcd")):
        with pytest.raises(BlockError):
            open_block(block[:-cut_off])
        with pytest.raises(BlockError):
            check(block[:-cut_off], 0)
        with pytest.raises(BlockError):
            check(block + b"x" * cut_off, 0)


def test_unknown_formats_flags_levels_and_counts_are_refused() -> None:
    good = sealed(b"ab")
    for at, value in ((0, 2), (1, 0x81), (2, 9)):
        bad = good[:at] + bytes([value]) + good[at + 1 :]
        with pytest.raises(BlockError):
            check(bad, 0)
    with pytest.raises(BlockError, match="records"):
        check(good[:4] + (0).to_bytes(4, "big") + good[8:], 0)
    with pytest.raises(BlockError, match="records"):
        check(good[:4] + (COUNT_MAX + 1).to_bytes(4, "big") + good[8:], 0)
    with pytest.raises(BlockError, match="2\\^63"):
        check(seal(b"t", [b"x"], publisher=1, boot=1, sequence=(1 << 63) - 1), 0)


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=60))
def test_a_split_covers_everything_once_and_keeps_the_bounds(sizes: list[int]) -> None:
    bodies = [b"x" * size for size in sizes]
    parts = split(bodies)
    assert [index for start, stop in parts for index in range(start, stop)] == list(range(len(bodies)))
    for start, stop in parts:
        assert stop - start == 1 or sum(sizes[start:stop]) <= SPLIT


def test_many_small_records_are_split_by_count() -> None:
    assert split([b""] * (COUNT_MAX + 1)) == [(0, COUNT_MAX), (COUNT_MAX, COUNT_MAX + 1)]
    assert split([b"", b"x"] * COUNT_MAX)[0] == (0, COUNT_MAX)


# --- cutting a sealed block

FORMS = st.sampled_from(("sizes", "equal", "empty"))


@given(BODIES, FORMS, st.booleans(), st.data())
def test_each_record_of_a_cut_is_that_of_the_block(
    bodies: list[bytes], form: str, headed: bool, data: st.DataObject
) -> None:
    if form != "sizes":
        bodies = [body.ljust(60, b".") if form == "equal" else b"" for body in bodies]
    headers = [pack_headers({"n": index}) if index % 3 else b"" for index in range(len(bodies))]
    block = seal(
        b"a.b",
        bodies,
        publisher=7,
        boot=8,
        sequence=100,
        level=ACCEPTED,
        headers=headers if headed else None,
    )
    first = data.draw(st.integers(0, len(bodies) - 1))
    count = data.draw(st.integers(1, len(bodies) - first))
    part = cut(block, first, count)
    check(part, 0)
    check_headers(part, 0)
    opened = open_block(part)
    assert list(opened.bodies) == bodies[first : first + count]
    assert opened.headers == (headers[first : first + count] if headed else None)
    assert (opened.topic, opened.level, opened.sequence) == (b"a.b", ACCEPTED, 100 + first)
    assert (opened.publisher, opened.boot, opened.whole_size) == (7, 8, 0)
    inner = data.draw(st.integers(1, count))
    assert cut(part, count - inner, inner) == cut(block, first + count - inner, inner)


@pytest.mark.parametrize("size", [None, 0, 12])
@pytest.mark.parametrize("headed", [False, True])
def test_the_cuts_of_a_full_block_are_its_records(size: int | None, headed: bool) -> None:
    bodies = [b"x" * (index % 13 if size is None else size) for index in range(COUNT_MAX)]
    headers = [b"" if index % 7 else pack_headers({"n": index}) for index in range(COUNT_MAX)]
    block = seal(b"t", bodies, publisher=1, boot=2, sequence=5, headers=headers if headed else None)
    got = [open_block(cut(block, index, 1)) for index in range(COUNT_MAX)]
    assert [record.bodies[0] for record in got] == bodies
    assert [record.sequence for record in got] == list(range(5, 5 + COUNT_MAX))
    if headed:
        assert [record.headers for record in got] == [[head] for head in headers]


def test_a_cut_of_all_records_is_the_block_itself() -> None:
    for block in (sealed(b"a", b"b"), sealed(b"a", b"bc"), *pieces(bytes(SPLIT + 1))):
        assert cut(block, 0, len(open_block(block).bodies)) is block


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 0), (0, 4), (3, 1), (2, 2), (1, -1)])
def test_records_that_a_block_does_not_have_cannot_be_cut(first: int, count: int) -> None:
    for block in (sealed(b"a", b"b", b"c"), sealed(b"a", b"bc", b"d")):
        with pytest.raises(ValueError, match="are not in a block of 3"):
            cut(block, first, count)


def test_a_piece_of_a_body_cannot_be_cut() -> None:
    for piece in pieces(bytes(SPLIT + 1), headers=pack_headers({"a": 1})):
        for first, count in ((0, 2), (1, 1), (0, 0)):
            with pytest.raises(ValueError, match="a piece of a body, which is never cut"):
                cut(piece, first, count)


def test_a_block_with_damaged_tables_is_not_cut() -> None:
    block = sealed(b"a", b"bc", b"d")
    with pytest.raises(BlockError):
        cut(block[:-1], 1, 1)


def test_headers_are_limited_to_plain_values() -> None:
    headers = {"a": 1, "b": "x", "c": b"y", "d": None, "e": 1.5, "f": True}
    assert unpack_headers(pack_headers(headers)) == headers
    assert pack_headers({}) == pack_headers(None) == b"" and unpack_headers(b"") is None
    with pytest.raises(TypeError, match="list"):
        pack_headers({"a": [1]})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="names"):
        pack_headers({1: "a"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="limit"):
        pack_headers({"a": "x" * 9000})
    for bad in (b"\x01", b"\x81\x01\x02", b"\x81", b"\xc1", b"\x91\x01", b"\x80\x80"):
        with pytest.raises(BlockError):
            unpack_headers(bad)


MAPS: st.SearchStrategy[dict[str, blocks.HeaderValue]] = st.dictionaries(
    st.text(max_size=20),
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
)

FOREIGN = {
    "a forbidden byte": b"\xc1\xc1",
    "a list": b"\x92\x01\x02",
    "names that are ints": b"\x81\x01\x02",
    "names that are bytes": b"\x81\xc4\x01a\x01",
    "a name that is not UTF-8": b"\x81\xa1\xff\x01",
    "an extension": b"\x81\xa1a\xd4\x05x",
    "an empty extension": b"\x81\xa1a\xc7\x00\x05",
    "a timestamp": b"\x81\xa1a\xd6\xff\x00\x00\x00\x01",
    "a map within": b"\x81\xa1a\x81\xa1b\x01",
    "an empty list within": b"\x81\xa1a\x90",
    "lists without end": b"\x81\xa1a" + b"\x91" * 3000 + b"\x00",
    "a list that claims 4 G": b"\x81\xa1a\xdd\xff\xff\xff\xff",
    "a map that claims 4 G": b"\xdf\xff\xff\xff\xff",
    "more than HEADERS_MAX": b"\x81\xa1a\xda\x20\x00" + b"x" * 8192,
    "something behind the map": b"\x80\x80",
}


@pytest.mark.parametrize("encoded", FOREIGN.values(), ids=FOREIGN.keys())
def test_unreadable_headers_are_refused_when_the_block_arrives(encoded: bytes) -> None:
    with pytest.raises(BlockError, match=r"header.*[^ :]$"):
        unpack_headers(encoded)
    block = sealed(b"good", b"bad", headers=[pack_headers({"a": 1}), encoded])
    check(block, 0)
    with pytest.raises(BlockError):
        check_headers(b"\0" * 4 + block, 4)
    piece = seal_pieces(b"t", bytes(SPLIT + 1), publisher=1, boot=2, sequence=3, headers=encoded)[0]
    with pytest.raises(BlockError):
        check_headers(piece, 0)


@given(st.binary(max_size=40))
def test_foreign_headers_are_plain_values_or_a_block_error(encoded: bytes) -> None:
    try:
        headers = unpack_headers(encoded) or {}
    except BlockError:
        return
    pack_headers(headers)


@given(MAPS)
def test_headers_that_can_be_packed_pass_the_check(headers: dict[str, blocks.HeaderValue]) -> None:
    try:
        encoded = pack_headers(headers)
    except ValueError:
        return  # more than HEADERS_MAX
    check_headers(sealed(b"a", b"b", b"c", headers=[encoded, b"", encoded]), 0)
    assert repr(unpack_headers(encoded) or {}) == repr(headers)


def test_as_many_short_headers_as_fit_are_allowed_and_an_int_of_65_bits_is_not() -> None:
    many = {chr(0x100 + index): 1 for index in range(1900)}
    assert unpack_headers(pack_headers(many)) == many
    with pytest.raises(ValueError, match="64 bits"):
        pack_headers({"a": 1 << 64})


def test_blocks_without_headers_pass_the_check_of_headers() -> None:
    for block in (
        sealed(b"ab", b"cd"),
        sealed(b"a", b"bc"),
        *seal_pieces(b"t", bytes(SPLIT + 1), publisher=1, boot=2, sequence=3),
    ):
        check_headers(block, 0)


# --- large bodies


def pieces(body: bytes, sequence: int = 1, headers: bytes = b"") -> list[bytes]:
    return seal_pieces(b"t", body, publisher=1, boot=2, sequence=sequence, headers=headers)


def test_a_large_body_is_put_together_with_its_headers() -> None:
    body = bytes(range(256)) * 1000
    assembler = Assembler()
    found = [assembler.add(open_block(piece)) for piece in pieces(body, headers=b"\x80")]
    assert found[:-1] == [None] * 3 and found[-1] == (body, b"\x80")
    assert [blocks.is_last_piece(piece, 0) for piece in pieces(body)] == [False] * 3 + [True]
    for piece in pieces(body):
        check(piece, 0)


def test_a_lost_piece_gives_the_body_up_and_the_next_body_is_whole() -> None:
    body = b"x" * 200_000
    assembler = Assembler()
    first, _, *rest = pieces(body)
    assert [assembler.add(open_block(piece)) for piece in (first, *rest)] == [None] * 3
    assert assembler.given_up == 0 and assembler._bytes == 0, "who dropped the piece has counted it"
    assert [assembler.add(open_block(piece)) for piece in pieces(body, 2)][-1] == (body, b"")


def test_a_body_that_begins_again_replaces_its_beginning() -> None:
    body = b"x" * 100_000
    assembler = Assembler()
    assembler.add(open_block(pieces(body)[0]))
    assert [assembler.add(open_block(piece)) for piece in pieces(body)][-1] == (body, b"")


def test_unfinished_bodies_are_bounded_in_bytes_and_the_one_that_stopped_first_goes_first() -> None:
    many = [
        [open_block(piece) for piece in seal_pieces(b"t", bytes(200_000), publisher=1, boot=boot, sequence=1)]
        for boot in range(3)
    ]
    assembler = Assembler(bytes_max=4 * (SPLIT + blocks.PIECE_COST))
    for boot, piece in ((0, 0), (1, 0), (0, 1), (2, 0)):
        assembler.add(many[boot][piece])
    assert assembler.given_up == 0 and len(assembler._open) == 3
    assembler.add(many[2][1])
    assert assembler.given_up == 1
    found = [assembler.add(many[boot][piece]) for boot, piece in ((1, 1), (0, 2), (0, 3))]
    assert found == [None, None, (bytes(200_000), b"")], "a rest of what was given up is dropped"
    assert assembler.given_up == 2 and assembler._bytes == 0


def test_hundreds_of_bodies_may_be_unfinished_at_once() -> None:
    """A subscription allowed at most 16."""
    many = [seal_pieces(b"t", bytes(100_000), publisher=n, boot=1, sequence=1) for n in range(300)]
    assembler = Assembler()
    whole = [assembler.add(open_block(pieces[end])) for end in range(2) for pieces in many]
    assert whole[300:] == [(bytes(100_000), b"")] * 300 and assembler._bytes == 0


def test_tiny_pieces_count_for_more_than_their_bytes() -> None:
    assembler = Assembler(bytes_max=100 * blocks.PIECE_COST)
    for boot in range(200):
        piece = seal_pieces(b"t", bytes(100_000), publisher=1, boot=boot, sequence=1)[0]
        tiny = open_block(piece)
        tiny.bodies = [b""]
        assembler.add(tiny)
    assert len(assembler._open) == 100 and assembler.given_up == 100


def test_only_pieces_as_they_are_sealed_pass_as_such() -> None:
    body = bytes(2 * SPLIT + 5)
    for piece in seal_pieces(b"t", body, publisher=1, boot=2, sequence=3, headers=b"\x81\xa1a\x01"):
        blocks.check_piece(b"before" + piece, 6)
    for body in (b"", b"x"):
        for piece in seal_pieces(b"t", body, publisher=1, boot=2, sequence=3):
            blocks.check_piece(piece, 0)
    for whole, offset, size in ((100, 0, 99), (100, 1, 99), (2 * SPLIT, SPLIT, SPLIT - 1), (SPLIT, SPLIT, 0)):
        flags, each, table = blocks.layout([bytes(size)])
        head = blocks.HEAD.pack(blocks.FORMAT, flags | blocks.PIECE, 2, 1, 1, each, 3, 1, 2)
        data = b"".join((head, b"t", struct.pack(">II", whole, offset), table, bytes(size)))
        blocks.check(data, 0)
        with pytest.raises(BlockError, match=f"a piece of {size} bytes at {offset}"):
            blocks.check_piece(data, 0)


def test_pieces_that_do_not_fit_their_body_are_refused() -> None:
    first, last = pieces(b"x" * 70_000)
    at = HEAD_SIZE + 1
    for bad in (
        first[:at] + (100).to_bytes(4, "big") + first[at + 4 :],
        first[:at] + (1 << 31).to_bytes(4, "big") + first[at + 4 :],
        last[: at + 4] + (70_000).to_bytes(4, "big") + last[at + 8 :],
        first[: at + 3],
    ):
        with pytest.raises(BlockError):
            open_block(bad)
        with pytest.raises(BlockError):
            check(bad, 0)
    with pytest.raises(ValueError, match="limit"):
        pieces(bytes(blocks.BODY_MAX + 1))


# --- remembered numbers


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=60))
def test_seen_tells_a_repeated_block_from_a_new_one(steps: list[tuple[int, int]]) -> None:
    """Blocks never change their bounds, so two blocks are either the same or disjoint."""
    seen, known = Seen(), set()
    for number, _ in steps:
        new = seen.add(1, 1, number * 10, 5)
        assert new is (number not in known)
        known.add(number)


def test_seen_is_bounded_in_ranges_and_publishers() -> None:
    seen = Seen(publishers_max=2, ranges_max=3)
    for number in range(10):
        seen.add(1, 1, number * 10, 5)
    assert not seen.add(1, 1, 90, 5)
    assert seen.add(1, 1, 0, 5), "forgotten, as if never seen"
    seen.add(2, 1, 1, 1)
    seen.add(1, 1, 90, 5)
    seen.add(3, 1, 1, 1)
    assert len(seen) == 2 and seen.forgotten == 9, "8 ranges and a publisher"
    assert not seen.add(1, 1, 90, 5), "2 was unheard for longest"


def test_ranges_that_meet_become_one() -> None:
    seen = Seen(ranges_max=3)
    for sequence in (1, 21, 11):
        assert seen.add(1, 1, sequence, 10)
    assert seen._publishers[1, 1] == [[1, 31]]
    assert not seen.add(1, 1, 5, 20)
