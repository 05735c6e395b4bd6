"""What other processes take of the machine: time of the processor and memory, from /proc (Linux).

Time of the processor says more than time on a clock where other programs run: it counts what was done.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mesh.bench.harness import BenchError


def can_read_processor() -> bool:
    """Whether this system has what is read here."""
    return sys.platform == "linux" and Path("/proc/self/schedstat").exists()


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the processor that a process has taken: in its first thread, where a broker's loop runs, and
    in all others, of which the journal's is the one that works."""

    loop_s: float = 0.0
    others_s: float = 0.0

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.loop_s - before.loop_s, self.others_s - before.others_s)

    @property
    def total_s(self) -> float:
        return self.loop_s + self.others_s


def spent(pid: int) -> Spent:
    """By a process so far; nothing where the system does not say. A thread that ended is not counted."""
    if not can_read_processor():
        return Spent()
    loop_s = others_s = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it ended meanwhile
            continue
        if thread.name == str(pid):
            loop_s += seconds
        else:
            others_s += seconds
    return Spent(loop_s, others_s)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {pid} has no VmRSS line: has it ended?")
