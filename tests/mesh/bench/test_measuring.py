"""The instruments of the benchmarks' workers."""

from __future__ import annotations

import mmap

import pytest

from mesh.bench.measuring import (
    Allocation,
    PeakMemory,
    can_read_memory,
    missing,
    pauses,
    percentiles,
    quantile,
)


def test_a_quantile_of_one_is_the_largest_sample() -> None:
    ordered = [float(number) for number in range(1000)]
    assert quantile(ordered, 0.5) == 500.0
    assert quantile(ordered, 0.999) == 999.0
    assert quantile(ordered, 1.0) == 999.0
    assert quantile([3.0], 0.5) == 3.0


def test_percentiles_are_microseconds() -> None:
    assert percentiles([0.003, 0.001, 0.002]) == pytest.approx(
        {"p50 us": 2000.0, "p99 us": 3000.0, "p99.9 us": 3000.0, "max us": 3000.0}
    )


def test_a_pause_is_the_time_between_two_messages() -> None:
    stamps = [0.0, 0.001, 0.002, 0.010, 0.011]
    assert pauses(stamps) == pytest.approx({"pause p99.9 us": 8000.0, "pause max us": 8000.0})


def test_allocation_is_the_peak_of_a_burst_for_each_of_its_messages() -> None:
    allocation = Allocation()
    bodies = [bytes(1000) for _ in range(100)]
    bodies.clear()
    assert 1000 < allocation.per_message(100) < 1200


@pytest.mark.skipif(not can_read_memory(), reason="memory is read from /proc")
def test_peak_memory_counts_memory_that_was_freed_again() -> None:
    memory = PeakMemory()
    with mmap.mmap(
        -1, 64 << 20
    ) as fresh:  # malloc may hand out what an earlier test freed and is still resident
        for page in range(0, len(fresh), mmap.PAGESIZE):
            fresh[page] = 1
    assert 60 << 20 < memory.growth() < 80 << 20


def test_a_missing_peer_is_reported_with_the_way_to_install_it() -> None:
    assert missing("json") is None
    assert "pip install '.[bench]'" in (missing("no_such_package") or "")
