"""The limits and delays of a durable subscription's work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """``attempts_max``: a message becomes a dead letter after so many attempts; None for never, as in a queue
    of dead letters.

    ``held_max``: most messages that wait to be delivered again. At this number, nothing fresh is read until
    some of them are settled. ``patience_s``: seconds for which a suspect, or messages before one, keep a
    consumer from other work. ``save_s``: seconds within which a settled message is written to the journal.
    """

    attempts_max: int | None = 20
    back_off_s: float = 0.1
    back_off_max_s: float = 60.0
    ahead_bytes: int = 1 << 20
    held_max: int = 16384
    patience_s: float = 30.0
    patience_max_s: float = 3600.0
    save_s: float = 0.05
