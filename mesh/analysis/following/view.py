"""The health of a followed mesh on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from mesh.analysis.following.health import BrokerNow, Picture
from mesh.analysis.reporting.findings import counted, natural

HEIGHT: Final = 40
"""Lines where there is no terminal."""
PARTS_SHOWN: Final = 6
NAMES_SHOWN: Final = 8
BEHIND_S: Final = 60.0
"""Rows that are older are told with their date."""
UNITS: Final = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))
MARKS: Final = {"up": ("●", "green"), "silent": ("✕", "red"), "stopped": ("○", "dim")}


def view(picture: Picture, height: int = HEIGHT) -> RenderableType:
    """A line that says whether all is well, then parts, brokers that are not up, deaths, and the others.

    It has at most ``height`` lines. What is wrong comes first and says how much of it is not shown.
    """
    top = [_head(picture), _flow(picture), *_parts(picture)]
    room = max(3, height - len(top) - 1)  # the last line is for the names of those that are up
    missing = sorted(
        (broker for broker in picture.brokers if broker.state != "up"),
        key=lambda broker: (broker.state != "silent", -broker.silent_s, natural(broker.name)),
    )
    deaths = _first(_deaths(picture), max(room // 3, room - len(missing)), "deaths")
    return Group(
        *top, *_first([_missing(each) for each in missing], room - len(deaths)), *deaths, *_up(picture)
    )


def _first(lines: list[Text], room: int, what: str = "") -> list[Text]:
    """These lines, or so many that their number fits below them."""
    if len(lines) <= room:
        return lines
    kept = max(0, room - 1)
    return [*lines[:kept], Text(f"and {len(lines) - kept} more {what}".rstrip(), style="dim")]


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
        "corrupt": picture.corrupt,
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
    waiting = f", {picture.waiting_bytes / 1e6:.0f} MB wait" if picture.waiting_bytes else ""
    no_rows = _no_rows(picture.corrupt)
    return _line(Text(f"{picture.rows:,} rows, {rate} a second, {_behind(picture)}{waiting}{no_rows}"))


def _no_rows(lines: int) -> str:
    if not lines:
        return ""
    return ", 1 line is not a row" if lines == 1 else f", {lines:,} lines are not rows"


def _behind(picture: Picture) -> str:
    if picture.behind_s is None or picture.newest_us is None:
        return "- behind"
    if picture.behind_s < BEHIND_S:
        return f"{picture.behind_s:.1f} s behind"
    newest = datetime.fromtimestamp(picture.newest_us / 1e6, UTC)
    return f"the newest from {newest:%Y-%m-%d %H:%M:%S} UTC"


def _lasted(seconds: float) -> str:
    """A duration in the largest unit of which it has two."""
    for unit, length_s in UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _parts(picture: Picture) -> list[Text]:
    if len(picture.parts) < 2:
        return []
    lines = [_part(part) for part in picture.parts[:PARTS_SHOWN]]
    more = len(picture.parts) - PARTS_SHOWN
    return [*lines, Text(f"and {more} more parts")] if more > 0 else lines


def _part(names: tuple[str, ...]) -> Text:
    more = " ..." if len(names) > NAMES_SHOWN else ""
    return _line(Text(f"part of {len(names)}: {', '.join(names[:NAMES_SHOWN])}{more}"))


def _missing(broker: BrokerNow) -> Text:
    mark, style = MARKS[broker.state]
    since = f" for {_lasted(broker.silent_s)}" if broker.state == "silent" else ""
    return _line(Text.assemble((mark, style), f" {broker.name} ", (broker.state, style), since))


def _up(picture: Picture) -> list[Text]:
    names = ", ".join(sorted((each.name for each in picture.brokers if each.state == "up"), key=natural))
    mark, style = MARKS["up"]
    return [_line(Text.assemble((mark, style), f" {names}"))] if names else []


def _deaths(picture: Picture) -> list[Text]:
    return [
        _line(
            Text(
                f"{_time(death.at_us)} UTC {death.name} was reported dead "
                f"by {counted(death.observers, 'broker')}",
                style="red",
            )
        )
        for death in picture.deaths
    ]


def _line(text: Text) -> Text:
    """One line, cut where the terminal ends."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%H:%M:%S")
