"""Plots as inline SVG: from numbers to text. The page's style sheet determines the colours.

Marks carry a `<title>`, which browsers show as a tooltip without any script. Every text from a log is
escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import cos, floor, log10, pi, sin
from typing import Final

from markupsafe import Markup, escape

from mesh.analysis.reporting.page.axis import LEFT, RIGHT, WIDTH, TimeAxis
from mesh.analysis.results.tables import Instant

LANE_HEIGHT: Final = 26.0
TIMES_HEIGHT: Final = 22.0
LABEL_MAX: Final = 15
RING_MAX: Final = 24
CELL_LEAST: Final = 14.0
MATRIX_WIDTH: Final = 560.0
LIMIT_NAME_HEIGHT: Final = 20.0
"""The height of the name of a limit, in the larger letters of narrow screens."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on a lane. ``kind`` is a class of the style sheet."""

    start: Instant
    end: Instant
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on a lane. ``kind`` is a class of the style sheet."""

    at: Instant
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One broker's line of a timeline."""

    label: str
    bars: Sequence[Bar]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Band:
    """An interval of time in the background of the whole plot."""

    start: Instant
    end: Instant
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A named series. ``kind`` is a class of the style sheet; None is a gap."""

    label: str
    kind: str
    points: Sequence[tuple[Instant, float | None]]


def timeline(axis: TimeAxis, lanes: Sequence[Lane], bands: Iterable[Band]) -> Markup:
    """One lane for each broker: when it was up, and its events."""
    height = LANE_HEIGHT * max(1, len(lanes))
    parts = [_grid(axis, height), _bands(axis, bands, height)]
    for number, lane in enumerate(lanes):
        middle = number * LANE_HEIGHT + LANE_HEIGHT / 2
        parts.append(f'<line class="rail" x1="{LEFT}" y1="{middle}" x2="{WIDTH - RIGHT}" y2="{middle}"/>')
        parts.append(_label(lane.label, middle))
        for bar in lane.bars:
            x, width = axis.stretch(bar.start, bar.end)
            tall = 14.0 if bar.kind == "up" else 9.0
            parts.append(
                f'<rect class="{bar.kind}" x="{x:.1f}" y="{middle - tall / 2:.1f}" width="{width:.1f}" '
                f'height="{tall}" rx="3"><title>{escape(bar.title)}</title></rect>'
            )
        parts += [_mark(axis, mark, middle) for mark in lane.marks]
    return _svg(height + TIMES_HEIGHT, parts, "when each broker was up")


def lines(
    axis: TimeAxis,
    series: Sequence[Line],
    bands: Iterable[Band],
    label: str,
    form: Callable[[float], str],
    *,
    limit: tuple[float, str] | None = None,
) -> Markup:
    """Lines over time from zero up. ``limit`` is drawn across, with its name. A limit that would
    make the lines flat is drawn at the upper edge, with an arrow."""
    height = 108.0
    values = [value for line in series for _, value in line.points if value is not None]
    shown = [*values, limit[0]] if limit is not None and max(values, default=0) > limit[0] / 20 else values
    top = round_up(max(shown, default=1.0))
    beyond = limit is not None and limit[0] > top
    head = 2 + LIMIT_NAME_HEIGHT + 6 if beyond else 8.0
    parts = [_grid(axis, height), _bands(axis, bands, height), _scale(height, head, top, form)]

    def y(value: float) -> float:
        return height - value / top * (height - head)

    if limit is not None:
        at = 2.0 if beyond else y(limit[0])
        # A name above the upper edge would be outside of the drawing.
        name_at = at - 4 if at > LIMIT_NAME_HEIGHT else at + LIMIT_NAME_HEIGHT
        parts.append(
            f'<line class="limit" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>'
            f'<text class="tick limit" x="{WIDTH - RIGHT - 4}" y="{name_at:.1f}" text-anchor="end">'
            f"{escape(limit[1])}{' ↑ above this scale' if beyond else ''}</text>"
        )
    for line in series:
        for run in _runs(line.points):
            path = " ".join(f"{axis.x(at):.1f},{y(max(0.0, value)):.1f}" for at, value in run)
            if len(run) > 1:
                parts.append(
                    f'<polyline class="{line.kind}" points="{path}">'
                    f"<title>{escape(line.label)}</title></polyline>"
                )
            else:
                x, value = axis.x(run[0][0]), run[0][1]
                parts.append(
                    f'<circle class="{line.kind} dot" cx="{x:.1f}" cy="{y(max(0.0, value)):.1f}" r="2.4">'
                    f"<title>{escape(line.label)}: {escape(form(value))}</title></circle>"
                )
    return _svg(height + TIMES_HEIGHT, parts, label)


def curve(
    series: Sequence[tuple[str, str, Sequence[tuple[float, float, float | None, float | None]]]],
    label: str,
    form: Callable[[float], str],
) -> Markup:
    """Shares by durations, each a step curve with a band: (name, class, (t, share, low, high)...)."""
    width, height, left = 480.0, 190.0, 44.0
    top = round_up(max((t for *_, points in series for t, *_ in points), default=1.0))

    def x(t: float) -> float:
        return left + t / top * (width - left - 12)

    def y(share: float) -> float:
        return 8 + (1 - share) * (height - 8)

    parts = [
        f'<line class="grid" x1="{left}" y1="{y(share):.1f}" x2="{width - 12}" y2="{y(share):.1f}"/>'
        f'<text class="tick" x="{left - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0.0, 0.5, 1.0)
    ]
    for t in (0.0, top / 2, top):
        anchor = "start" if t == 0 else "end" if t == top else "middle"
        parts.append(
            f'<text class="tick" x="{x(t):.1f}" y="{height + 16}" text-anchor="{anchor}">'
            f"{escape(form(t))}</text>"
        )
    for name, kind, points in series:
        stairs = [(0.0, 1.0, None, None), *points]
        banded = [(t, low, high) for t, _, low, high in points if low is not None and high is not None]
        if banded:
            upper = _stairs([(x(t), y(high)) for t, _, high in banded])
            lower = _stairs([(x(t), y(low)) for t, low, _ in banded])
            outline = " ".join([upper, " ".join(reversed(lower.split(" ")))])
            parts.append(f'<polygon class="{kind} between" points="{outline}"/>')
        path = _stairs([(x(t), y(share)) for t, share, _, _ in stairs])
        parts.append(f'<polyline class="{kind}" points="{path}"><title>{escape(name)}</title></polyline>')
    return Markup(
        f'<svg class="curve" viewBox="0 0 {width:.0f} {height + 22:.0f}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def matrix(
    names: Sequence[str],
    values: dict[tuple[int, int], tuple[float, str, str]],
    *,
    rows: str,
    columns: str,
    label: str,
) -> Markup:
    """A square of cells: (row, column) to (strength 0 to 1, text, title). Absent ones stay empty."""
    count = len(names)
    cell = min(64.0, max(CELL_LEAST, MATRIX_WIDTH / max(1, count)))
    left, top = 118.0, 40.0
    width, height = left + cell * count + 8, top + cell * count + 8
    parts = [
        f'<text class="tick" x="{left}" y="12">{escape(columns)} →</text>',
        f'<text class="tick" x="0" y="{top - 6}">{escape(rows)} ↓</text>',
    ]
    numbered = cell < 40
    for number, name in enumerate(names):
        x, y = left + cell * (number + 0.5), top + cell * (number + 0.5)
        head = str(number + 1) if numbered else shorten(name, max(3, int(cell / 7.0)))
        if not numbered or cell >= 18 or number % 2 == 0:
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{top - 6}" text-anchor="middle">{escape(head)}</text>'
            )
        row_name = f"{number + 1} {shorten(name, 11)}" if numbered else shorten(name, 14)
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(row_name)}</text>'
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
            if cell >= 40 and text:
                tone = "on" if strength > 0.55 else "off"
                parts.append(
                    f'<text class="cell {tone}" x="{x + cell / 2 - 1:.1f}" y="{y + cell / 2 + 3:.1f}" '
                    f'text-anchor="middle">{escape(text)}</text>'
                )
    return Markup(
        f'<svg class="matrix" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" '
        f'role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def sides(groups: Sequence[Sequence[str]], between: str = "") -> Markup:
    """The sides of a part: a ring of dots each, and a cut between them. Large sides are one disc each.
    ``between`` is a text above each cut."""
    parts: list[str] = []
    x, height = 12.0, 150.0
    for number, group in enumerate(groups):
        crowd = len(group) > RING_MAX
        radius = min(50.0, 16.0 + 4.0 * len(group))
        width = 130.0 if crowd or len(group) == 1 else radius * 2 + 150
        middle = x + width / 2
        if number:
            top = 6
            if between:
                parts.append(
                    f'<text class="tick" x="{x}" y="14" text-anchor="middle">{escape(between)}</text>'
                )
                top = 20
            parts.append(f'<line class="cut" x1="{x}" y1="{top}" x2="{x}" y2="{height - 6}"/>')
        parts.append(_crowd(group, middle, height / 2) if crowd else _ring(group, middle, height / 2, radius))
        x += width + 12
    return Markup(
        f'<svg class="sides" viewBox="0 0 {x:.0f} {height:.0f}" style="max-width:{x:.0f}px" role="img" '
        f'aria-label="the sides">{"".join(parts)}</svg>'
    )


def meter(value: float, title: str) -> Markup:
    """A small bar for a share of one."""
    width = 120 * min(1.0, max(0.0, value))
    return Markup(
        f'<svg class="meter" viewBox="0 0 120 10" role="img" aria-label="{escape(title)}">'
        f'<rect class="blank" width="120" height="10" rx="3"/>'
        f'<rect class="up" width="{width:.1f}" height="10" rx="3"><title>{escape(title)}</title></rect></svg>'
    )


def round_up(value: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    if value < 1e-9:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= value * 0.999
    )


def shorten(text: str, length: int) -> str:
    """The end of a text, since brokers' names differ at their ends."""
    return text if len(text) <= length else "…" + text[-max(1, length - 1) :]


