"""How heartbeats are summed up, by brokers that write summaries and by the analysis. Pure."""

from __future__ import annotations

from typing import Final

PERIODS: Final = 16
"""Length of a window in periods. Clocks are compared by a round that is a multiple of it, which occurs once
in each window. Powers of two count as well, since a short life has no such multiples."""
SLOTS: Final = 64
"""Parts of a window, each of which tells whether anything was heard in it."""
RTT_BELOW_US: Final = (
    50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 102_400, 204_800, 1_000_000,
)  # fmt: skip
COUNTER_BITS: Final = 12
COUNTERS: Final = ("rtt_low", "rtt_mid", "rtt_high")
"""Five counters in each number: how many round trips were below each limit; the last counts those above all
limits."""


def window_ns(period_s: float) -> int:
    """The length of a window, from the period of the broker that listens."""
    return round(period_s * PERIODS * 1e9)
