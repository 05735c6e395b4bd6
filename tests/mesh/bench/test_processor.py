"""CPU time of processes as the system counts it."""

from __future__ import annotations

import os
import subprocess
import sys

from mesh.bench.processor import spent_by_tree

BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_cpu_time_includes_child_processes_that_have_ended() -> None:
    before = spent_by_tree(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True, timeout=240)
    assert spent_by_tree(os.getpid()) - before >= 0.4


def test_cpu_time_of_another_process_leaves_out_our_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = spent_by_tree(child.pid)
        child.communicate(b"\n", timeout=240)
    assert found < spent_by_tree(os.getpid())
