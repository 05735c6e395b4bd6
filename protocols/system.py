"""Refuses a system on which the sockets do not run, with one message, before anything else is imported."""

import sys

if sys.platform == "win32":  # no fcntl, no resource, and asyncio's loop there has no Unix sockets
    raise ImportError(
        "Mangrove runs on Linux, macOS and other Unix systems, not on Windows; there, use it in WSL"
    )
