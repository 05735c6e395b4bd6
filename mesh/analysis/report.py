"""The report: one HTML file that needs nothing else, no network and no script, in light and in dark.

`render` is pure: small records in (Spark has reduced everything to at most a few hundred points a plot), text
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from mesh.analysis import plots
from mesh.analysis.findings import EndCause, EventKind, Findings, PartitionEpisode
from mesh.analysis.style import STYLE

EVENTS_SHOWN: Final = 200
EPISODES_SHOWN: Final = 12
LINKS_SHOWN: Final = 60
FILES_SHOWN: Final = 40
MATRIX_MAX: Final = 40
LANES_MAX: Final = 60
MIXED: Final = (
    "{:,} rows have the number of another, different row: "
    "these are the logs of several runs, and what is said of them is wrong."
)


@dataclass(frozen=True, slots=True)
class WindowState:
    """The worst of a bucket's windows."""

    run: str
    start: float
    windows: int
    counting: int
    components: int
    oneway_pairs: int
    silent_pairs: int


@dataclass(frozen=True, slots=True)
class PairHeard:
    """Of ``windows`` in which both counted, ``target`` heard ``source`` in ``heard``."""

    run: str
    source: str
    target: str
    windows: int
    heard: int


@dataclass(frozen=True, slots=True)
class LinkTotals:
    """A link as ``node`` counted it."""

    run: str
    node: str
    peer: str
    msgs_in: int
    msgs_out: int
    bytes_in: int
    bytes_out: int
    dropped: int
    lost: int
    answers: int
    rtt_p50_us: int | None
    rtt_p99_us: int | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> LinkTotals:
        """From a row in which what never happened is null."""
        values = {item.name: row[item.name] for item in fields(cls)}
        counts = {name: 0 if value is None else value for name, value in values.items() if "rtt" not in name}
        return cls(**{**values, **counts})


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    run: str
    node: str
    published: int
    delivered: int
    dropped: int
    rss_bytes_max: int | None
    loop_late_ms_p50: float | None
    loop_late_ms_max: float | None


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """What one broker did in one bucket."""

    run: str
    start: float
    node: str
    published: int
    delivered: int
    dropped: int
    msgs_out: int
    bytes_out: int
    loop_late_ms_max: float | None
    rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Heartbeat answers of one bucket, all links together."""

    run: str
    start: float
    answers: int
    p50_us: int
    p99_us: int


@dataclass(frozen=True, slots=True)
class FileQuality:
    file: str
    lines: int
    rows: int
    duplicates: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything the report shows."""

    findings: Findings
    bucket_s: float
    windows: tuple[WindowState, ...]
    pairs: tuple[PairHeard, ...]
    links: tuple[LinkTotals, ...]
    brokers: tuple[BrokerTotals, ...]
    drops: tuple[tuple[str, str, str, int], ...]
    traffic: tuple[TrafficPoint, ...]
    round_trips: tuple[RoundTrips, ...]
    files: tuple[FileQuality, ...]
    folder: str


