"""Numbers in few characters. Pure."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def number(value: float | None) -> str:
    """At most five characters: 999, 12.3k, 4.56M; ``-`` for what is not known."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.3g}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def latency(value: float | None) -> str:
    """Milliseconds with their unit: ``12 ms``, ``12 s``."""
    if value is None:
        return "-"
    return f"{milliseconds(value)} ms" if value < 9999.5 else f"{value / 1e3:.0f} s"


def shortened(text: str, cells: int, ellipsis: str = "…") -> str:
    """``text`` in at most ``cells``, without its middle: names of many brokers differ at their ends."""
    if cell_len(text) <= cells:
        return text
    room = cells - cell_len(ellipsis)
    if room <= 0:
        return set_cell_size(text, max(0, cells))
    tail = text[-(room - room // 2) :]
    while cell_len(tail) > room - room // 2:
        tail = tail[1:]
    return set_cell_size(text, room - cell_len(tail)).rstrip() + ellipsis + tail


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