def _svg(height: float, parts: Iterable[str], label: str) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="xMinYMin meet">{"".join(parts)}</svg>'
    )


def _grid(axis: TimeAxis, height: float) -> str:
    """Vertical lines at the ticks, with their times below."""
    parts = []
    for x, text in axis.ticks():
        anchor = "end" if x > WIDTH - RIGHT - 24 else "middle"
        parts.append(
            f'<line class="grid" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height:.1f}"/>'
            f'<text class="tick" x="{x:.1f}" y="{height + 16:.1f}" text-anchor="{anchor}">{text}</text>'
        )
    return "".join(parts)


def _bands(axis: TimeAxis, bands: Iterable[Band], height: float) -> str:
    parts = []
    for band in bands:
        x, width = axis.stretch(band.start, band.end)
        parts.append(
            f'<rect class="band" x="{x:.1f}" y="0" width="{width:.1f}" height="{height:.1f}">'
            f"<title>{escape(band.title)}</title></rect>"
        )
    return "".join(parts)


def _scale(height: float, head: float, top: float, form: Callable[[float], str]) -> str:
    """The base line, and the top value at its height, which is ``head`` below the upper edge."""
    return (
        f'<line class="rail" x1="{LEFT}" y1="{height}" x2="{WIDTH - RIGHT}" y2="{height}"/>'
        f'<line class="grid" x1="{LEFT}" y1="{head:.0f}" x2="{WIDTH - RIGHT}" y2="{head:.0f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{head + 4:.0f}" text-anchor="end">{escape(form(top))}</text>'
        f'<text class="tick" x="{LEFT - 8}" y="{height}" text-anchor="end">0</text>'
    )


