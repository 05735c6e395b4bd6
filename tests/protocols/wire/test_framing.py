"""Frames survive every cut of a stream; bytes that are no frame end the stream before it takes memory."""

from __future__ import annotations

import itertools
import random
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import MessageTooLarge, RemoteProtocolError
from protocols.wire.framing import (
    BUFFER_SIZE,
    IPC_LEAD,
    TCP_LEAD,
    FrameDecoder,
    encode_buffers,
    encode_frames,
)

LEADS = [TCP_LEAD, IPC_LEAD]

# Sizes repeat, so that the decoder's run of equal frames begins, ends early and ends late.
frame_lists = st.lists(st.tuples(st.sampled_from([0, 1, 3, 8, 9, 40]), st.integers(1, 25)), max_size=12).map(
    lambda runs: [bytes([size]) * size for size, count in runs for _ in range(count)]
)


def reference_encoding(frames: list[bytes], lead: bytes) -> bytes:
    return b"".join(lead + len(frame).to_bytes(8, "big") + frame for frame in frames)


def decode(chunks: list[bytes], lead: bytes, size_max: int = 0) -> tuple[list[bytes], FrameDecoder]:
    decoder = FrameDecoder(size_max, lead)
    frames = [frame for chunk in chunks for frame in decoder.feed(memoryview(chunk))]
    return frames, decoder


@pytest.mark.parametrize(
    ("frame", "lead", "wire"),
    [
        (b"", TCP_LEAD, "0000000000000000"),
        (b"hi", TCP_LEAD, "00000000000000026869"),
        (b"hi", IPC_LEAD, "0100000000000000026869"),
    ],
)
def test_encoding_and_decoding_agree_with_the_vectors(frame: bytes, lead: bytes, wire: str) -> None:
    assert encode_frames([frame], lead).hex() == wire
    assert decode([bytes.fromhex(wire)], lead)[0] == [frame]


def test_no_frames_are_no_bytes() -> None:
    assert encode_frames([]) == b""


@given(frame_lists, st.sampled_from(LEADS))
def test_frames_are_read_from_a_whole_stream(frames: list[bytes], lead: bytes) -> None:
    wire = encode_frames(frames, lead)
    assert wire == reference_encoding(frames, lead)
    decoded, decoder = decode([wire], lead)
    assert decoded == frames
    assert all(type(frame) is bytes for frame in decoded)
    assert not decoder.inside_frame


@given(frame_lists, st.sampled_from(LEADS))
def test_frames_are_read_byte_by_byte(frames: list[bytes], lead: bytes) -> None:
    wire = encode_frames(frames, lead)
    decoded, decoder = decode([wire[i : i + 1] for i in range(len(wire))], lead)
    assert decoded == frames
    assert not decoder.inside_frame


@given(frame_lists, st.sampled_from(LEADS), st.data())
def test_frames_are_read_at_random_cuts(frames: list[bytes], lead: bytes, data: st.DataObject) -> None:
    wire = encode_frames(frames, lead)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    chunks = [wire[a:b] for a, b in itertools.pairwise([0, *cuts, len(wire)])]
    assert decode(chunks, lead)[0] == frames


@given(frame_lists.filter(lambda frames: len(frames) > 0), st.sampled_from(LEADS), st.data())
def test_an_end_inside_a_frame_is_noticed_and_loses_that_frame_only(
    frames: list[bytes], lead: bytes, data: st.DataObject
) -> None:
    wire = encode_frames(frames, lead)
    last = len(lead) + 8 + len(frames[-1])
    missing = data.draw(st.integers(1, last - 1))
    decoded, decoder = decode([wire[:-missing]], lead)
    assert decoded == frames[:-1]
    assert decoder.inside_frame
    assert decoder.failure is None


@pytest.mark.parametrize("lead", LEADS)
def test_a_frame_of_the_limit_passes_and_one_byte_more_does_not(lead: bytes) -> None:
    wire = encode_frames([b"a", b"b" * 100, b"c" * 101, b"d"], lead)
    for chunks in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
        decoded, decoder = decode(chunks, lead, size_max=100)
        assert decoded == [b"a", b"b" * 100], "frames before the broken rule are not lost"
        assert isinstance(decoder.failure, MessageTooLarge)
        assert (decoder.failure.size, decoder.failure.size_max) == (101, 100)
        assert decoder.feed(b"more") == []


def test_the_limit_also_holds_within_a_run_of_equal_frames() -> None:
    decoded, decoder = decode([encode_frames([b"x" * 50] * 40 + [b"y" * 101])], TCP_LEAD, size_max=100)
    assert len(decoded) == 40
    assert isinstance(decoder.failure, MessageTooLarge)


def test_an_announced_size_takes_no_memory() -> None:
    decoder = FrameDecoder(0)
    tracemalloc.start()
    try:
        assert decoder.feed((1 << 62).to_bytes(8, "big") + b"only this") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("lead_byte", [0, 2, 255])
def test_an_ipc_frame_of_another_type_is_refused(lead_byte: int) -> None:
    good = encode_frames([b"good"], IPC_LEAD)
    decoded, decoder = decode([good + bytes([lead_byte]) + bytes(8)], IPC_LEAD)
    assert decoded == [b"good"]
    assert isinstance(decoder.failure, RemoteProtocolError)
    assert "instead of 0x01" in str(decoder.failure)


def test_a_lead_byte_that_changes_within_a_run_is_refused() -> None:
    wire = bytearray(encode_frames([b"x" * 10] * 30, IPC_LEAD))
    wire[20 * 19] = 7
    decoded, decoder = decode([bytes(wire)], IPC_LEAD)
    assert len(decoded) == 20
    assert decoder.failure is not None