def render(data: ReportData) -> str:
    """The whole page."""
    found = data.findings
    title = f"{', '.join(found.runs)}: how the mesh fared"
    body = "".join(
        (
            _head(data),
            _over_time(data),
            _events(found),
            _availability(found),
            _hearing(data),
            _partitions(found),
            _links(data),
            _drops(data),
            _quality(data),
            DEFINITIONS,
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def verdict(found: Findings) -> str:
    """The findings in one sentence."""
    parts = [
        _count(len(found.failures), "failure"),
        _count(len(found.rejoins), "rejoin"),
        _count(len(found.leaves), "leave"),
        _count(len(found.partitions), "partition"),
    ]
    brokers = _count(found.brokers, "broker")
    return f"{brokers} over {duration(found.duration_s)}: {', '.join(parts[:-1])} and {parts[-1]}."


def episode_title(episode: PartitionEpisode, found: Findings) -> str:
    """Its number, and its run where there are several."""
    run = f" of {episode.run}" if len(found.runs) > 1 else ""
    return f"partition {episode.number}{run}"


def duration(seconds: float) -> str:
    """As people say it, with two units at most."""
    if seconds <= 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    whole = round(seconds)
    parts: list[str] = []
    for size, unit in units:
        if whole >= size or parts:
            parts.append(f"{whole // size} {unit}")
            whole %= size
    return " ".join(parts[:2])


def _head(data: ReportData) -> str:
    found = data.findings
    began, ended = (datetime.fromtimestamp(at, UTC) for at in (found.started, found.ended))
    form = "%Y-%m-%d %H:%M:%S"
    until = ended.strftime("%H:%M:%S" if began.date() == ended.date() else form)
    up, down = (sum(getattr(broker, name) for broker in found.availability) for name in ("up_s", "down_s"))
    share = f"{up / (up + down):.2%}" if up + down else "-"
    bad = "bad" if found.partitions else ""
    tiles = (
        ("brokers", f"{found.brokers}", ""),
        ("failures", f"{len(found.failures)}", "bad" if found.failures else ""),
        ("rejoins", f"{len(found.rejoins)}", "good" if found.rejoins else ""),
        ("leaves", f"{len(found.leaves)}", ""),
        ("partitions", f"{len(found.partitions)}", bad),
        ("availability", share, ""),
        ("delivered", _short(found.traffic["delivered"]), ""),
        ("dropped", _short(found.traffic["dropped"]), "warn" if found.traffic["dropped"] else ""),
        ("lost on links", _short(found.traffic["lost"]), "bad" if found.traffic["lost"] else ""),
    )
    shown = "".join(
        f'<div class="tile {tone}"><b>{value}</b><span>{name}</span></div>' for name, value, tone in tiles
    )
    return (
        f'<header><p class="over">Mangrove · {escape(", ".join(found.runs))}</p>'
        f"<h1>How the mesh fared</h1><p class='lead'>{escape(verdict(found))}</p>"
        f'<p class="muted">{began.strftime(form)} to {until} UTC, from {len(data.files)} log files in '
        f"<code>{escape(data.folder)}</code></p></header><section class='tiles'>{shown}</section>"
    )


def _over_time(data: ReportData) -> str:
    found = data.findings
    axis = plots.TimeAxis(found.started, found.ended)
    bands = [
        plots.Band(
            episode.start,
            found.ended if episode.end is None else episode.end,
            f"{episode_title(episode, found)}: {_sides_text(episode, found.names)}",
        )
        for episode in found.partitions
    ]
    lanes, hidden = _lanes(found)
    parts = [
        _figure("Brokers", plots.timeline(axis, lanes, bands), _legend(found) + hidden),
        _figure(
            "Parts of the mesh",
            _parts(axis, data, bands),
            "components among the brokers that count; one is whole",
        ),
    ]
    if data.traffic:
        parts.append(_figure("Messages", *_messages(axis, data, bands)))
    if data.round_trips:
        parts.append(_figure("Heartbeat round trips", *_round_trips(axis, data, bands)))
    if any(point.loop_late_ms_max is not None for point in data.traffic):
        parts.append(_figure("Loop lateness", *_lateness(axis, data, bands)))
    return f'<section><h2>Over time</h2><div class="wide">{"".join(parts)}</div></section>'


def _lanes(found: Findings) -> tuple[list[plots.Lane], str]:
    lanes = []
    keys = list(dict.fromkeys((session.run, session.node) for session in found.sessions))
    ordered = sorted(keys, key=lambda key: (key[0], found.names[key[1]]))
    for run, node in ordered[:LANES_MAX]:
        name = found.names[node]
        sessions = [session for session in found.sessions if (session.run, session.node) == (run, node)]
        bars = []
        for session, following in zip(sessions, [*sessions[1:], None], strict=True):
            said = f"{name} up for {duration(session.duration_s)}, boot {session.boot}"
            bars.append(plots.Bar(session.start, session.end, "up", said))
            down = session.end_cause in (EndCause.FAILURE, EndCause.SILENCE)
            until = following.start if following else found.ended
            if down and until > session.end:
                said = f"{name} down for {duration(until - session.end)}"
                bars.append(plots.Bar(session.end, until, "down", said))
        marks = [
            plots.Mark(event.at, event.kind, _event_text(event.kind, event.detail, name, event.at))
            for event in found.events
            if (event.run, event.node) == (run, node)
        ]
        lanes.append(plots.Lane(found.called(run, name), bars, marks))
    hidden = len(ordered) - len(lanes)
    return lanes, f" {hidden} more brokers are in the tables." if hidden else ""


def _event_text(kind: EventKind, detail: str, name: str, at: float) -> str:
    return f"{_clock(at)} {name}: {kind}{f' ({detail})' if detail else ''}"


def _legend(found: Findings) -> str:
    signs = {"join": "joined", "failure": "failed", "rejoin": "came back", "leave": "left"}
    kinds = dict.fromkeys(str(event.kind) for event in found.events)
    return " ".join(
        f'<span class="key {kind}">{text}</span>' for kind, text in signs.items() if kind in kinds
    )


def _parts(axis: plots.TimeAxis, data: ReportData, bands: Sequence[plots.Band]) -> str:
    values = []
    for state in data.windows:
        kind = "whole" if state.components <= 1 else "split"
        odd = f", {_count(state.oneway_pairs, 'pair')} heard one way only" if state.oneway_pairs else ""
        counting, parts = _count(state.counting, "broker"), _count(state.components, "part")
        said = f"{_clock(state.start)}: {counting} count, in {parts}{odd}"
        values.append((state.start, state.start + data.bucket_s, float(state.components), kind, said))
    return plots.steps(axis, values, bands, "components of the mesh in each window")


def _messages(axis: plots.TimeAxis, data: ReportData, bands: Sequence[plots.Band]) -> tuple[str, str]:
    series = [
        plots.Line(name, kind, _summed(data, name))
        for name, kind in (("published", "one"), ("delivered", "two"), ("dropped", "three"))
    ]
    keys = " ".join(f'<span class="key {line.kind}">{line.label}</span>' for line in series)
    drawing = plots.lines(axis, series, bands, "messages a second", lambda value: f"{_short(value)}/s")
    return drawing, f"{keys} by all brokers, a second"


def _summed(data: ReportData, name: str) -> list[tuple[float, float | None]]:
    """A counter's growth a second over all brokers, at the middle of each bucket."""
    sums: dict[float, float] = {}
    for point in data.traffic:
        sums[point.start] = sums.get(point.start, 0.0) + getattr(point, name)
    return _with_gaps({at: value / data.bucket_s for at, value in sums.items()}, data.bucket_s)


def _with_gaps(values: Mapping[float, float], bucket_s: float) -> list[tuple[float, float | None]]:
    points: list[tuple[float, float | None]] = []
    before: float | None = None
    for at in sorted(values):
        if before is not None and at - before > 2.5 * bucket_s:
            points.append((before + bucket_s, None))
        points.append((at + bucket_s / 2, values[at]))
        before = at
    return points


def _round_trips(axis: plots.TimeAxis, data: ReportData, bands: Sequence[plots.Band]) -> tuple[str, str]:
    series = []
    for label, kind, name in (("median", "one", "p50_us"), ("99th percentile", "two", "p99_us")):
        worst: dict[float, float] = {}
        for point in data.round_trips:
            worst[point.start] = max(worst.get(point.start, 0.0), getattr(point, name) / 1000)
        series.append(plots.Line(label, kind, _with_gaps(worst, data.bucket_s)))
    keys = " ".join(f'<span class="key {line.kind}">{line.label}</span>' for line in series)
    drawing = plots.lines(axis, series, bands, "round-trip times", _ms_or_s)
    return drawing, f"{keys} over all links, from survey to answer"


def _lateness(axis: plots.TimeAxis, data: ReportData, bands: Sequence[plots.Band]) -> tuple[str, str]:
    worst: dict[float, float] = {}
    for point in data.traffic:
        worst[point.start] = max(worst.get(point.start, 0.0), point.loop_late_ms_max or 0.0)
    line = plots.Line("latest timer", "three", _with_gaps(worst, data.bucket_s))
    drawing = plots.lines(axis, [line], bands, "how late timers ran", _ms_or_s)
    return drawing, "the latest timer of any broker; a pause or a stall shows here"


def _events(found: Findings) -> str:
    rows = []
    for event in found.events[:EVENTS_SHOWN]:
        delay = ""
        if event.detected_at is not None:
            delay = f"held dead after {duration(max(0.0, event.detected_at - event.at))} by {event.observers}"
        elif event.kind == EventKind.REJOIN and event.after:
            delay = f"after a {event.after}"
        rows.append(
            [
                _clock_full(event.at, found),
                f'<span class="key {event.kind}">{event.kind}</span>',
                escape(found.called(event.run, event.name)),
                escape(event.detail),
                escape(delay),
            ]
        )
    more = len(found.events) - len(rows)
    note = f'<p class="muted">{more} more are in the table churn_events.</p>' if more else ""
    table = _table(("time (UTC)", "what", "broker", "how", ""), rows, right=())
    return f"<section><h2>What happened</h2>{table}{note}</section>"


def _availability(found: Findings) -> str:
    rows = []
    for broker in sorted(found.availability, key=lambda broker: (broker.run, broker.name)):
        share = broker.availability
        rows.append(
            [
                escape(found.called(broker.run, broker.name)),
                "" if share is None else plots.meter(share, f"up {share:.2%} of the time"),
                "-" if share is None else f"{share:.2%}",
                f"{broker.sessions}",
                f"{broker.failures}",
                duration(broker.up_s),
                duration(broker.down_s),
                "-" if broker.mttf_s is None else duration(broker.mttf_s),
                "-" if broker.mttr_s is None else duration(broker.mttr_s),
            ]
        )
    head = (
        "broker",
        "",
        "available",
        "sessions",
        "failures",
        "up",
        "down",
        "mean to failure",
        "mean to return",
    )
    return f"<section><h2>Availability</h2>{_table(head, rows, right=range(2, 9))}</section>"


def _hearing(data: ReportData) -> str:
    drawn = []
    for run in data.findings.runs:
        pairs = [pair for pair in data.pairs if pair.run == run]
        nodes, names = _places(((pair.source, pair.target) for pair in pairs), data.findings.names)
        if not pairs or len(nodes) > MATRIX_MAX:
            continue
        values = {}
        for pair in pairs:
            share = pair.heard / pair.windows
            said = (
                f"{names[nodes[pair.target]]} heard {names[nodes[pair.source]]} "
                f"in {pair.heard} of {_count(pair.windows, 'window')}"
            )
            values[nodes[pair.target], nodes[pair.source]] = (share, f"{share:.0%}", said)
        drawn.append(
            _figure(
                "Who heard whom" + (f", {run}" if len(data.findings.runs) > 1 else ""),
                plots.matrix(names, values, rows="heard by", columns="spoke", label="who heard whom"),
                "share of the windows in which both count",
            )
        )
    drawn += _sent_matrix(data)
    return (
        f'<section><h2>Between brokers</h2><div class="pair">{"".join(drawn)}</div></section>'
        if drawn
        else ""
    )


def _sent_matrix(data: ReportData) -> list[str]:
    drawn = []
    for run in data.findings.runs:
        links = [link for link in data.links if link.run == run and link.msgs_out]
        nodes, names = _places(((link.node, link.peer) for link in links), data.findings.names)
        if not links or len(nodes) > MATRIX_MAX:
            continue
        top = max(link.msgs_out for link in links)
        values = {
            (nodes[link.node], nodes[link.peer]): (
                link.msgs_out / top,
                _short(link.msgs_out),
                f"{names[nodes[link.node]]} sent {names[nodes[link.peer]]} {link.msgs_out:,} messages",
            )
            for link in links
        }
        drawn.append(
            _figure(
                "Messages sent" + (f", {run}" if len(data.findings.runs) > 1 else ""),
                plots.matrix(names, values, rows="from", columns="to", label="messages sent over each link"),
                "over each link, as its sender counted",
            )
        )
    return drawn


def _places(pairs: Iterable[tuple[str, str]], names: Mapping[str, str]) -> tuple[dict[str, int], list[str]]:
    """Where each node stands in a matrix, by name, and the names in that order."""
    known = dict.fromkeys(node for pair in pairs for node in pair)
    ordered = sorted(known, key=lambda node: (names.get(node, node), node))
    return {node: number for number, node in enumerate(ordered)}, [names.get(node, node) for node in ordered]


def _partitions(found: Findings) -> str:
    if not found.partitions:
        return (
            f"<section><h2>Partitions</h2><p>None: in each of {_count(found.windows, 'window')} of "
            f"{found.window_s:g} s the brokers that count were connected.</p></section>"
        )
    shown = []
    for episode in found.partitions[:EPISODES_SHOWN]:
        until = "the end of the logs" if episode.end is None else _clock_full(episode.end, found)
        lasted = duration((found.ended if episode.end is None else episode.end) - episode.start)
        shown.append(
            f"<figure><figcaption><b>{escape(_capital(episode_title(episode, found)))}</b> "
            f"{_clock_full(episode.start, found)} to {until}, {lasted}, "
            f"{_count(episode.windows, 'window')}</figcaption>"
            f"{plots.sides(episode.named(found.names))}</figure>"
        )
    more = len(found.partitions) - len(shown)
    note = f'<p class="muted">{more} more are in the table partition_episodes.</p>' if more else ""
    return f"<section><h2>Partitions</h2>{''.join(shown)}{note}</section>"


def _links(data: ReportData) -> str:
    found, names = data.findings, data.findings.names
    links = sorted(
        data.links, key=lambda link: (-(link.msgs_out + link.msgs_in), link.run, link.node, link.peer)
    )
    top = max((link.rtt_p99_us or 0 for link in links), default=0)
    rows = []
    for link in links[:LINKS_SHOWN]:
        trips = ["", "-", "-"]
        if link.rtt_p50_us is not None and link.rtt_p99_us is not None:
            said = f"p50 {_ms(link.rtt_p50_us)}, p99 {_ms(link.rtt_p99_us)}, {link.answers} answers"
            trips = [
                plots.span_meter(link.rtt_p50_us, link.rtt_p99_us, top, said),
                _ms(link.rtt_p50_us),
                _ms(link.rtt_p99_us),
            ]
        rows.append(
            [
                escape(
                    f"{found.called(link.run, names.get(link.node, link.node))} → "
                    f"{names.get(link.peer, link.peer)}"
                ),
                f"{link.msgs_out:,}",
                f"{link.msgs_in:,}",
                _bytes(link.bytes_out),
                _bytes(link.bytes_in),
                _worry(link.dropped),
                _worry(link.lost),
                *trips,
            ]
        )
    if not rows:
        return ""
    more = len(links) - len(rows)
    note = f'<p class="muted">{more} more are in the table links.</p>' if more else ""
    head = (
        "link",
        "sent",
        "received",
        "bytes out",
        "bytes in",
        "dropped",
        "lost",
        "round trips",
        "p50",
        "p99",
    )
    return f"<section><h2>Links</h2>{_table(head, rows, right=(1, 2, 3, 4, 5, 6, 8, 9))}{note}</section>"


def _drops(data: ReportData) -> str:
    names = data.findings.names
    totals = [
        [
            escape(data.findings.called(broker.run, names.get(broker.node, broker.node))),
            f"{broker.published:,}",
            f"{broker.delivered:,}",
            _worry(broker.dropped),
            escape(
                ", ".join(
                    f"{reason} {count:,}"
                    for run, node, reason, count in data.drops
                    if (run, node) == (broker.run, broker.node) and count
                )
            )
            or "-",
            "-" if broker.loop_late_ms_max is None else _ms_or_s(broker.loop_late_ms_max),
            "-" if broker.rss_bytes_max is None else _bytes(broker.rss_bytes_max),
        ]
        for broker in sorted(
            data.brokers, key=lambda broker: (broker.run, names.get(broker.node, broker.node))
        )
    ]
    if not totals:
        return ""
    head = ("broker", "published", "delivered", "dropped", "why", "latest timer", "most memory")
    return f"<section><h2>Delivery</h2>{_table(head, totals, right=(1, 2, 3, 5, 6))}</section>"


def _quality(data: ReportData) -> str:
    quality = data.findings.quality
    said = (
        f"{quality.lines:,} lines in {_count(quality.files, 'file')}: {quality.rows:,} rows, "
        f"{quality.duplicates:,} duplicates, {quality.quarantined:,} in quarantine; "
        f"{quality.missing:,} numbered rows are missing."
    )
    if quality.conflicts:
        said += f' <span class="bad">{escape(MIXED.format(quality.conflicts))}</span>'
    why = "".join(f"<li>{escape(reason)}: {count:,}</li>" for reason, count in quality.problems.items())
    rows = [
        [
            f"<code>{escape(file.file)}</code>",
            f"{file.lines:,}",
            f"{file.rows:,}",
            f"{file.duplicates:,}",
            _worry(file.quarantined),
        ]
        for file in data.files[:FILES_SHOWN]
    ]
    more = len(data.files) - len(rows)
    note = f'<p class="muted">{more} more are in the table files.</p>' if more else ""
    table = _table(("file", "lines", "rows", "duplicates", "quarantined"), rows, right=range(1, 5))
    reasons = f"<ul>{why}</ul>" if why else ""
    return f"<section><h2>The logs themselves</h2><p>{said}</p>{reasons}{table}{note}</section>"


def _figure(title: str, drawing: str, note: str = "") -> str:
    said = f' <span class="muted">{note}</span>' if note else ""
    return f"<figure><figcaption><b>{escape(title)}</b>{said}</figcaption>{drawing}</figure>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[int]) -> str:
    """A table of HTML cells; columns in ``right`` hold numbers."""
    numeric = dict.fromkeys(right)
    cells = "".join(
        f"<th{' class=num' if number in numeric else ''}>{escape(name)}</th>"
        for number, name in enumerate(head)
    )
    lines = "".join(
        "<tr>"
        + "".join(f"<td{' class=num' if n in numeric else ''}>{cell}</td>" for n, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'


def _sides_text(episode: PartitionEpisode, names: Mapping[str, str]) -> str:
    return " | ".join(", ".join(side) for side in episode.named(names))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _clock_full(at: float, found: Findings) -> str:
    """To the tenth of a second, with the date where there is more than one."""
    moment = datetime.fromtimestamp(at, UTC)
    one_day = found.duration_s < plots.DAY_S
    return (
        f"{moment.strftime('%H:%M:%S' if one_day else '%Y-%m-%d %H:%M:%S')}.{moment.microsecond // 100_000}"
    )


def _count(number: int, noun: str) -> str:
    if number == 0:
        return f"no {noun}"
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"


def _bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms"


def _ms_or_s(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _worry(count: int) -> str:
    return f'<span class="bad">{count:,}</span>' if count else "0"


DEFINITIONS: Final = """<section><h2>What the words mean</h2><dl>
<dt>failure</dt><dd>a broker was held dead in any log; at the time of its own last heartbeat row before
that</dd> <dt>rejoin</dt><dd>the first sign of life after an absence: with a new boot, or by refuting its
death</dd> <dt>leave</dt><dd>the leaver's own row</dd> <dt>availability</dt><dd>up over up and down, from a
broker's first sign on; time after a leave counts as neither</dd> <dt>counts</dt><dd>a broker counts in a
window if it wrote throughout it and held another member alive at its start</dd> <dt>partition</dt><dd>brokers
that count are in different components of the graph of who heard whom; it lasts from the last heartbeat across
the cut to the next one</dd> <dt>delivered, dropped</dt><dd>as the brokers counted, up to each boot's last row
of statistics</dd>
<dt>lost</dt><dd>gaps in the numbering of a link's frames</dd></dl></section>"""
