"""The start of the command ``mesh``: an interrupt during loading ends it without a message.

A short command spends most of its time loading. So this module imports nothing of ours until it handles the
signal.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
UNAVAILABLE = 69


def main() -> int:
    """Load the command line and run it; the entry point of the console script."""
    if sys.platform == "win32":
        try:
            import protocols  # noqa: F401  # says why it cannot run here
        except ImportError as error:
            print(f"mesh: {error}", file=sys.stderr)
            return UNAVAILABLE
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, as under nohup
        from mesh.cli.app import main as run

        return run()
    # Not an exception: raised inside an import it may be swallowed or wrapped, and nothing is open yet.
    signal.signal(signal.SIGINT, _end)
    from mesh.cli.app import main as run

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
