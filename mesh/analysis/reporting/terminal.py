"""The findings for a terminal, as rich renderables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh.analysis.reporting.findings import (
    BrokerFound,
    Findings,
    HolesFound,
    RunFound,
    brokers_text,
    counted,
    duration,
    event_word,
    named,
    share,
)

EVENTS_SHOWN: Final = 40
BROKERS_SHOWN: Final = 40
NAMES_SHOWN: Final = 6
HOLES_SHOWN: Final = 6
DAMAGED_SHOWN: Final = 6
VERDICTS: Final[Mapping[str, str]] = {
    "tp": "found (tp)",
    "fp": "not done (fp)",
    "fn": "missed (fn)",
    "below resolution": "too short to tell",
    "not observable": "not observable",
}
STYLES: Final[Mapping[str, str]] = {
    "start": "cyan",
    "crash": "red",
    "power loss": "red",
    "pause": "yellow",
    "part": "magenta",
    "log lost": "yellow",
}


def summary(found: Findings) -> RenderableType:
    """The verdict, the events, the figures of brokers, the opinions of members, and the logs' quality."""
    pieces: list[RenderableType] = []
    for run in found.runs:
        title = f"{run.run}: {run.verdict}" if len(found.runs) > 1 else run.verdict
        pieces.append(Text(title, style="bold"))
        if run.events:
            pieces.append(_events(run))
        pieces.append(_brokers(run))
        if run.unlogged:
            lacking = named(run.unlogged, NAMES_SHOWN)
            them = "it" if len(run.unlogged) == 1 else "them"
            pieces.append(
                Text(f"no log of {lacking}: what is known of {them} comes from the logs of others", "yellow")
            )
        pieces += [_holes(each) for each in run.holes[:HOLES_SHOWN]]
        if len(run.holes) > HOLES_SHOWN:
            pieces.append(Text(f"and {len(run.holes) - HOLES_SHOWN} more brokers", "yellow"))
        pieces += [_opinions(run), _carried(run)]
        if run.matches:
            pieces.append(_truth(run))
    pieces.append(_quality(found))
    return Group(*pieces)


def _table(title: str) -> Table:
    return Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")


def _events(run: RunFound) -> Table:
    table = _table("what happened")
    for column in ("time (UTC)", "what", "brokers", "for", "reported dead"):
        table.add_column(column, overflow="fold")  # if cut off, a name could look like another's
    starts = {
        event.at for event in run.events if event.what == "start" and event.at < run.started + 10_000_000
    }
    shown = [event for event in run.events if event.what != "start" or event.at not in starts]
    for event in shown[:EVENTS_SHOWN]:
        table.add_row(
            _clock(event.at),
            Text(event_word(event, run), style=STYLES.get(event.what, "")),
            Text(brokers_text(event, run, NAMES_SHOWN)),
            "" if event.lasted_s is None else duration(event.lasted_s),
            "" if event.told_s is None else f"after {duration(event.told_s)} by {event.told_by}",
        )
    more = len(shown) - EVENTS_SHOWN
    if more > 0:
        table.add_row("", f"and {more} more", "", "", "")
    return table


def _brokers(run: RunFound) -> Table:
    table = _table("availability")
    table.add_column("broker", overflow="fold")
    columns: list[tuple[str, Callable[[BrokerFound], str], bool]] = [
        ("available", lambda each: "-" if each.availability is None else share(each.availability), True),
        ("boots", lambda each: str(each.boots), True),
        ("failures", lambda each: str(each.failures), True),
        ("up", lambda each: duration(each.up_s), True),
        ("down", lambda each: duration(each.down_s), any(each.down_s for each in run.brokers)),
        ("paused", lambda each: duration(each.paused_s), any(each.paused_s for each in run.brokers)),
        ("away", lambda each: duration(each.away_s), any(each.away_s for each in run.brokers)),
        ("unknown", lambda each: duration(each.unknown_s), any(each.unknown_s for each in run.brokers)),
    ]
    columns = [column for column in columns if column[2]]
    for name, _, _ in columns:
        table.add_column(name, justify="right")
    worst = sorted(run.brokers, key=lambda each: 2.0 if each.availability is None else each.availability)
    kept = {each.node for each in worst[:BROKERS_SHOWN]}
    for broker in run.brokers:
        if broker.node in kept:
            table.add_row(Text(broker.name), *(text(broker) for _, text, _ in columns))
    if len(run.brokers) > BROKERS_SHOWN:
        table.add_row(f"and {len(run.brokers) - BROKERS_SHOWN} more, none worse")
    return table


