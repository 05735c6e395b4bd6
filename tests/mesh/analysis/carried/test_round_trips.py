"""Quantiles from buckets differ from those of the values by at most one bucket."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.carried.round_trips import BOUNDS_US, BUCKETS, quantile_us, unpacked


def bucket_of(value: float) -> int:
    return bisect_right(BOUNDS_US, value)


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[int], share: float) -> None:
    counts = [0] * BUCKETS
    for value in values:
        counts[bucket_of(value)] += 1
    true = sorted(values)[max(0, ceil(share * len(values)) - 1)]
    found = quantile_us(counts, min(values), max(values), share)
    assert found is not None
    assert min(values) <= found <= max(values)
    bottom = BOUNDS_US[bucket_of(true) - 1] if bucket_of(true) else 0
    assert bottom * 0.999 <= found
    assert bucket_of(true) == len(BOUNDS_US) or found <= BOUNDS_US[bucket_of(true)] * 1.001


def test_empty_buckets_have_no_quantile() -> None:
    assert quantile_us([0] * BUCKETS, None, None, 0.5) is None


@given(st.lists(st.integers(0, 4095), min_size=BUCKETS, max_size=BUCKETS))
def test_counters_are_unpacked_as_they_were_packed(counts: list[int]) -> None:
    packed = [
        sum(count << (12 * place) for place, count in enumerate(counts[start : start + 5]))
        for start in (0, 5, 10)
    ]
    assert unpacked(*packed) == counts
