"""Windows that Spark has joined give the stretches of all windows."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

from mesh.analysis.clocks.deciding import PERIODS, SILENCE
from mesh.analysis.clocks.joining import joined
from mesh.analysis.clocks.stretches import SLOTS, Window, heard_stretches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PERIOD: Final = 1_000_000_000
LENGTH: Final = PERIODS * PERIOD
LISTED: Final = round(PERIOD * SILENCE)
AWAKE: Final = LISTED - LENGTH // SLOTS
SCHEMA: Final = "pair int, window long, window_ns long, first_ns long, last_ns long, slots long"


def heard(rng: random.Random) -> list[int]:
    """Heartbeats, most of them a period apart, with silences of any length between them."""
    now, beats = rng.randrange(3 * LENGTH), []
    for _ in range(rng.randrange(1, 150)):
        beats.append(now)
        usual = rng.random() < 0.99
        now += round(PERIOD * (rng.uniform(0.8, 1.2) if usual else rng.uniform(1.5, 3) * rng.choice((1, 9))))
    return beats


def windows_of(beats: list[int]) -> list[tuple[int, int, int, int, int]]:
    """Reduces heartbeats as the reading does, with a sign in the highest bit."""
    of_window = defaultdict(list)
    for beat in beats:
        of_window[beat // LENGTH].append(beat)
    rows = []
    for window, inside in of_window.items():
        slots = 0
        for beat in inside:
            slots |= 1 << beat % LENGTH * SLOTS // LENGTH
        rows.append((window, LENGTH, min(inside), max(inside), slots - (slots >> 63 << 64)))
    return rows


def test_stretches_of_joined_windows_are_those_of_all_windows(spark: SparkSession) -> None:
    rng = random.Random(1)
    given = {pair: windows_of(heard(rng)) for pair in range(400)}
    # The last quarter alone, and the last with the first.
    given |= {
        -1: [(0, LENGTH, LENGTH - 1, LENGTH - 1, -(2**63))],
        -2: [(0, LENGTH, 0, LENGTH - 1, 1 - 2**63)],
    }
    rows = [(pair, *window) for pair, windows in given.items() for window in windows]
    rng.shuffle(rows)

    found: dict[int, list[Window]] = defaultdict(list)
    for row in joined(spark.createDataFrame(rows, SCHEMA), "pair").collect():
        found[row.pair].append(Window(row.start_ns, row.window_ns, row.first_ns, row.last_ns, row.slots))

    for pair, windows in given.items():
        whole = [Window(window * LENGTH, *rest) for window, *rest in windows]
        for gap in (LISTED, AWAKE):
            assert heard_stretches(found[pair], gap) == heard_stretches(whole, gap), pair
    assert sum(map(len, found.values())) < len(rows) / 2
