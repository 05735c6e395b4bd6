"""A million messages stored without a consumer, then worked off; with the memory and disk that they take.

Waiting messages are on disk only, so the home's memory should not grow with them. Working them off should be
as fast as the *live* rate: working off messages while they are published, at the same home just before.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

from mesh.bench.durable.home import (
    BATCH,
    PATTERN,
    in_batches,
    make_durable,
    processes,
    publish,
    run_home,
    work_off,
)
from mesh.bench.durable.rates import STORED
from mesh.bench.harness import Case, Figures, Target
from mesh.bench.processor import resident_mb, spent

WAITING: Final = "a million stored unheard, then worked off"
BY_LIVE: Final = "worked off by live"
GROWN: Final = "memory grown MB"
MESSAGE_TIMEOUT_S: Final = 0.001
"""Longest time for a message before the run is given up."""

TARGETS: Final = (
    Target(WAITING, BY_LIVE, STORED, None, 1.0, True),
    Target(WAITING, GROWN, STORED, None, 16.0, False),
)


def ours(count: int) -> Figures:
    """A tenth is worked off live. Memory is compared between a tenth of the messages waiting and all of
    them."""
    tenth = max(BATCH, count // 10 // BATCH * BATCH)
    timeout_s = 120 + count * MESSAGE_TIMEOUT_S
    with processes() as (group, folder):
        home = group.start(run_home, str(folder))
        url, pid = home.hear(), home.process.pid
        worker = group.start(work_off, url, 2 * tenth)
        worker.hear()
        group.start(publish, url, in_batches, "stored", 2 * tenth).hear(timeout_s)
        live = worker.hear(timeout_s)
        group.start(make_durable, url, PATTERN).hear()

        group.start(publish, url, in_batches, "stored", tenth).hear(timeout_s)
        before_mb = resident_mb(pid)
        published_s, _ = group.start(publish, url, in_batches, "stored", count - tenth).hear(timeout_s)
        after_mb = resident_mb(pid)
        disk_mb = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / (1 << 20)

        before = spent(pid)
        worker = group.start(work_off, url, count)
        worker.hear()
        worked_off = worker.hear(timeout_s)
        taken = spent(pid) - before
        figures = {
            "stored/s": (count - tenth) / published_s,
            "live/s": live,
            "worked off/s": worked_off,
            BY_LIVE: worked_off / live,
            "loop us": taken.loop_s / count * 1e6,
            "journal us": taken.others_s / count * 1e6,
            "disk MB": disk_mb,
        }
        if sys.platform == "linux":
            figures |= {"memory MB": after_mb, GROWN: after_mb - before_mb}
        return figures


def cases(scale: float, _with_jetstream: bool) -> list[Case]:
    count = max(20 * BATCH, int(1_000_000 * scale) // BATCH * BATCH)
    return [Case(WAITING, STORED, partial(ours, count))]
