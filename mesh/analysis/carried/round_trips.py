"""Quantiles of round trips from the packed histogram of `mesh.analysis.results.tables.Heard`. Pure.

There are fifteen buckets in three numbers, with five counters of 12 bits each, the lowest bits first. A
quantile is interpolated within its bucket on a logarithmic scale, and always lies between the minimum and the
maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

BOUNDS_US: Final = (
    *(50, 100, 200, 400, 800),
    *(1_600, 3_200, 6_400, 12_800, 25_600),
    *(51_200, 102_400, 204_800, 1_000_000),
)
"""Upper bounds of all buckets except the last, which has none."""
BUCKETS: Final = len(BOUNDS_US) + 1
COUNTER_BITS: Final = 12
IN_NUMBER: Final = 5


def unpacked(low: int, mid: int, high: int) -> list[int]:
    """The fifteen counters."""
    mask = (1 << COUNTER_BITS) - 1
    return [
        number >> (COUNTER_BITS * place) & mask for number in (low, mid, high) for place in range(IN_NUMBER)
    ]


def quantile_us(
    counts: Sequence[int], least_us: int | None, most_us: int | None, share: float
) -> float | None:
    """The round trip that ``share`` of the counted ones do not exceed. None: there are none."""
    total = sum(counts)
    if not total or least_us is None or most_us is None:
        return None
    wanted = share * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= wanted:
            bottom = max(least_us, BOUNDS_US[bucket - 1] if bucket else 0, 1)
            top = min(most_us, BOUNDS_US[bucket]) if bucket < len(BOUNDS_US) else most_us
            top = max(top, bottom)
            value = bottom * math.pow(top / bottom, (wanted - below) / count)
            return min(max(float(least_us), value), float(most_us))
        below += count
    return float(most_us)


def tail(counts: Sequence[int], p50_us: float, factor: float) -> tuple[float, float]:
    """The share of round trips that took more than ``factor`` times the median, and how long these took."""
    total = sum(counts)
    slow = [
        (count, BOUNDS_US[bucket - 1] * math.sqrt(2))
        for bucket, count in enumerate(counts)
        if bucket and count and BOUNDS_US[bucket - 1] >= factor * p50_us
    ]
    many = sum(count for count, _ in slow)
    if not many:
        return 0.0, 0.0
    return many / total, sum(count * typical_us for count, typical_us in slow) / many
