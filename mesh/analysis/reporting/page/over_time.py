"""The states of brokers, their messages and their lateness over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from mesh.analysis.reporting.findings import (
    FAILURES,
    duration,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.model import Figure, Key, Section
from mesh.analysis.reporting.page.run import Run
from mesh.analysis.reporting.page.words import clock, milliseconds, short
from mesh.analysis.results.tables import Instant, Life, Traffic

LANES_MOST: Final = 60


def over_time(run: Run) -> Section:
    """The section of states, brokers up, messages and lateness over time."""
    lanes, hidden = _lanes(run)
    states = [life.state for life in run.rows("lives")]
    keys = [Key(state, state) for state in ("up", "paused", "down", "away", "unknown") if state in states]
    keys += [Key("failure", "failed"), Key("start", "started")] if "down" in states else []
    what = "The states of each process, from its own log. Where that log ends, the logs of its peers tell."
    figures = [Figure("Brokers", what + hidden, plots.timeline(run.axis, lanes, run.bands), keys)]
    if churn := run.rows("churn"):
        figures.append(_alive(run, churn))
    if traffic := run.rows("traffic"):
        figures.append(_messages(run, traffic))
        if any(point.loop_late_ms_max for point in traffic):
            figures.append(_lateness(run, traffic))
    return Section("Over time", figures=figures)


def _lanes(run: Run) -> tuple[list[plots.Lane], str]:
    of_node: dict[str, list[Life]] = defaultdict(list)
    for life in run.rows("lives"):
        of_node[life.node].append(life)
    nodes = [broker.node for broker in run.found.brokers]
    hidden = ""
    if len(nodes) > LANES_MOST:
        # Brokers with events, then as many others as there is room for.
        eventful = [node for node in nodes if len(of_node[node]) > 1]
        calm = [node for node in nodes if len(of_node[node]) <= 1]
        kept = set([*eventful, *calm][:LANES_MOST])
        hidden = f" {len(nodes) - len(kept)} more brokers are in the table lives."
        nodes = [node for node in nodes if node in kept]
    return [_lane(run, node, of_node[node]) for node in nodes], hidden


def _lane(run: Run, node: str, stretches: Sequence[Life]) -> plots.Lane:
    name = run.name(node)
    bars, marks = [], []
    for life in sorted(stretches, key=lambda life: life.start):
        lasted = duration((life.end - life.start) / 1e6)
        bars.append(plots.Bar(life.start, life.end, life.state, f"{name} {life.state} for {lasted}"))
        if life.cause in FAILURES:
            what = f"{name}: {'power loss' if life.cause == 'power_off' else 'crash'} at {clock(life.end)}"
            marks.append(plots.Mark(life.end, "failure", what))
        elif life.cause == "leave":
            marks.append(plots.Mark(life.end, "leave", f"{name} left at {clock(life.end)}"))
        elif life.cause in ("start", "restart"):
            marks.append(plots.Mark(life.end, "start", f"{name} started at {clock(life.end)}"))
    return plots.Lane(name, bars, marks)


def _alive(run: Run, churn: Sequence[Any]) -> Figure:
    points = [(row.start, float(row.alive)) for row in churn]
    line = plots.Line("brokers up", "one", points)
    drawing = plots.lines(run.axis, [line], run.bands, "brokers that are up", lambda v: f"{v:g}")
    return Figure("Brokers up", "At the start of each window, by their processes.", drawing)


def _messages(run: Run, traffic: Sequence[Traffic]) -> Figure:
    series = []
    for name, kind in (("owed", "three"), ("delivered", "two"), ("published", "one")):
        sums: dict[int, float] = defaultdict(float)
        width_s = traffic[0].window_s
        for row in traffic:
            sums[row.start] += getattr(row, name) or 0
        points = [(at, value / width_s) for at, value in sums.items()]
        series.append(plots.Line(name, kind, _with_gaps(points, width_s)))
    drawing = plots.lines(run.axis, series, run.bands, "messages a second", lambda value: f"{short(value)}/s")
    keys = [Key("one", "published"), Key("two", "delivered"), Key("three", "owed")]
    what = (
        "Messages a second of all brokers. Owed: messages delivered, and messages dropped and counted. The "
        "gap between the two lines is loss."
    )
    return Figure("Messages", what, drawing, keys)


def _lateness(run: Run, traffic: Sequence[Traffic]) -> Figure:
    worst: dict[int, float] = {}
    for row in traffic:
        if row.loop_late_ms_max is not None:
            worst[row.start] = max(worst.get(row.start, 0.0), row.loop_late_ms_max)
    deadline = run.found.deadline_s
    line = plots.Line("longest delay", "three", _with_gaps(list(worst.items()), traffic[0].window_s))
    drawing = plots.lines(
        *(run.axis, [line], run.bands, "how late timers ran", milliseconds),
        limit=None if deadline is None else (deadline * 1e3, f"deadline {deadline:g} s"),
    )
    what = (
        "The longest delay of a timer in any broker's event loop. A broker later than the deadline looks "
        "silent to its peers."
    )
    return Figure("Loop lateness", what, drawing)


def _with_gaps(points: Sequence[tuple[Instant, float]], width_s: float) -> list[tuple[Instant, float | None]]:
    """Points at the middle of their windows, with a gap where windows are missing."""
    width = round(width_s * 1e6)
    drawn: list[tuple[Instant, float | None]] = []
    before: Instant | None = None
    for at, value in sorted(points):
        if before is not None and at - before > 2.5 * width:
            drawn.append((before + width, None))
        drawn.append((at + width // 2, value))
        before = at
    return drawn