def _label(text: str, y: float) -> str:
    shown = escape(shorten(text, LABEL_MAX))
    return (
        f'<text class="label" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{shown}'
        f"<title>{escape(text)}</title></text>"
    )


def _mark(axis: TimeAxis, mark: Mark, y: float) -> str:
    x = axis.x(mark.at)
    shapes = {
        "failure": f"M{x - 5:.1f} {y - 5}L{x + 5:.1f} {y + 5}M{x - 5:.1f} {y + 5}L{x + 5:.1f} {y - 5}",
        "leave": f"M{x:.1f} {y - 7}L{x:.1f} {y + 7}",
        "start": f"M{x - 3:.1f} {y - 5}L{x + 4:.1f} {y}L{x - 3:.1f} {y + 5}Z",
    }
    return (
        f'<path class="mark {mark.kind}" d="{shapes[mark.kind]}"><title>{escape(mark.title)}</title></path>'
    )


def _ring(group: Sequence[str], x: float, y: float, radius: float) -> str:
    count = len(group)
    spots = [
        (x + radius * cos(2 * pi * n / count - pi / 2), y + radius * sin(2 * pi * n / count - pi / 2))
        if count > 1
        else (x, y)
        for n in range(count)
    ]
    parts = [
        f'<line class="chord" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"/>'
        for i, a in enumerate(spots)
        for b in spots[i + 1 :]
        if count <= 12
    ]
    for number, (name, (dot_x, dot_y)) in enumerate(zip(group, spots, strict=True)):
        parts.append(
            f'<circle class="node" cx="{dot_x:.1f}" cy="{dot_y:.1f}" r="5">'
            f"<title>{escape(name)}</title></circle>"
        )
        if count > 12:
            continue
        if count == 1 or number == 0:
            parts.append(_text(dot_x, dot_y - 10, "middle", name))
        elif count % 2 == 0 and number == count // 2:
            parts.append(_text(dot_x, dot_y + 18, "middle", name))
        elif dot_x >= x:
            parts.append(_text(dot_x + 9, dot_y + 4, "start", name))
        else:
            parts.append(_text(dot_x - 9, dot_y + 4, "end", name))
    if count > 12:
        parts.append(_text(x, y + 4, "middle", f"{count} brokers"))
    return "".join(parts)


def _crowd(group: Sequence[str], x: float, y: float) -> str:
    return (
        f'<circle class="node crowd" cx="{x:.1f}" cy="{y:.1f}" r="52">'
        f"<title>{escape(', '.join(group))}</title></circle>"
        f'<text class="label" x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle">{len(group)} brokers</text>'
    )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    shown = escape(shorten(text, 11))
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'


def _stairs(points: Sequence[tuple[float, float]]) -> str:
    """Corners of a step curve that goes right, then down."""
    corners = []
    for number, (x, y) in enumerate(points):
        if number:
            corners.append(f"{x:.1f},{points[number - 1][1]:.1f}")
        corners.append(f"{x:.1f},{y:.1f}")
    return " ".join(corners)


def _runs(points: Sequence[tuple[Instant, float | None]]) -> list[list[tuple[Instant, float]]]:
    """The intervals between gaps."""
    runs: list[list[tuple[Instant, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]