def _holes(each: HolesFound) -> Text:
    where = f"longest from {_clock(each.start)} to {_clock(each.end)} UTC"
    rows = counted(each.rows, "row")
    return Text(f"the log of {each.broker} lacks {rows}, {where}: what it heard then is unknown", "yellow")


def _opinions(run: RunFound) -> Text:
    text = Text()
    if run.deaths_told:
        causes = ", ".join(f"{cause} {count}" for cause, count in run.deaths_told.items())
        text.append(f"members reported dead: {causes}\n")
    quickest, slowest = run.detection.get("detection_p50_s"), run.detection.get("detection_p99_s")
    if quickest is not None and slowest is not None:
        missed = run.detection.get("missed") or 0
        text.append(f"failures were noticed after {duration(quickest)} (p50), {duration(slowest)} (p99)")
        text.append(f"; {missed} were not, by an observer\n" if missed else "\n")
    heard, missed_beats = run.heartbeats.get("heard"), run.heartbeats.get("missed")
    if heard is not None and missed_beats is not None:
        text.append(f"heartbeats: {heard:,} surveys heard, {missed_beats:,} missed")
        p50, p99 = run.heartbeats.get("rtt_p50_us"), run.heartbeats.get("rtt_p99_us")
        if p50 is not None and p99 is not None:
            text.append(f"; round trips {p50 / 1e3:.2g} ms (p50), {p99 / 1e3:.2g} ms (p99)")
    return text


def _carried(run: RunFound) -> Text:
    said = ", ".join(f"{count:,} {name}" for name, count in run.traffic.items()) or "not counted"
    why = ", ".join(f"{reason} {count:,}" for reason, count in run.drops.items() if count)
    return Text(f"messages: {said}" + (f" (dropped: {why})" if why else ""))


def _truth(run: RunFound) -> Text:
    """The score against the truth of a simulation. The report lists the wrong rows."""
    counts = {name: run.matches.get(name, 0) for name in VERDICTS}
    said = ", ".join(
        f"{count:,} {VERDICTS[name]}" for name, count in counts.items() if count or name in ("tp", "fp", "fn")
    )
    wrong = counts["fp"] + counts["fn"]
    return Text(f"compared with what was done: {said}", "yellow" if wrong else "")


def _quality(found: Findings) -> Text:
    quality = found.quality
    text = Text(f"logs: {counted(quality.rows, 'row')} in {counted(quality.files, 'file')}")
    for count, noun, more in (
        (quality.corrupt, "line", " in quarantine"),
        (quality.unknown, "row", " of unknown kind"),
        (quality.duplicates, "duplicate", ""),
        (quality.gaps, "row", " missing"),
    ):
        if count:
            text.append(f", {counted(count, noun)}{more}", style="yellow")
    for damaged in quality.damaged[:DAMAGED_SHOWN]:
        text.append(f"\n{damaged.sentence}", style="red")
    if (unnamed := len(quality.damaged) - DAMAGED_SHOWN) > 0:
        text.append(f"\n{counted(unnamed, 'more file')} damaged; the report names them", style="red")
    if quality.conflicts:
        text.append(
            f"\n{counted(quality.conflicts, 'number')} came twice with different content: "
            "logs of two meshes of one name lie in the folder",
            style="red",
        )
    return text


def _clock(at: int) -> str:
    moment = datetime.fromtimestamp(at // 1_000_000, UTC)
    return f"{moment:%H:%M:%S}.{at % 1_000_000 // 100_000}"
