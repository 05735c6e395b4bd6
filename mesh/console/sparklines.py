"""The last minutes of a figure in one line of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.console.signs import Signs

BARS: Final = "▁▂▃▄▅▆▇█"
LETTERS: Final = "_.-=+*#@"
"""The same for a terminal without Unicode."""


def sparkline(values: Sequence[float | None], cells: int, signs: Signs) -> str:
    """The last values, one a cell or, of more than there are cells for, the largest of several in a cell. The
    scale begins at 0. A blank is a value that is not known."""
    if cells <= 0:
        return ""
    each = max(1, -(-len(values) // cells))
    # Groups end at the newest value, so that a new one moves the line and does not change its shape.
    start = len(values) % each
    groups = [values[:start]] if start else []
    groups += [values[at : at + each] for at in range(start, len(values), each)]
    peaks = [max((value for value in group if value is not None), default=None) for group in groups][-cells:]
    top = max((peak for peak in peaks if peak is not None), default=0.0)
    marks = BARS if signs.unicode else LETTERS
    return "".join(_mark(peak, top, marks) for peak in peaks)


def _mark(peak: float | None, top: float, marks: str) -> str:
    if peak is None:
        return " "
    if top <= 0 or peak <= 0:
        return marks[0]
    return marks[min(len(marks) - 1, int(peak / top * (len(marks) - 1) + 0.5))]
