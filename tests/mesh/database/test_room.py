"""Publishes are refused while there is still room to consume."""

from __future__ import annotations

from mesh.database.room import LOG_SIZE, RESERVE, refuses

PLENTY = 1 << 40


def test_blocks_are_taken_while_two_logs_are_left() -> None:
    assert not refuses(1000, free=PLENTY, reusable=0, log_size=0)
    assert not refuses(1000, free=RESERVE + 1000, reusable=0, log_size=0)
    assert refuses(1000, free=RESERVE + 999, reusable=0, log_size=0)


def test_freed_pages_are_room_for_blocks_but_not_for_the_log() -> None:
    """The database never shrinks, so after draining the disk is as full as before."""
    assert not refuses(1000, free=0, reusable=RESERVE + 1000, log_size=LOG_SIZE)
    assert refuses(1000, free=0, reusable=RESERVE + 999, log_size=LOG_SIZE)
    assert refuses(1000, free=LOG_SIZE - 1, reusable=PLENTY, log_size=0)
    assert not refuses(1000, free=LOG_SIZE, reusable=PLENTY, log_size=0)
