"""The instruments of a benchmark's worker: percentiles, pauses, memory.

* A *pause* is the time between two successive messages at a reader. Its mean gives the throughput; p99.9 and
  the maximum say how long a reader had to wait.
* *Allocation per message* is the highest growth that `tracemalloc` sees while a burst goes through, divided
  by its messages. It is the Python memory in bytes that a message takes on its way, received bodies included.
* *Resident memory* is the kernel's figure, read from /proc (Linux).
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from mesh.bench.harness import BenchError, Figures
from protocols.socket import Socket

BODY: Final = b"x" * 128
WARM_UP: Final = 200

Report = Callable[[Any], None]


def missing(module: str) -> str | None:
    """Why a peer cannot run here, or None if it can."""
    if importlib.util.find_spec(module) is None:
        return f"the package {module} is not installed (pip install '.[bench]' in a checkout)"
    return None


def run_async(main: Coroutine[Any, Any, None], uvloop: bool = False) -> None:
    """Run ``main`` on the stock loop, or on uvloop."""
    if uvloop:
        import uvloop as loop

        loop.run(main)
    else:
        asyncio.run(main)


# --- times


def quantile(ordered: Sequence[float], share: float) -> float:
    """The sample below which ``share`` of an ordered sequence lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def percentiles(samples_s: list[float]) -> Figures:
    """p50, p99, p99.9 and the maximum, in microseconds, of samples in seconds."""
    ordered = sorted(samples_s)
    shares = {"p50 us": 0.5, "p99 us": 0.99, "p99.9 us": 0.999, "max us": 1.0}
    return {name: quantile(ordered, share) * 1e6 for name, share in shares.items()}


def pauses(stamps_s: list[float]) -> Figures:
    """The longest pauses between messages that were received at these times."""
    gaps = sorted(after - before for before, after in pairwise(stamps_s))
    return {"pause p99.9 us": quantile(gaps, 0.999) * 1e6, "pause max us": gaps[-1] * 1e6}


async def until_written(socket: Socket) -> None:
    """Return once nothing is queued at the socket."""
    while socket.statistics().queued:  # noqa: ASYNC110  a socket has no event for it
        await asyncio.sleep(0)


# --- memory


class Allocation:
    """Counts the Python memory of a burst, from its creation until `per_message`."""

    def __init__(self) -> None:
        tracemalloc.start()
        tracemalloc.reset_peak()
        self._start, _ = tracemalloc.get_traced_memory()

    def per_message(self, count: int) -> float:
        """Bytes that each of ``count`` messages took at the peak; ends the counting."""
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return (peak - self._start) / count


def can_read_memory() -> bool:
    return sys.platform == "linux"


def resident_bytes(field: str = "VmRSS") -> int:
    """This process's resident memory; ``VmHWM`` is its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"/proc/self/status has no line {field}")


class PeakMemory:
    """The highest growth of resident memory, from its creation until `growth`."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._start = resident_bytes()

    def growth(self) -> int:
        return resident_bytes("VmHWM") - self._start
