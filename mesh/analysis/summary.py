"""The findings for a terminal, as rich renderables."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh.analysis.findings import EventKind, Findings
from mesh.analysis.report import MIXED, duration, episode_title, verdict

EVENTS_SHOWN = 40
COLOURS = {
    EventKind.JOIN: "cyan",
    EventKind.LEAVE: "white",
    EventKind.FAILURE: "red",
    EventKind.REJOIN: "green",
}


def summary(found: Findings) -> RenderableType:
    """The verdict, what happened, each broker's availability, partitions, and what the logs were like."""
    parts: list[RenderableType] = [Text(verdict(found), style="bold")]
    if found.events:
        parts.append(_events(found))
    parts.append(_brokers(found))
    parts += [_partitions(found), _traffic(found), _quality(found)]
    return Group(*parts)


def _events(found: Findings) -> Table:
    table = Table(box=None, pad_edge=False, title="what happened", title_justify="left", title_style="bold")
    for column in ("time", "what", "broker", "how"):
        table.add_column(column, overflow="fold")  # cut off, a name would be another's
    for event in found.events[:EVENTS_SHOWN]:
        how = event.detail
        if event.detected_at is not None:
            late = duration(max(0.0, event.detected_at - event.at))
            how = f"held dead after {late} by {event.observers}"
        who = Text(found.called(event.run, event.name))
        table.add_row(_clock(event.at), Text(event.kind, style=COLOURS[event.kind]), who, Text(how))
    more = len(found.events) - EVENTS_SHOWN
    if more > 0:
        table.add_row("", f"and {more} more", "", "")
    return table


def _brokers(found: Findings) -> Table:
    table = Table(box=None, pad_edge=False, title="availability", title_justify="left", title_style="bold")
    table.add_column("broker", overflow="fold")
    for column in ("available", "sessions", "failures", "up", "down"):
        table.add_column(column, justify="right")
    for broker in sorted(found.availability, key=lambda broker: (broker.run, broker.name)):
        share = "-" if broker.availability is None else f"{broker.availability:.2%}"
        counts = (str(broker.sessions), str(broker.failures))
        who = Text(found.called(broker.run, broker.name))
        table.add_row(who, share, *counts, duration(broker.up_s), duration(broker.down_s))
    return table


def _partitions(found: Findings) -> Text:
    if not found.partitions:
        return Text(f"no partition in {found.windows} windows of {found.window_s:g} s")
    text = Text()
    for episode in found.partitions:
        sides = " | ".join(", ".join(side) for side in episode.named(found.names))
        until = "the end" if episode.end is None else _clock(episode.end)
        text.append(episode_title(episode, found), style="red")
        text.append(f" from {_clock(episode.start)} to {until}: {sides}\n")
    text.right_crop(1)
    return text


def _traffic(found: Findings) -> Text:
    said = ", ".join(f"{count:,} {name}" for name, count in found.traffic.items())
    why = ", ".join(f"{reason} {count:,}" for reason, count in found.drops.items())
    return Text(f"messages: {said}" + (f" (dropped: {why})" if why else ""))


def _quality(found: Findings) -> Text:
    quality = found.quality
    text = Text(
        f"logs: {quality.lines:,} lines in {quality.files} files, {quality.duplicates:,} duplicates, "
    )
    style = "yellow" if quality.quarantined else ""
    text.append(f"{quality.quarantined:,} in quarantine", style=style)
    text.append(f", {quality.missing:,} missing")
    if quality.conflicts:
        text.append(f"\n{MIXED.format(quality.conflicts)}", style="red")
    return text


def _clock(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment.strftime('%H:%M:%S')}.{moment.microsecond // 100_000}"
