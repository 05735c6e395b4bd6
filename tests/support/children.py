"""Child processes of tests that do not outlive the tests, also when pytest is killed.

Fixtures end their processes. They cannot when pytest dies by SIGKILL, and brokers that are left behind hold
ports and time of the processor. So the kernel ends them: see `tests/support/end_with_parent.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HELPER: Final = str(Path(__file__).with_name("end_with_parent.py"))


def ends_with_tests(command: Sequence[str], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """A command that gets a signal when the thread that starts it dies. The process id stays the same.

    ``by``: SIGTERM suits a command that has children of its own and ends them.
    """
    return [sys.executable, "-I", "-S", HELPER, str(os.getpid()), str(int(by)), *command]
