"""Decoders under any bytes: `targets` says what must hold, ``python -m tests.fuzz`` looks for what breaks it.

See ``docs/reference/testing.md``.
"""
