"""Numbers in few characters. Pure."""

from __future__ import annotations

from typing import Any


def number(value: float | None) -> str:
    """At most five characters: 999, 12.3k, 4.56M; ``-`` for what is not known."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.3g}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def counted(count: Any, noun: str) -> str:
    """``1 session``, ``2 sessions``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}" if value < 9999.5 else f"{value / 1e3:.0f}s"


def duration(seconds: float | None) -> str:
    """At most four characters: 59s, 59m, 23h, 99d."""
    if seconds is None:
        return "-"
    for unit, size, limit in (("s", 1, 100), ("m", 60, 100), ("h", 3600, 100)):
        if seconds / size < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"
