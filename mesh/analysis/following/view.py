"""The health of a followed mesh on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh.analysis.following.health import Picture

BROKERS_SHOWN: Final = 40
DEATHS_SHOWN: Final = 10
PARTS_SHOWN: Final = 6
NAMES_SHOWN: Final = 8
MARKS: Final = {"up": ("●", "green"), "silent": ("✕", "red"), "stopped": ("○", "dim")}


def view(picture: Picture) -> RenderableType:
    """A line that says whether all is well, then brokers that are not up, then deaths."""
    return Group(_head(picture), _flow(picture), *_parts(picture), _brokers(picture), *_deaths(picture))


def as_json(picture: Picture) -> dict[str, Any]:
    """One line of ``--json``."""
    return {
        "schema": 1,
        "up": sum(broker.state == "up" for broker in picture.brokers),
        "silent": [broker.name for broker in picture.brokers if broker.state == "silent"],
        "stopped": [broker.name for broker in picture.brokers if broker.state == "stopped"],
        "parts": [list(part) for part in picture.parts],
        "deaths": [
            {"name": death.name, "at": _time(death.at_us), "observers": death.observers}
            for death in picture.deaths
        ],
        "rows": picture.rows,
        "rows_per_s": picture.rows_per_s,
        "behind_s": picture.behind_s,
        "waiting_bytes": picture.waiting_bytes,
    }


def _head(picture: Picture) -> Text:
    states = [broker.state for broker in picture.brokers]
    if not states:
        return Text("no rows yet", style="dim")
    silent, parts = states.count("silent"), len(picture.parts)
    said = f"{states.count('up')} up, {silent} silent, {states.count('stopped')} stopped"
    if parts > 1:
        return Text(f"{said}; the mesh is in {parts} parts", style="bold red")
    return Text(said, style="bold red" if silent else "bold green")


def _flow(picture: Picture) -> Text:
    rate = "-" if picture.rows_per_s is None else f"{picture.rows_per_s:,.0f}"
    behind = "-" if picture.behind_s is None else f"{picture.behind_s:.1f} s"
    waiting = f", {picture.waiting_bytes / 1e6:.0f} MB wait" if picture.waiting_bytes else ""
    return Text(f"{picture.rows:,} rows, {rate} a second, {behind} behind{waiting}")


def _parts(picture: Picture) -> list[Text]:
    if len(picture.parts) < 2:
        return []
    lines = [_part(part) for part in picture.parts[:PARTS_SHOWN]]
    more = len(picture.parts) - PARTS_SHOWN
    return [*lines, Text(f"and {more} more parts")] if more > 0 else lines


def _part(names: tuple[str, ...]) -> Text:
    more = " ..." if len(names) > NAMES_SHOWN else ""
    return Text(f"part of {len(names)}: {', '.join(names[:NAMES_SHOWN])}{more}")


def _brokers(picture: Picture) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    ordered = sorted(picture.brokers, key=lambda broker: (broker.state == "up", broker.name))
    for broker in ordered[:BROKERS_SHOWN]:
        mark, style = MARKS[broker.state]
        since = f"for {broker.silent_s:.0f} s" if broker.state == "silent" else ""
        table.add_row(
            Text(mark, style=style), Text(broker.name), Text(broker.state, style=style), Text(since)
        )
    more = len(ordered) - BROKERS_SHOWN
    if more > 0:
        table.add_row("", Text(f"and {more} more"), "", "")
    return table


def _deaths(picture: Picture) -> list[Text]:
    return [
        Text(f"{_time(death.at_us)} {death.name} was reported dead by {death.observers}", style="red")
        for death in picture.deaths[:DEATHS_SHOWN]
    ]


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%H:%M:%S")
