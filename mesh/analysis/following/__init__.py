"""Follows logs while they are written: stores complete lines as they arrive, for later analyses."""
