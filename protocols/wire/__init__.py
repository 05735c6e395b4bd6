"""Bytes on the wire: pure, no I/O."""
