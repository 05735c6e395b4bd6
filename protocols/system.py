"""Refuses a system that the sockets do not run on, in one sentence and before anything else is imported."""

import sys

if sys.platform == "win32":  # no fcntl, no resource, and asyncio's loop there has no Unix sockets
    raise ImportError(
        "Mangrove runs on Linux, macOS and other Unix systems, not on Windows; there, use it in WSL"
    )
