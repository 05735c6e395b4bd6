"""The content of the page, from findings and the digest of the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mesh.analysis.reporting.digest import Digest
from mesh.analysis.reporting.findings import (
    ALIVE,
    FAILURES,
    Findings,
    RunFound,
    duration,
    natural,
    share,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.axis import DAY_S, TimeAxis
from mesh.analysis.reporting.page.model import (
    Column,
    Figure,
    Grid,
    Key,
    Page,
    RunPage,
    Said,
    Section,
    Tile,
)
from mesh.analysis.results.tables import Instant, Life, Link, Traffic

LANES_MOST: Final = 60
EVENTS_MOST: Final = 200
PARTS_MOST: Final = 12
BROKERS_MOST: Final = 60
LINKS_MOST: Final = 40
FILES_MOST: Final = 40
MATRIX_MOST: Final = 40
NAMES_MOST: Final = 8
WRONG_MOST: Final = 20


def page_of(found: Findings, digest: Digest) -> Page:
    """The page's content."""
    runs = [_Run(run, digest).page() for run in found.runs]
    names = ", ".join(run.run for run in found.runs)
    return Page(
        f"{names}: how the mesh fared",
        found.verdict if len(runs) == 1 else "",
        runs,
        [_quality(found, digest)],
    )


class _Run:
    """One run: its rows of the digest, and the sections made from them."""

    def __init__(self, found: RunFound, digest: Digest) -> None:
        self._found = found
        self._digest = digest
        self._axis = TimeAxis(found.started, found.ended)
        self._names = {broker.node: broker.name for broker in found.brokers}
        self._bands = [
            plots.Band(
                part.start,
                found.ended if part.end is None else part.end,
                f"part {part.no}: " + " | ".join(_named(side) for side in part.sides),
            )
            for part in found.parts
        ]

    def page(self) -> RunPage:
        found = self._found
        sections = [
            self._over_time(),
            self._events(),
            self._parts(),
            self._availability(),
            self._survival(),
            self._opinions(),
            self._links(),
            self._delivery(),
            self._truth(),
        ]
        return RunPage(
            found.run,
            found.verdict,
            f"{self._when(found.started)} to {self._when(found.ended)} UTC",
            self._tiles(),
            [section for section in sections if section is not None],
        )

    def _rows(self, name: str) -> list[Any]:
        return [row for row in getattr(self._digest, name) if row.run == self._found.run]

    def _name(self, node: str) -> str:
        return "all" if node == "*" else self._names.get(node, node)

    def _tiles(self) -> list[Tile]:
        found = self._found
        failures = sum(found.failures.values())
        wrong = sum(found.deaths_told.get(cause, 0) for cause in ALIVE)
        tiles = [
            Tile("brokers", f"{len(found.brokers):,}"),
            Tile("failures", f"{failures:,}", "bad" if failures else ""),
            Tile("parts", f"{len(found.parts):,}", "bad" if found.parts else ""),
            Tile("deaths told wrongly", f"{wrong:,}", "warn" if wrong else ""),
        ]
        if "delivered" in found.traffic:
            tiles.append(Tile("delivered", short(found.traffic["delivered"])))
        if found.availability is not None:
            tiles.insert(3, Tile("availability", share(found.availability)))
        if dropped := found.traffic.get("dropped", 0):
            tiles.append(Tile("dropped", short(dropped), "warn"))
        return tiles

    def _over_time(self) -> Section:
        lanes, hidden = self._lanes()
        states = [life.state for life in self._rows("lives")]
        keys = [Key(state, state) for state in ("up", "paused", "down", "away", "unknown") if state in states]
        keys += [Key("failure", "failed"), Key("start", "started")] if "down" in states else []
        what = "The states of each process, from its own log; where that ends, from its peers' logs."
        figures = [Figure("Brokers", what + hidden, plots.timeline(self._axis, lanes, self._bands), keys)]
        if churn := self._rows("churn"):
            figures.append(self._alive(churn))
        if traffic := self._rows("traffic"):
            figures.append(self._messages(traffic))
            if any(point.loop_late_ms_max for point in traffic):
                figures.append(self._lateness(traffic))
        return Section("Over time", figures=figures)

    def _lanes(self) -> tuple[list[plots.Lane], str]:
        of_node: dict[str, list[Life]] = defaultdict(list)
        for life in self._rows("lives"):
            of_node[life.node].append(life)
        nodes = [broker.node for broker in self._found.brokers]
        hidden = ""
        if len(nodes) > LANES_MOST:
            # Brokers with events, then as many others as there is room for.
            eventful = [node for node in nodes if len(of_node[node]) > 1]
            calm = [node for node in nodes if len(of_node[node]) <= 1]
            kept = set([*eventful, *calm][:LANES_MOST])
            hidden = f" {len(nodes) - len(kept)} more brokers are in the table lives."
            nodes = [node for node in nodes if node in kept]
        return [self._lane(node, of_node[node]) for node in nodes], hidden

    def _lane(self, node: str, stretches: Sequence[Life]) -> plots.Lane:
        name = self._name(node)
        bars, marks = [], []
        for life in sorted(stretches, key=lambda life: life.start):
            lasted = duration((life.end - life.start) / 1e6)
            bars.append(plots.Bar(life.start, life.end, life.state, f"{name} {life.state} for {lasted}"))
            if life.cause in FAILURES:
                what = (
                    f"{name}: {'power loss' if life.cause == 'power_off' else 'crash'} at {_clock(life.end)}"
                )
                marks.append(plots.Mark(life.end, "failure", what))
            elif life.cause == "leave":
                marks.append(plots.Mark(life.end, "leave", f"{name} left at {_clock(life.end)}"))
            elif life.cause in ("start", "restart"):
                marks.append(plots.Mark(life.end, "start", f"{name} started at {_clock(life.end)}"))
        return plots.Lane(name, bars, marks)

    def _alive(self, churn: Sequence[Any]) -> Figure:
        points = [(row.start, float(row.alive)) for row in churn]
        line = plots.Line("brokers up", "one", points)
        drawing = plots.lines(self._axis, [line], self._bands, "brokers that are up", lambda v: f"{v:g}")
        return Figure("Brokers up", "At the start of each window, by their processes.", drawing)

    def _messages(self, traffic: Sequence[Traffic]) -> Figure:
        series = []
        for name, kind in (("owed", "three"), ("delivered", "two"), ("published", "one")):
            sums: dict[int, float] = defaultdict(float)
            width_s = traffic[0].window_s
            for row in traffic:
                sums[row.start] += getattr(row, name) or 0
            points = [(at, value / width_s) for at, value in sums.items()]
            series.append(plots.Line(name, kind, _with_gaps(points, width_s)))
        drawing = plots.lines(
            self._axis, series, self._bands, "messages a second", lambda value: f"{short(value)}/s"
        )
        keys = [Key("one", "published"), Key("two", "delivered"), Key("three", "owed")]
        what = (
            "A second, by all brokers. Owed: delivered, and drops that were counted; the gap between is loss."
        )
        return Figure("Messages", what, drawing, keys)

    def _lateness(self, traffic: Sequence[Traffic]) -> Figure:
        worst: dict[int, float] = {}
        for row in traffic:
            if row.loop_late_ms_max is not None:
                worst[row.start] = max(worst.get(row.start, 0.0), row.loop_late_ms_max)
        deadline = self._found.deadline_s
        line = plots.Line("latest timer", "three", _with_gaps(list(worst.items()), traffic[0].window_s))
        drawing = plots.lines(
            *(self._axis, [line], self._bands, "how late timers ran", _milliseconds),
            limit=None if deadline is None else (deadline * 1e3, f"deadline {deadline:g} s"),
        )
        what = "The latest timer of any broker's loop. One later than the deadline seems silent to peers."
        return Figure("Loop lateness", what, drawing)

    def _events(self) -> Section | None:
        found = self._found
        rows = [
            [
                self._when(event.at, tenth=True),
                event.what,
                _named(event.brokers),
                "" if event.lasted_s is None else duration(event.lasted_s),
                "" if event.told_s is None else f"after {duration(event.told_s)} by {event.told_by}",
            ]
            for event in found.events[:EVENTS_MOST]
        ]
        if not rows:
            return None
        more = len(found.events) - len(rows)
        columns = [Column("time (UTC)", False, True), Column("what", False, True)]
        columns += [Column("brokers", False, True, wraps=True), Column("lasted"), Column("held dead", False)]
        grid = Grid(columns, rows, more=f"{more:,} more are in the table lives." if more else "")
        said = Said("Events of processes and links. Events within half a second share one line.", "what")
        return Section("What happened", [said], grids=[grid.without_zeros()])

    def _parts(self) -> Section:
        found = self._found
        what = Said(
            "Brokers that ran, but heard nothing of each other for more than 2.2 periods. A part begins "
            "with the last heartbeat across and ends with the first one after it.",
            "what",
        )
        if not found.parts:
            return Section("Parts", [Said("None: all running brokers heard each other throughout."), what])
        figures = []
        for part in found.parts[:PARTS_MOST]:
            lasted = duration(((found.ended if part.end is None else part.end) - part.start) / 1e6)
            until = (
                "not healed when the logs end"
                if part.end is None
                else f"to {self._when(part.end, tenth=True)}"
            )
            majority = "" if part.majority or part.kind != "complete" else " No side had a majority."
            figures.append(
                Figure(
                    f"{part.no}: {part.kind}",
                    f"{self._when(part.start, tenth=True)}, {until}, {lasted}.{majority}",
                    plots.sides(part.sides),
                )
            )
        more = len(found.parts) - len(figures)
        said = [what] + ([Said(f"{more:,} more are in the table parts.", "muted")] if more else [])
        return Section("Parts", said, figures, layout="pair")

    def _availability(self) -> Section:
        found = self._found
        brokers = found.brokers
        more = ""
        if len(brokers) > BROKERS_MOST:
            worst = sorted(brokers, key=lambda each: 2.0 if each.availability is None else each.availability)
            kept = {each.node for each in worst[:BROKERS_MOST]}
            brokers = [each for each in brokers if each.node in kept]
            hidden = len(found.brokers) - len(brokers)
            more = f"{hidden:,} more, none of them worse, are in the table availability."
        rows = [
            [
                each.name,
                "" if each.availability is None else plots.meter(each.availability, share(each.availability)),
                "-" if each.availability is None else share(each.availability),
                *(each.boots, each.failures),
                *(
                    duration(value)
                    for value in (each.up_s, each.paused_s, each.down_s, each.away_s, each.unknown_s)
                ),
                "-" if each.mttr_s is None else duration(each.mttr_s),
            ]
            for each in brokers
        ]
        columns = [Column("broker", False, True), Column("", False), Column("available", always=True)]
        columns += [
            Column(name) for name in ("boots", "failures", "up", "of it paused", "down", "away", "unknown")
        ]
        columns.append(Column("mean repair"))
        what = (
            "Time up over time up and down. Only crashes and power losses are failures; a paused process is "
            "up, a broker that left is not expected, and unknown time is neither."
        )
        said = []
        if found.unlogged:
            missing = f"There is no log of {_named(found.unlogged)}."
            said.append(Said(f"{missing} Others tell of them; what they heard is not known.", "warn"))
        if found.mttf_s is not None:
            repair = "" if found.mttr_s is None else f", and the mean time to repair {duration(found.mttr_s)}"
            said.append(
                Said(f"The mean time to failure was {duration(found.mttf_s)} of a broker's time up{repair}.")
            )
        return Section(
            "Availability", said, grids=[Grid(columns, rows, what=what, more=more).without_zeros()]
        )

    def _survival(self) -> Section | None:
        rows = self._rows("survival")
        figures = []
        for of, title in (("up", "Time up"), ("down", "Time down")):
            series = []
            keys = []
            for method, kind in (("kaplan-meier", "one"), ("create-based", "two"), ("naive", "three")):
                points = sorted(
                    (row.t_s, row.survival, row.low, row.high)
                    for row in rows
                    if row.of == of and row.method == method
                )
                if len(points) > 1:
                    series.append((method, kind, points))
                    keys.append(Key(kind, method))
            if series:
                what = f"Share of stretches {of} that last longer."
                figures.append(Figure(title, what, plots.curve(series, title, duration), keys))
        if not figures:
            return None
        said = Said(
            "Kaplan-Meier counts stretches that had not ended, with a 95 % interval; create-based those that "
            "began in the first half; naive only those that ended, which favours short ones.",
            "what",
        )
        return Section("How long stretches last", [said], figures, layout="pair")

    def _opinions(self) -> Section | None:
        found = self._found
        grids = []
        if found.deaths_told:
            meaning = MEANING_OF_DEATHS
            grids.append(
                Grid(
                    [
                        Column("cause", False, True),
                        Column("deaths told", always=True),
                        Column("", False, wraps=True),
                    ],
                    [[cause, count, meaning.get(cause, "")] for cause, count in found.deaths_told.items()],
                    "Why members were reported dead",
                    "Each boot and incarnation counts once, however many members reported it.",
                )
            )
        if found.detection:
            grids.append(self._detection())
        wrong = sorted(self._rows("mistaken"), key=lambda row: (-row.count, row.subject))
        if wrong:
            rows = [
                [
                    *(self._name(row.subject), row.state, row.cause, row.count, row.observers),
                    "-" if row.longest_s is None else duration(row.longest_s),
                ]
                for row in wrong[:WRONG_MOST]
            ]
            columns = [
                Column("member", False, True),
                Column("held", False, True),
                Column("because", False, True),
            ]
            columns += [Column("times"), Column("by"), Column("longest")]
            more = (
                f"{len(wrong) - len(rows):,} more are in the table mistakes."
                if len(wrong) > len(rows)
                else ""
            )
            grids.append(
                Grid(columns, rows, "Running members reported suspect or dead", more=more).without_zeros()
            )
        said = []
        if found.agreement is not None:
            agreed = share(found.agreement)
            said.append(
                Said(f"At worst, {agreed} of the members agreed at a window's end on who is present.")
            )
        return Section("Reports of members about each other", said, grids=grids) if grids or said else None

    def _detection(self) -> Grid:
        of = self._found.detection

        def seconds(name: str) -> str:
            value = of.get(name)
            return "-" if value is None else duration(float(value))

        rate = of.get("rate_per_h")
        accuracy = of.get("accuracy")
        rows = [
            ["failures, times observers", f"{of.get('failures') or 0:,}", "each observer that ran counts"],
            ["noticed after, p50", seconds("detection_p50_s"), "from the failure to DEAD (T_D)"],
            ["noticed after, p99", seconds("detection_p99_s"), ""],
            [
                "never noticed",
                f"{of.get('missed') or 0:,}",
                "ended before an observer reported the broker dead",
            ],
            ["mistakes", f"{of.get('mistakes') or 0:,}", "DEAD reported about a running broker"],
            ["mistakes an hour", "-" if rate is None else f"{rate:.3g}", "of one observer and one member"],
            ["mistakes lasted", seconds("mistake_s"), "on average (T_M)"],
            [
                "accuracy",
                "-" if accuracy is None else share(float(accuracy)),
                "share of the time without (P_A)",
            ],
        ]
        columns = [
            Column("measure", False, True),
            Column("all pairs", always=True),
            Column("", False, wraps=True),
        ]
        what = "The failure detector by the measures of Chen, Toueg and Aguilera, pooled over all pairs."
        kept = [row for row in rows if row[1] not in ("-", "0")]
        return Grid(columns, kept or rows[:1], "Detection", what)

    def _links(self) -> Section | None:
        links: list[Link] = self._rows("links")
        if not links:
            return None
        figures = self._matrices(links)
        worst = sorted(
            links,
            key=lambda row: (
                -((row.lost or 0) + (row.dropped or 0) + (row.missed or 0)),
                -(row.rtt_p99_us or 0),
            ),
        )
        rows = [
            [
                f"{self._name(row.node)} → {self._name(row.peer)}",
                *("-" if value is None else f"{value:,}" for value in (row.msgs_out, row.msgs_in)),
                *("-" if value is None else size(value) for value in (row.bytes_out, row.bytes_in)),
                *("-" if value is None else f"{value:,}" for value in (row.dropped, row.lost, row.missed)),
                *(
                    "-" if value is None else _milliseconds(value / 1e3)
                    for value in (row.rtt_p50_us, row.rtt_p99_us)
                ),
            ]
            for row in worst[:LINKS_MOST]
        ]
        names = (
            "sent",
            "received",
            "bytes out",
            "bytes in",
            "dropped",
            "lost",
            "heartbeats missed",
            "p50",
            "p99",
        )
        columns = [Column("link", False, True), *(Column(name) for name in names)]
        more = f"{len(links) - len(rows):,} more are in the table links." if len(links) > len(rows) else ""
        what = (
            "As the first broker counted it, worst first. Lost: gaps in the numbers of frames. Heartbeats "
            "missed: rounds of the peer of which no survey came. p50, p99: round trips of heartbeats."
        )
        beats = self._found.heartbeats
        said = []
        if beats.get("heard") is not None:
            heard, missed = int(beats["heard"] or 0), int(beats.get("missed") or 0)
            part = share(missed / (heard + missed)) if heard + missed else "-"
            over = f"{beats.get('links') or 0:,} links"
            said = [Said(f"{heard:,} surveys were heard over {over}, {missed:,} ({part}) were not.")]
        return Section(
            "Links", said, figures, [Grid(columns, rows, what=what, more=more).without_zeros()], "pair"
        )

    def _matrices(self, links: Sequence[Link]) -> list[Figure]:
        nodes = sorted(
            {node for row in links for node in (row.node, row.peer)},
            key=lambda node: (natural(self._name(node)), node),
        )
        if not 1 < len(nodes) <= MATRIX_MOST:
            return []
        place = {node: number for number, node in enumerate(nodes)}
        names = [self._name(node) for node in nodes]
        slowest = max((row.rtt_p99_us or 0 for row in links), default=0) or 1.0
        most = max((row.msgs_out or 0 for row in links), default=0)
        trips = {
            (place[row.node], place[row.peer]): (
                row.rtt_p99_us / slowest,
                f"{row.rtt_p99_us / 1e3:.3g}",
                f"{self._name(row.node)} to {self._name(row.peer)}: {_milliseconds(row.rtt_p99_us / 1e3)}",
            )
            for row in links
            if row.rtt_p99_us is not None
        }
        sent = {
            (place[row.node], place[row.peer]): (
                row.msgs_out / most,
                short(row.msgs_out),
                f"{self._name(row.node)} sent {self._name(row.peer)} {row.msgs_out:,} messages",
            )
            for row in links
            if row.msgs_out
        }
        figures = []
        if trips:
            drawing = plots.matrix(names, trips, rows="asks", columns="answers", label="round trips")
            what = "p99 of heartbeats, in ms; the darkest is the slowest."
            figures.append(Figure("Round trips", what, drawing))
        if sent:
            drawing = plots.matrix(names, sent, rows="from", columns="to", label="messages sent")
            figures.append(Figure("Messages sent", "Over each link, as its sender counted.", drawing))
        return figures

    def _delivery(self) -> Section | None:
        reasons: dict[str, dict[str, int]] = defaultdict(dict)
        for drop in self._rows("drops"):
            reasons[drop.node][drop.reason] = drop.count
        carried = [row for row in self._rows("brokers") if row.published is not None]
        carried.sort(key=lambda row: (natural(row.name), row.node))
        rows = [
            [
                row.name,
                *(f"{value or 0:,}" for value in (row.published, row.delivered, row.dropped)),
                ", ".join(f"{reason} {count:,}" for reason, count in reasons[row.node].items() if count),
                "-" if row.loop_late_ms_max is None else _milliseconds(row.loop_late_ms_max),
                "-" if row.rss_bytes_max is None else size(row.rss_bytes_max),
            ]
            for row in carried[:BROKERS_MOST]
        ]
        if not rows:
            return None
        columns = [
            Column("broker", False, True),
            *(Column(name) for name in ("published", "delivered", "dropped")),
        ]
        columns += [Column("why", False, wraps=True), Column("latest timer"), Column("most memory")]
        more = (
            f"{len(carried) - len(rows):,} more are in the table brokers." if len(carried) > len(rows) else ""
        )
        what = "As brokers counted, up to the last statistics of each boot."
        return Section("Delivery", grids=[Grid(columns, rows, what=what, more=more).without_zeros()])

    def _truth(self) -> Section | None:
        matches = self._rows("matches")
        if not matches:
            return None
        wrong = [row for row in matches if row.verdict != "tp"]
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self._found.matches.items()))
        rows = [
            [self._when(row.at, tenth=True), row.of, row.verdict, row.truth or "", row.found or ""]
            for row in wrong[:EVENTS_MOST]
        ]
        columns = [Column(name, False, True) for name in ("time", "what", "verdict")]
        columns += [Column(name, False, True, wraps=True) for name in ("was done", "was found")]
        said = [Said(f"Compared with the effects of the simulation: {counts}.")]
        return Section("Against the truth", said, grids=[Grid(columns, rows)] if rows else [])

    def _when(self, at: Instant, *, tenth: bool = False) -> str:
        """With the date if there is more than one."""
        moment = datetime.fromtimestamp(at // 1_000_000, UTC)
        form = "%H:%M:%S" if tenth and self._axis.span_s < DAY_S else "%Y-%m-%d %H:%M:%S"
        return moment.strftime(form) + (f".{at % 1_000_000 // 100_000}" if tenth else "")


MEANING_OF_DEATHS: Final[Mapping[str, str]] = {
    "crash": "the process ended by force",
    "power_off": "its host lost power or was gone at once",
    "paused": "the process was stopped for a while and continued",
    "cut off": "it ran, but those that reported it heard nothing of it",
    "log lost": "its log does not tell what became of it",
    "left": "it had left properly; the news did not arrive",
    "mistaken": "it ran, and those that reported it heard it",
}


def _quality(found: Findings, digest: Digest) -> Section:
    quality = found.quality
    said = [Said(f"{quality.rows:,} rows in {quality.files:,} files, {size(quality.bytes)}.")]
    for count, what in (
        (quality.corrupt, "lines are not rows; they are in quarantine with the reasons."),
        (quality.unknown, "rows are of kinds or versions that this program does not know."),
        (quality.duplicates, "rows occurred twice and count once."),
        (quality.gaps, "numbered rows are missing: a disk failed, or a file is gone."),
    ):
        if count:
            said.append(Said(f"{count:,} {what}", "warn"))
    if quality.conflicts:
        what = "rows repeat a number with other content: the folder has logs of two meshes with one name."
        said.append(Said(f"{quality.conflicts:,} {what}", "bad"))
    # Files without a fault are only counted if there are many files.
    files = sorted(digest.files, key=lambda row: (-(row.corrupt + row.unknown + row.gaps), row.file))
    rows = [
        [
            row.file,
            *(
                f"{getattr(row, name):,}"
                for name in ("lines", "rows", "corrupt", "unknown", "duplicates", "gaps")
            ),
        ]
        for row in files[:FILES_MOST]
    ]
    columns = [Column("file", False, True), Column("lines"), Column("rows"), Column("corrupt")]
    columns += [Column("unknown"), Column("duplicates"), Column("missing")]
    more = f"{len(files) - len(rows):,} more are in the table files." if len(files) > len(rows) else ""
    clocks = [(run.clock_error_s, run.wall_off_s) for run in found.runs]
    errors = [error for error, _ in clocks if error is not None]
    offs = [off for _, off in clocks if off is not None]
    if errors and offs:
        said.append(
            Said(
                f"Times of all brokers were put on one clock, to {max(errors) * 1e3:.3g} ms; "
                f"wall clocks were up to {duration(max(offs))} away from it."
            )
        )
    return Section("The logs themselves", said, grids=[Grid(columns, rows, more=more).without_zeros()])


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


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MOST
    return ", ".join(names[:NAMES_MOST]) + (f" and {more} more" if more > 0 else "")


def _milliseconds(value: float) -> str:
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def _clock(at: Instant) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%H:%M:%S")
