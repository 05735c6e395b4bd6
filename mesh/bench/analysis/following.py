"""How far `mesh analyze --follow` is behind brokers that write all the time.

The follower is the command in a process of its own, as a user has it. Its view is as old as the newest row in
it, and gets older until the next look replaces it. So the age is taken at every moment, and not only after a
look, when it is least.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from mesh.bench.analysis.generating import SECONDS_MIN, invent, write_now
from mesh.bench.harness import BenchError
from mesh.bench.measuring import Report, quantile
from mesh.bench.processor import can_read_processor, spent_by_tree

SEED: Final = 1
WARM_UP: Final = 5
"""Looks until Java is warm."""
WARM_UP_S: Final = 600.0
"""Time for these looks on a slow machine."""
MOMENT_S: Final = 0.1

MEDIAN: Final = "s behind, p50"
BEHIND: Final = "s behind, p99"
LOOKS: Final = "looks"
BUSY: Final = "CPU s a second"


class Look(NamedTuple):
    """A line of the follower."""

    at_s: float
    """When it came, by a monotonic clock."""
    behind_s: float
    """The age of the newest row then."""


def run_following(brokers: int, neighbours: int, seconds: float, report: Report, gate: Any) -> None:
    """A writer that keeps to the clock, and a follower, for ``seconds`` after the warm-up."""
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="mangrove-bench-") as place:
        logs = Path(place) / "logs"
        logs.mkdir()
        truth = invent(brokers, neighbours, max(SECONDS_MIN, int(seconds + WARM_UP_S)), SEED)

        def write() -> None:
            write_now(logs, truth, SEED, int(time.time()) + 1, _wait_until(ended))

        command = ["mesh", "analyze", str(logs), "--follow", "--json", "--out", f"{place}/out"]
        writer = threading.Thread(target=write)
        writer.start()
        try:
            with subprocess.Popen(
                [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True
            ) as process:
                try:
                    report(_measured(process, seconds))
                finally:
                    process.terminate()
        finally:
            ended.set()
            writer.join()


def _measured(process: subprocess.Popen[str], seconds: float) -> dict[str, float]:
    assert process.stdout is not None
    looks: list[Look] = []
    cpu_s = 0.0
    for line in process.stdout:
        now_s = time.monotonic()
        behind_s = json.loads(line)["behind_s"]
        if behind_s is None:
            continue
        looks.append(Look(now_s, behind_s))
        if len(looks) == WARM_UP:
            cpu_s = _spent(process.pid)
        elif len(looks) > WARM_UP and now_s - looks[WARM_UP - 1].at_s >= seconds:
            break
    else:
        raise BenchError(f"the follower ended with {process.wait()} after {len(looks)} looks")
    counted = looks[WARM_UP - 1 :]
    took_s = counted[-1].at_s - counted[0].at_s
    ages = sorted(ages_of(counted, MOMENT_S))
    busy = {BUSY: (_spent(process.pid) - cpu_s) / took_s} if can_read_processor() else {}
    return {
        MEDIAN: quantile(ages, 0.5),
        BEHIND: quantile(ages, 0.99),
        LOOKS: float(len(counted) - 1),
        **busy,
    }


def ages_of(looks: Sequence[Look], moment_s: float) -> list[float]:
    """The age of the newest row in view, at moments from the first look up to the last."""
    ages = []
    for look, following in pairwise(looks):
        moments = max(1, round((following.at_s - look.at_s) / moment_s))
        ages += [
            look.behind_s + (following.at_s - look.at_s) * place / moments for place in range(1, moments + 1)
        ]
    return ages


def _spent(pid: int) -> float:
    return spent_by_tree(pid) if can_read_processor() else 0.0


def _wait_until(ended: threading.Event) -> Callable[[float], bool]:
    def wait(at_s: float) -> bool:
        return not ended.wait(max(0.0, at_s - time.time()))

    return wait
