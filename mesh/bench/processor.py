"""CPU time and memory of other processes, from /proc (Linux).

CPU time is a better measure than wall time while other programs run: it counts only the work done.
"""

from __future__ import annotations

import os
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


def spent_by_tree(root: int) -> float:
    """CPU seconds so far of a process and of all that it started, ended children included."""
    return sum(spent_in_tree(root).values())


def spent_in_tree(root: int) -> dict[int, float]:
    """The same for each of these processes that runs, by its id."""
    stats: dict[int, tuple[int, float]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            ours = sum(int(field) for field in fields[11:15])  # its own, and that of ended children
            stats[int(entry.name)] = (int(fields[1]), ours / ticks)
    tree = {root}
    while more := {pid for pid, (parent, _) in stats.items() if parent in tree} - tree:
        tree |= more
    return {pid: stats[pid][1] for pid in tree if pid in stats}


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if the system does not tell."""
    if sys.platform != "linux":
        return 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {pid} has no VmRSS line: has it ended?")
