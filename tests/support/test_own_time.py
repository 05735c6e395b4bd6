"""A thread's own time passes while it runs or sleeps, and not while others keep it from running."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support.own_time import RUN, own_time_s

COMPUTE_S = 0.3


def compute() -> None:
    began = time.process_time()
    while time.process_time() - began < COMPUTE_S:
        pass


def test_own_time_passes_during_a_sleep() -> None:
    began = own_time_s()
    time.sleep(0.2)
    assert own_time_s() - began > 0.15


@pytest.mark.skipif(not RUN.exists(), reason="this kernel does not say how long a thread waited")
def test_own_time_excludes_the_processor_time_of_others() -> None:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        time.sleep(0.3)  # until they run
        began, own = time.monotonic(), own_time_s()
        compute()
        took, owned = time.monotonic() - began, own_time_s() - own
    finally:
        for each in busy:
            each.kill()
            each.wait()
        os.sched_setaffinity(0, processors)
    assert owned < COMPUTE_S + (took - COMPUTE_S) / 2
    assert owned > COMPUTE_S / 2
