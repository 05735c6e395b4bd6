"""CPU time and memory of other processes, from /proc (Linux).

CPU time is a better measure than wall time while other programs run: it counts only the work done.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mesh.bench.harness import BenchError


def can_read_processor() -> bool:
    """True if this system provides these figures."""
    return sys.platform == "linux" and Path("/proc/self/schedstat").exists()


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds that a process has used: in its first thread, where a broker's loop runs, and in all
    others, of which only the journal's does work."""

    loop_s: float = 0.0
    others_s: float = 0.0

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.loop_s - before.loop_s, self.others_s - before.others_s)

    @property
    def total_s(self) -> float:
        return self.loop_s + self.others_s


def spent(pid: int) -> Spent:
    """CPU time of a process so far; zero if the system does not tell. Threads that ended are not counted."""
    if not can_read_processor():
        return Spent()
    loop_s = others_s = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended meanwhile
            continue
        if thread.name == str(pid):
            loop_s += seconds
        else:
            others_s += seconds
    return Spent(loop_s, others_s)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if the system does not tell."""
    if sys.platform != "linux":
        return 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {pid} has no VmRSS line: has it ended?")
