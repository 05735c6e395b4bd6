"""Figures and names as the page writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from mesh.analysis.reporting.findings import duration
from mesh.analysis.results.tables import Instant

NAMES_MOST: Final = 8


def short(value: float) -> str:
    """A count with three digits: ``12.3k``, ``4.56M``."""
    for least, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / factor:.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def size(value: float) -> str:
    """Bytes for people."""
    for least, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= least:
            return f"{value / least:.1f} {unit}"
    return f"{value:.0f} B"


def distance(seconds: float) -> str:
    """A difference of clocks, which may be tiny or hours."""
    return milliseconds(seconds * 1e3) if seconds < 10 else duration(seconds)


def milliseconds(value: float) -> str:
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def clock(at: Instant) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%H:%M:%S")
