"""Plots as inline SVG: pure functions from numbers to text, with colours left to the page's style sheet.

All plots over time share one width and one scale, so that what is above one another happened together. Marks
carry a `<title>`, which browsers show as a tooltip; none needs a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 1000.0
LEFT: Final = 112.0
RIGHT: Final = 18.0
LANE_HEIGHT: Final = 30.0
STEPS_S: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
)  # fmt: skip
TICKS_MAX: Final = 8
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps seconds since the epoch to the width between the margins."""

    start: float
    end: float

    def x(self, at: float) -> float:
        share = (at - self.start) / max(self.end - self.start, 1e-9)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[tuple[float, str]]:
        """Round times and how to write them."""
        span = max(self.end - self.start, 1e-9)
        step = next((step for step in STEPS_S if span / step <= TICKS_MAX), span / TICKS_MAX)
        form = (
            "%H:%M:%S"
            if step < 60
            else "%H:%M"
            if span < DAY_S * 1.5
            else "%d %b"
            if step >= DAY_S
            else "%d %b %H:%M"
        )
        first, last = ceil(self.start / step), floor(self.end / step)
        return [
            (number * step, datetime.fromtimestamp(number * step, UTC).strftime(form))
            for number in range(first, last + 1)
        ]

    def grid(self, height: float, *, labels: bool) -> str:
        """Vertical lines at the ticks, with their times below."""
        parts = []
        for at, text in self.ticks():
            x = self.x(at)
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height:.1f}"/>')
            if labels:
                anchor = "end" if x > WIDTH - RIGHT - 24 else "middle"
                place = f'x="{x:.1f}" y="{height + 15:.1f}" text-anchor="{anchor}"'
                parts.append(f'<text class="tick" {place}>{text}</text>')
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a lane; ``kind`` is a class of the style sheet."""

    start: float
    end: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on a lane: ``kind`` is join, leave, failure or rejoin."""

    at: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    label: str
    bars: Sequence[Bar]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time behind all lanes."""

    start: float
    end: float
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A named series; ``kind`` is a class of the style sheet; None is a gap."""

    label: str
    kind: str
    points: Sequence[tuple[float, float | None]]


def svg(height: float, body: str, label: str) -> str:
    """A plot of the shared width."""
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="xMinYMin meet">{body}</svg>'
    )


def timeline(axis: TimeAxis, lanes: Sequence[Lane], bands: Sequence[Band]) -> str:
    """A lane for each broker: when it was up, and what happened to it."""
    height = LANE_HEIGHT * max(1, len(lanes))
    parts = [axis.grid(height, labels=True), _bands(axis, bands, height)]
    for number, lane in enumerate(lanes):
        top = number * LANE_HEIGHT
        middle = top + LANE_HEIGHT / 2
        parts.append(f'<line class="rail" x1="{LEFT}" y1="{middle}" x2="{WIDTH - RIGHT}" y2="{middle}"/>')
        parts.append(_label(lane.label, middle))
        for bar in lane.bars:
            x, width = _stretch(axis, bar.start, bar.end)
            thin = 14.0 if bar.kind == "up" else 6.0
            parts.append(
                f'<rect class="{bar.kind}" x="{x:.1f}" y="{middle - thin / 2:.1f}" width="{width:.1f}" '
                f'height="{thin}" rx="3"><title>{escape(bar.title)}</title></rect>'
            )
        parts += [_mark(axis, mark, middle) for mark in lane.marks]
    return svg(height + 22, "".join(parts), "when each broker was up")


def steps(
    axis: TimeAxis, values: Sequence[tuple[float, float, float, str, str]], bands: Sequence[Band], label: str
) -> str:
    """Columns that stand side by side: (start, end, value, kind, title) each."""
    height = 64.0
    top = max((value for _, _, value, _, _ in values), default=1.0)
    parts = [
        axis.grid(height, labels=False),
        _bands(axis, bands, height),
        _scale(height, top, lambda v: f"{v:g}"),
    ]
    for start, end, value, kind, title in values:
        x, width = _stretch(axis, start, end)
        tall = value / max(top, 1e-9) * (height - 8)
        gap = min(1.0, width * 0.15)
        parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{height - tall:.1f}" width="{width - gap:.1f}" '
            f'height="{tall:.1f}" '
            f'rx="1.5"><title>{escape(title)}</title></rect>'
        )
    return svg(height + 4, "".join(parts), label)


