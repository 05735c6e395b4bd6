"""A file's content equals the written bytes, however old they are, and takes little memory."""

from __future__ import annotations

import random

import pytest

from simulations.kernel.file_content import BLOCK, FileContent

LINE = b'{"v":1,"run":"calm-1","node":"55a35f15907c6e70","boot":"07e032c757a854a1","seq":%d,"kind":"hb"}\n'


def _log(rows: int) -> bytes:
    return b"".join(LINE % number for number in range(rows))


@pytest.mark.parametrize("seed", range(5))
def test_a_file_reads_like_plain_bytes_after_any_operations(seed: int) -> None:
    rng = random.Random(seed)
    plain, content = bytearray(), FileContent()
    for _ in range(60):
        if rng.random() < 0.7:
            data = _log(rng.randrange(600))[rng.randrange(50) :]
            plain += data
            content.append(data)
        elif rng.random() < 0.5:
            size = rng.randrange(len(plain) + 1) if rng.random() < 0.5 else max(0, len(plain) - 100)
            del plain[size:]
            content.cut(size)
        elif plain:
            bit = rng.randrange(len(plain) * 8)
            plain[bit // 8] ^= 1 << bit % 8
            content.flip(bit)
        assert len(content) == len(plain) and bytes(content) == plain
        start = rng.randrange(len(plain) + 1)
        assert b"".join(content.pieces(start)) == plain[start:]


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK])
def test_a_file_may_be_cut_and_read_at_the_edges_of_its_blocks(size: int) -> None:
    data = _log(2000)
    content = FileContent(data)
    assert b"".join(content.pieces(size)) == data[size:]
    content.cut(size)
    assert bytes(content) == data[:size] and len(content) == size
    content.append(b"more")
    assert bytes(content) == data[:size] + b"more"


def test_a_long_log_takes_a_small_part_of_its_size() -> None:
    """Logs were kept uncompressed: 100 brokers wrote 265 MB in 75 seconds."""
    content = FileContent()
    for number in range(20_000):
        content.append(LINE % number)
    assert len(content) > 1_500_000
    assert content.stored < len(content) / 8