def test_a_big_frame_arrives_in_chunks_between_small_ones() -> None:
    frames = [b"before", bytes(range(256)) * 8192, b"after"]
    wire = encode_frames(frames)
    decoded, decoder = decode([wire[i : i + 65536] for i in range(0, len(wire), 65536)], TCP_LEAD)
    assert decoded == frames
    assert not decoder.inside_frame


def test_the_chunks_memory_may_be_used_again() -> None:
    buffer = bytearray(encode_frames([b"first", b"second"]))
    decoder = FrameDecoder(0)
    frames = decoder.feed(memoryview(buffer)[:20])
    buffer[:20] = bytes(20)
    frames += decoder.feed(memoryview(buffer)[20:])
    assert frames == [b"first", b"second"]


@given(st.binary(max_size=200), st.sampled_from(LEADS), st.integers(0, 50))
def test_garbage_gives_frames_or_a_failure_and_never_an_exception(
    garbage: bytes, lead: bytes, size_max: int
) -> None:
    decoder = FrameDecoder(size_max, lead)
    for i in range(0, len(garbage), 7):
        for frame in decoder.feed(garbage[i : i + 7]):
            assert not size_max or len(frame) <= size_max


@pytest.mark.parametrize("lead", [TCP_LEAD, IPC_LEAD])
def test_large_frames_among_small_ones_are_read_whole_at_any_cuts(lead: bytes) -> None:
    rng = random.Random(7)
    frames = [rng.randbytes(size) for size in (9000, 3, 70_000, 8192, 0, 100_000, 8191, 65_536, 1)]
    stream = encode_frames(frames, lead)
    for size in (1000, 8192, 9008, 65_536, len(stream), len(stream) - 1):
        decoder = FrameDecoder(1 << 20, lead)
        found: list[bytes] = []
        for start in range(0, len(stream), size):
            found += decoder.feed(memoryview(stream)[start : start + size])
        assert found == frames and decoder.failure is None and not decoder.inside_frame


def test_a_large_frame_above_the_limit_or_with_a_wrong_lead_ends_decoding() -> None:
    good, bad = bytes(9000), bytes(20_000)
    decoder = FrameDecoder(10_000)
    assert decoder.feed(encode_frames([good, bad])) == [good] and decoder.failure is not None
    stream = bytearray(encode_frames([good, good], IPC_LEAD))
    stream[9 + 9000] = 2
    decoder = FrameDecoder(10_000, IPC_LEAD)
    assert decoder.feed(bytes(stream)) == [good] and decoder.failure is not None


SIZES_AROUND_A_BUFFER = st.sampled_from([0, 5, 70_000, BUFFER_SIZE - 1, BUFFER_SIZE, BUFFER_SIZE + 1])


@given(st.lists(SIZES_AROUND_A_BUFFER, max_size=8), st.sampled_from(LEADS))
def test_buffers_are_the_same_bytes_in_pieces_of_bounded_size(sizes: list[int], lead: bytes) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    buffers = list(encode_buffers(frames, lead))
    assert b"".join(buffers) == reference_encoding(frames, lead)
    alone = {id(frame) for frame in frames if len(frame) >= BUFFER_SIZE}
    assert all(
        len(buffer) < 2 * BUFFER_SIZE + 9 * len(frames) for buffer in buffers if id(buffer) not in alone
    )


@pytest.mark.parametrize("others", [[], [b"small"]])
def test_a_frame_of_a_buffers_size_is_not_copied(others: list[bytes]) -> None:
    large = bytes(BUFFER_SIZE)
    assert any(buffer is large for buffer in encode_buffers([*others, large]))


def test_a_large_frame_that_arrives_in_chunks_is_in_memory_once() -> None:
    size = 16 << 20
    decoder = FrameDecoder(0)
    chunk = memoryview(bytes(65536))
    decoder.feed(size.to_bytes(8, "big"))
    tracemalloc.start()
    try:
        frames = [frame for _ in range(size // len(chunk)) for frame in decoder.feed(chunk)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in frames] == [size]
    assert peak < 1.25 * size


@pytest.mark.parametrize("size", [0, 5, 256])
@given(at=st.integers(0, 99), which=st.integers(0, 8), value=st.integers(0, 255))
def test_one_wrong_byte_in_a_long_run_is_found(size: int, at: int, which: int, value: int) -> None:
    """Runs are compared a column of bytes at a time: no byte of any prefix may be overlooked."""
    frame = bytes(size)
    wire = bytearray(encode_frames([frame] * 100, IPC_LEAD))
    position = at * (9 + size) + which
    wire[position] = value
    whole, decoder = decode([bytes(wire)], IPC_LEAD, size_max=300)
    single, reference = decode([bytes(wire[i : i + 1]) for i in range(len(wire))], IPC_LEAD, size_max=300)
    assert whole == single
    assert str(decoder.failure) == str(reference.failure)


def test_runs_that_keep_ending_do_not_cost_more_than_their_bytes() -> None:
    """Nine empty frames, then eight zeros, again and again: each run is tried, and looks long except for one
    byte in each eighty.
    """
    wire = encode_frames(([b""] * 9 + [bytes(8)]) * 10_000)
    started = time.process_time()
    frames, _ = decode([wire], TCP_LEAD)
    took_s = time.process_time() - started
    assert len(frames) == 100_000
    assert took_s < 0.4  # 0.04 s; 1.4 if every attempt looked at all that follows
