"""The effects of a power loss, a failed sync and damage on a file that is written in place."""

from __future__ import annotations

import random

import pytest

from simulations.kernel.file_content import FileContent
from simulations.kernel.files import File, SectorFile
from simulations.kernel.sectors import SECTOR, SectorContent


def filled(byte: bytes, sectors: int = 4) -> SectorFile:
    """A file of so many sectors, all of them on the medium."""
    file = SectorFile()
    file.write(0, byte * SECTOR * sectors)
    file.sync()
    return file


def sectors_of(file: SectorFile) -> list[bytes]:
    data = bytes(file.content)
    return [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]


def test_synced_data_survives_every_power_loss() -> None:
    for seed in range(50):
        file = filled(b"a")
        file.lose_power(random.Random(seed))
        assert bytes(file.content) == b"a" * 4 * SECTOR


def test_each_sector_that_was_not_synced_is_kept_lost_or_torn_on_its_own() -> None:
    seen: set[str] = set()
    for seed in range(200):
        file = filled(b"a")
        file.write(SECTOR, b"b" * 2 * SECTOR)
        file.lose_power(random.Random(seed))
        first, *written, last = sectors_of(file)
        assert first == last == b"a" * SECTOR
        kinds = "".join(
            "kept" if sector == b"b" * SECTOR else "lost" if sector == b"a" * SECTOR else "torn"
            for sector in written
        )
        assert all(set(sector) <= set(b"ab") for sector in written)
        seen.add(kinds)
        assert not file.dirty
    assert seen == {one + other for one in ("kept", "lost", "torn") for other in ("kept", "lost", "torn")}


def test_a_sector_that_was_written_twice_may_be_as_it_was_in_between() -> None:
    found = set()
    for seed in range(100):
        rng = random.Random(seed)
        file = filled(b"a", 1)
        for byte in (b"b", b"c"):
            file.write(0, byte * SECTOR, rng)
        file.lose_power(rng)
        found.add(bytes(file.content)[:1])
    assert found == {b"a", b"b", b"c"}


def test_a_file_that_grew_has_some_size_between_and_zeros_where_a_sector_was_lost() -> None:
    sizes, holes = set(), 0
    for seed in range(200):
        file = filled(b"a", 1)
        file.write(SECTOR, b"b" * 3 * SECTOR)
        file.lose_power(random.Random(seed))
        sizes.add(len(file.content))
        holes += any(sector == bytes(SECTOR) for sector in sectors_of(file)[:-1])
        assert sectors_of(file)[0] == b"a" * SECTOR
    assert {SECTOR, 4 * SECTOR} < sizes
    assert holes


def test_a_truncated_file_is_truncated_or_has_its_former_content() -> None:
    sizes = set()
    for seed in range(100):
        file = filled(b"a")
        file.truncate(SECTOR)
        file.lose_power(random.Random(seed))
        assert set(bytes(file.content)) == set(b"a")
        sizes.add(len(file.content))
    assert {SECTOR, 4 * SECTOR} < sizes


def test_data_of_a_failed_sync_is_not_written_by_a_later_sync() -> None:
    for seed in range(50):
        file = filled(b"a")
        file.write(0, b"b" * SECTOR)
        file.drop()
        assert sectors_of(file)[0] == b"b" * SECTOR  # still in the cache
        file.write(SECTOR, b"c" * SECTOR)
        file.sync()
        file.lose_power(random.Random(seed))
        assert [sector[:1] for sector in sectors_of(file)] == [b"a", b"c", b"a", b"a"]


def test_data_dropped_by_a_failed_sync_is_safe_when_written_again() -> None:
    file = filled(b"a")
    file.write(0, b"b" * SECTOR)
    file.drop()
    file.write(10, b"x")
    file.sync()
    file.lose_power(random.Random(1))
    assert bytes(file.content)[:12] == b"b" * 10 + b"xb"


def test_a_torn_end_does_not_come_back() -> None:
    for seed in range(50):
        file = filled(b"a")
        file.write(3 * SECTOR, b"b" * SECTOR)
        file.tear(SECTOR + 7)
        file.lose_power(random.Random(seed))
        assert bytes(file.content) == b"a" * (3 * SECTOR - 7)


def test_an_appended_file_may_later_be_written_in_place() -> None:
    lengths = set()
    for seed in range(50):
        file = File(FileContent(b"synced"), 6)
        file.append(b" and not")
        same = SectorFile.of(file)
        assert bytes(same.content) == b"synced and not"
        same.lose_power(random.Random(seed))
        assert bytes(same.content).startswith(b"synced")
        lengths.add(len(same.content))
    assert {6, 14} < lengths


@pytest.mark.parametrize("seed", range(4))
def test_the_content_of_a_file_reads_like_plain_bytes_after_any_operations(seed: int) -> None:
    rng = random.Random(seed)
    plain, content = bytearray(), SectorContent()
    for _ in range(200):
        chance = rng.random()
        if chance < 0.6:
            offset = rng.randrange(6 * SECTOR)
            data = rng.choice((bytes, rng.randbytes))(rng.randrange(3 * SECTOR))
            if data:
                plain += bytes(max(0, offset + len(data) - len(plain)))
                plain[offset : offset + len(data)] = data
            content.write(offset, data)
        elif chance < 0.8:
            size = rng.randrange(8 * SECTOR)
            plain = plain[:size] + bytes(max(0, size - len(plain)))
            content.resize(size)
        elif plain:
            bit = rng.randrange(len(plain) * 8)
            plain[bit // 8] ^= 1 << bit % 8
            content.flip(bit)
        offset, size = rng.randrange(9 * SECTOR), rng.randrange(3 * SECTOR)
        assert content.read(offset, size) == plain[offset : offset + size]
        assert len(content) == len(plain) and bytes(content) == plain
        assert b"".join(content.pieces(offset)) == plain[offset:]
    assert bytes(content.copy()) == plain


def test_sectors_of_zeros_take_no_memory() -> None:
    content = SectorContent(bytes(100 * SECTOR))
    content.write(50 * SECTOR, b"x")
    assert content.stored == SECTOR