def lines(
    axis: TimeAxis, series: Sequence[Line], bands: Sequence[Band], label: str, form: Callable[[float], str]
) -> str:
    """Lines over time from zero up; a series with one point is a dot."""
    height = 108.0
    top = _round_up(max((v for line in series for _, v in line.points if v is not None), default=1.0))
    parts = [axis.grid(height, labels=False), _bands(axis, bands, height), _scale(height, top, form)]

    def y(value: float) -> float:
        return height - value / top * (height - 8)

    for line in series:
        for run in _runs(line.points):
            path = " ".join(f"{axis.x(at):.1f},{y(value):.1f}" for at, value in run)
            if len(run) > 1:
                parts.append(
                    f'<polyline class="{line.kind}" points="{path}">'
                    f"<title>{escape(line.label)}</title></polyline>"
                )
        for at, value in line.points:
            if value is not None and len(line.points) <= 60:
                x = axis.x(at)
                said = f"{line.label}, {_clock(at)}: {form(value)}"
                parts.append(
                    f'<circle class="{line.kind} dot" cx="{x:.1f}" cy="{y(value):.1f}" r="2.4">'
                    f"<title>{escape(said)}</title></circle>"
                )
    return svg(height + 4, "".join(parts), label)


def matrix(
    names: Sequence[str],
    values: dict[tuple[int, int], tuple[float, str, str]],
    *,
    rows: str,
    columns: str,
    label: str,
) -> str:
    """A square of cells: (row, column) to (strength 0 to 1, text, title); absent ones stay empty."""
    count = len(names)
    cell = min(64.0, max(14.0, 540.0 / max(1, count)))
    left, top = 118.0, 30.0
    width, height = left + cell * count + 8, top + cell * count + 8
    parts = [
        f'<text class="tick" x="{left}" y="10">{escape(columns)} →</text>',
        f'<text class="tick" x="0" y="{top - 6}">{escape(rows)} ↓</text>',
    ]
    for number, name in enumerate(names):
        short = _shorten(name, max(2, int(cell / 7.2)))
        x, y = left + cell * (number + 0.5), top + cell * (number + 0.5)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{top - 6}" text-anchor="middle">{escape(short)}</text>'
        )
        label_text = escape(_shorten(name, 14))
        parts.append(
            f'<text class="label" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label_text}</text>'
        )
    for row in range(count):
        for column in range(count):
            x, y = left + column * cell + 1, top + row * cell + 1
            square = f'x="{x:.1f}" y="{y:.1f}" width="{cell - 2:.1f}" height="{cell - 2:.1f}" rx="3"'
            known = values.get((row, column))
            if known is None:
                parts.append(f'<rect class="blank" {square}/>')
                continue
            strength, text, title = known
            parts.append(
                f'<rect class="heat" style="--s:{min(1.0, max(0.0, strength)):.3f}" {square}>'
                f"<title>{escape(title)}</title></rect>"
            )
            if cell >= 34 and text:
                tone = "on" if strength > 0.55 else "off"
                parts.append(
                    f'<text class="cell {tone}" x="{x + cell / 2 - 1:.1f}" y="{y + cell / 2 + 3:.1f}" '
                    f'text-anchor="middle">{escape(text)}</text>'
                )
    return (
        f'<svg class="matrix" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" '
        f'role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def sides(groups: Sequence[Sequence[str]]) -> str:
    """The parts of a partition: a ring of dots each, and a cut between them."""
    parts = []
    x = 12.0
    height = 132.0
    for number, group in enumerate(groups):
        radius = min(46.0, 16.0 + 4.0 * len(group))
        width = max(radius * 2 + 90, 130.0)
        middle = x + width / 2
        if number:
            parts.append(f'<line class="cut" x1="{x}" y1="6" x2="{x}" y2="{height - 6}"/>')
        parts.append(_ring(group, middle, height / 2, radius))
        x += width + 12
    return (
        f'<svg class="sides" viewBox="0 0 {x:.0f} {height:.0f}" style="max-width:{x:.0f}px" role="img" '
        f'aria-label="the parts of the mesh">{"".join(parts)}</svg>'
    )


def meter(share: float, title: str) -> str:
    """A small bar for a share of one."""
    width = 120 * min(1.0, max(0.0, share))
    return (
        f'<svg class="meter" viewBox="0 0 120 10" role="img" aria-label="{escape(title)}">'
        f'<rect class="blank" width="120" height="10" rx="3"/>'
        f'<rect class="up" width="{width:.1f}" height="10" rx="3"><title>{escape(title)}</title></rect></svg>'
    )


def span_meter(low: float, high: float, top: float, title: str) -> str:
    """A dot at ``low`` and a whisker to ``high`` on a scale that ends at ``top``."""
    x, far = (4 + 152 * min(1.0, value / max(top, 1e-9)) for value in (low, high))
    return (
        f'<svg class="meter wide" viewBox="0 0 160 10" role="img" aria-label="{escape(title)}">'
        f'<line class="rail" x1="4" y1="5" x2="156" y2="5"/>'
        f'<line class="whisker" x1="{x:.1f}" y1="5" x2="{far:.1f}" y2="5"/>'
        f'<circle class="dot one" cx="{x:.1f}" cy="5" r="3.4"/>'
        f'<line class="whisker" x1="{far:.1f}" y1="1.5" x2="{far:.1f}" y2="8.5">'
        f"<title>{escape(title)}</title></line></svg>"
    )


def _ring(group: Sequence[str], x: float, y: float, radius: float) -> str:
    from math import cos, pi, sin

    shown = list(group)[:24]
    spots = [
        (
            x + radius * cos(2 * pi * n / len(shown) - pi / 2),
            y + radius * sin(2 * pi * n / len(shown) - pi / 2),
        )
        if len(shown) > 1
        else (x, y)
        for n in range(len(shown))
    ]
    chords = "".join(
        f'<line class="chord" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"/>'
        for i, a in enumerate(spots)
        for b in spots[i + 1 :]
    )
    dots = []
    for name, (dot_x, dot_y) in zip(shown, spots, strict=True):
        dots.append(
            f'<circle class="node" cx="{dot_x:.1f}" cy="{dot_y:.1f}" r="5">'
            f"<title>{escape(name)}</title></circle>"
        )
        right = dot_x >= x - 0.5
        anchor, shift = ("start", 9) if right else ("end", -9)
        dots.append(
            f'<text class="tick" x="{dot_x + shift:.1f}" y="{dot_y + 4:.1f}" text-anchor="{anchor}">'
            f"{escape(_shorten(name, 12))}</text>"
        )
    return chords + "".join(dots)


def _mark(axis: TimeAxis, mark: Mark, y: float) -> str:
    x = axis.x(mark.at)
    shapes = {
        "failure": f"M{x - 5} {y - 5}L{x + 5} {y + 5}M{x - 5} {y + 5}L{x + 5} {y - 5}",
        "rejoin": f"M{x - 5} {y + 5}L{x} {y - 5}L{x + 5} {y + 5}Z",
        "leave": f"M{x} {y - 7}L{x} {y + 7}",
        "join": f"M{x - 3} {y - 5}L{x + 4} {y}L{x - 3} {y + 5}Z",
    }
    return (
        f'<path class="mark {mark.kind}" d="{shapes[mark.kind]}"><title>{escape(mark.title)}</title></path>'
    )


def _bands(axis: TimeAxis, bands: Iterable[Band], height: float) -> str:
    parts = []
    for band in bands:
        x, width = _stretch(axis, band.start, band.end)
        parts.append(
            f'<rect class="band" x="{x:.1f}" y="0" width="{width:.1f}" height="{height:.1f}">'
            f"<title>{escape(band.title)}</title></rect>"
        )
    return "".join(parts)


def _stretch(axis: TimeAxis, start: float, end: float) -> tuple[float, float]:
    x = axis.x(start)
    return x, max(1.5, axis.x(end) - x)


def _scale(height: float, top: float, form: Callable[[float], str]) -> str:
    """The base line, and the top value at its height."""
    return (
        f'<line class="rail" x1="{LEFT}" y1="{height}" x2="{WIDTH - RIGHT}" y2="{height}"/>'
        f'<line class="grid" x1="{LEFT}" y1="8" x2="{WIDTH - RIGHT}" y2="8"/>'
        f'<text class="tick" x="{LEFT - 8}" y="12" text-anchor="end">{escape(form(top))}</text>'
        f'<text class="tick" x="{LEFT - 8}" y="{height}" text-anchor="end">0</text>'
    )


def _label(text: str, y: float) -> str:
    shown = escape(_shorten(text, 14))
    return f'<text class="label" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches between gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _round_up(value: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    if value < 1e-9:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= value * 0.999
    )


def _shorten(text: str, length: int) -> str:
    """Without what comes first, for brokers' names differ at their ends."""
    return text if len(text) <= length else "…" + text[-max(1, length - 1) :]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
