"""The content of the page, in its order, and the short sections: events, partitions, delivery, the logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from mesh.analysis.reporting.digest import Digest
from mesh.analysis.reporting.findings import (
    ALIVE,
    UNHEARD,
    Findings,
    brokers_text,
    counted,
    duration,
    event_word,
    natural,
    share,
    sides_text,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.availability import availability, survival
from mesh.analysis.reporting.page.links import links
from mesh.analysis.reporting.page.model import (
    Column,
    Figure,
    Grid,
    Page,
    RunPage,
    Said,
    Section,
    Tile,
)
from mesh.analysis.reporting.page.over_time import over_time
from mesh.analysis.reporting.page.reports import reports
from mesh.analysis.reporting.page.run import Run
from mesh.analysis.reporting.page.words import NAMES_MOST, distance, milliseconds, short, size

EVENTS_MOST: Final = 200
PARTS_MOST: Final = 12
BROKERS_MOST: Final = 60
FILES_MOST: Final = 40
VERDICTS: Final = {
    "tp": "right",
    "fp": "not done",
    "fn": "missed",
    "below resolution": "too short to tell",
    "not observable": "not observable: logs lost",
}
HOLES_MOST: Final = 12


def page_of(found: Findings, digest: Digest) -> Page:
    """The page's content."""
    runs = [_page(Run(run, digest)) for run in found.runs]
    names = ", ".join(run.run for run in found.runs)
    return Page(
        f"{names}: how the mesh fared",
        found.verdict if len(runs) == 1 else "",
        runs,
        [_quality(found, digest)],
    )


def _page(run: Run) -> RunPage:
    found = run.found
    sections = [
        over_time(run),
        _events(run),
        _parts(run),
        availability(run),
        survival(run),
        reports(run),
        links(run),
        _delivery(run),
        _truth(run),
    ]
    return RunPage(
        found.run,
        found.verdict,
        f"{run.when(found.started)} to {run.when(found.ended)} UTC",
        _tiles(run),
        [section for section in sections if section is not None],
    )


def _tiles(run: Run) -> list[Tile]:
    found = run.found
    failures = sum(found.failures.values())
    partitions = sum(part.kind == "complete" for part in found.parts)
    wrong = sum(found.deaths_told.get(cause, 0) for cause in ALIVE)
    tiles = [
        _counted(len(found.brokers), "broker"),
        _counted(failures, "failure", tone="bad"),
        _counted(partitions, "partition", tone="bad"),
        Tile("wrongly reported dead", f"{wrong:,}", "warn" if wrong else ""),
    ]
    if cuts := len(found.parts) - partitions:
        tiles.insert(3, _counted(cuts, "cut", " of links", tone="bad"))
    if "delivered" in found.traffic:
        tiles.append(Tile("delivered", short(found.traffic["delivered"])))
    if found.availability is not None:
        tiles.insert(2, Tile("availability", share(found.availability)))
    if dropped := found.traffic.get("dropped", 0):
        tiles.append(Tile("dropped", short(dropped), "warn"))
    return tiles


def _counted(count: int, noun: str, more: str = "", tone: str = "") -> Tile:
    """``tone`` is for a count above zero."""
    return Tile(f"{noun}{'s' if count != 1 else ''}{more}", f"{count:,}", tone if count else "")


def _events(run: Run) -> Section | None:
    found = run.found
    rows = [
        [
            run.when(event.at, tenth=True),
            event_word(event, found),
            brokers_text(event, found, NAMES_MOST),
            "" if event.lasted_s is None else duration(event.lasted_s),
            "" if event.told_s is None else f"after {duration(event.told_s)} by {event.told_by}",
        ]
        for event in found.events[:EVENTS_MOST]
    ]
    if not rows:
        return None
    more = len(found.events) - len(rows)
    columns = [Column("time (UTC)", False, True), Column("what", False, True)]
    columns += [Column("brokers", False, True, wraps=True), Column("lasted"), Column("reported dead", False)]
    grid = Grid(columns, rows, more=f"{more:,} more are in the table lives." if more else "")
    said = Said("Events of processes and links. Events within half a second share one line.", "what")
    return Section("What happened", [said], grids=[grid.without_zeros()])


def _parts(run: Run) -> Section:
    found = run.found
    what = Said(
        "Sides whose brokers ran, but heard nothing of the other side for more than 2.2 periods. A partition "
        "begins with the last heartbeat from one side to the other, and ends with the next one.",
        "what",
    )
    if not found.parts:
        return Section("Partitions", [Said("None: all running brokers heard each other all the time."), what])
    figures = []
    for part in found.parts[:PARTS_MOST]:
        lasted = duration(((found.ended if part.end is None else part.end) - part.start) / 1e6)
        until = "not healed when the logs end" if part.end is None else f"to {run.when(part.end, tenth=True)}"
        majority = "" if part.majority or part.kind != "complete" else " No side had a majority."
        one_way = part.kind == "one-way"
        unheard = f" {sides_text(part, NAMES_MOST)}." if one_way else ""
        figures.append(
            Figure(
                f"{part.no}: {part.kind}",
                f"{run.when(part.start, tenth=True)}, {until}, {lasted}.{majority}{unheard}",
                plots.sides(part.sides, f"{UNHEARD} →" if one_way else ""),
            )
        )
    more = len(found.parts) - len(figures)
    said = [what] + ([Said(f"{more:,} more are in the table parts.", "muted")] if more else [])
    return Section("Partitions", said, figures, layout="pair")


def _delivery(run: Run) -> Section | None:
    reasons: dict[str, dict[str, int]] = defaultdict(dict)
    for drop in run.rows("drops"):
        reasons[drop.node][drop.reason] = drop.count
    carried = [row for row in run.rows("brokers") if row.published is not None]
    carried.sort(key=lambda row: (natural(row.name), row.node))
    rows = [
        [
            row.name,
            *(f"{value or 0:,}" for value in (row.published, row.delivered, row.dropped)),
            ", ".join(f"{reason} {count:,}" for reason, count in reasons[row.node].items() if count),
            "-" if row.loop_late_ms_max is None else milliseconds(row.loop_late_ms_max),
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
    columns += [Column("why", False, wraps=True), Column("longest delay"), Column("most memory")]
    more = f"{len(carried) - len(rows):,} more are in the table brokers." if len(carried) > len(rows) else ""
    what = "Each broker counted for itself. Its counts end with the last statistics of each of its runs."
    return Section("Delivery", grids=[Grid(columns, rows, what=what, more=more).without_zeros()])


def _truth(run: Run) -> Section | None:
    matches = run.rows("matches")
    if not matches:
        return None
    wrong = [row for row in matches if row.verdict != "tp"]
    told = sorted((VERDICTS[verdict], count) for verdict, count in run.found.matches.items())
    counts = ", ".join(f"{count:,} {words}" for words, count in told)
    rows = [
        [run.when(row.at, tenth=True), row.of, VERDICTS[row.verdict], row.truth or "", row.found or ""]
        for row in wrong[:EVENTS_MOST]
    ]
    columns = [Column(name, False, True) for name in ("time (UTC)", "what", "verdict")]
    columns += [Column(name, False, True, wraps=True) for name in ("was done", "was found")]
    said = [Said(f"What the analysis found, compared with what the simulation did: {counts}.")]
    return Section("Compared with what was done", said, grids=[Grid(columns, rows)] if rows else [])


def _holes(run: Run) -> Iterator[str]:
    for each in run.found.holes[:HOLES_MOST]:
        longest = f"{run.when(each.start, tenth=True)} to {run.when(each.end, tenth=True)} UTC"
        yield f"The log of {each.broker} has a hole from {longest}: what it heard then is unknown."
    if (more := len(run.found.holes) - HOLES_MOST) > 0:
        yield f"The logs of {more:,} more brokers have holes, which are in the table holes."


def _quality(found: Findings, digest: Digest) -> Section:
    quality = found.quality
    of = f"{counted(quality.rows, 'row')} in {counted(quality.files, 'file')}, {size(quality.bytes)}."
    said = [Said(of)]
    for count, one, many in (
        (
            quality.corrupt,
            "line is no row; it is in quarantine with the reason.",
            "lines are not rows; they are in quarantine with the reasons.",
        ),
        (
            quality.unknown,
            "row is of a kind or version that this program does not know.",
            "rows are of kinds or versions that this program does not know.",
        ),
        (
            quality.duplicates,
            "row occurred twice, and was counted once.",
            "rows occurred twice, and were counted once.",
        ),
        (
            quality.gaps,
            "numbered row is missing: a disk failed, or a file is gone.",
            "numbered rows are missing: a disk failed, or a file is gone.",
        ),
    ):
        if count:
            said.append(Said(f"{count:,} {one if count == 1 else many}", "warn"))
    said += [Said(f"{damaged.sentence}.", "bad") for damaged in quality.damaged[:FILES_MOST]]
    if (unnamed := len(quality.damaged) - FILES_MOST) > 0:
        said.append(Said(f"{counted(unnamed, 'more file')} damaged; the table files names them.", "bad"))
    said += [Said(text, "warn") for run in found.runs for text in _holes(Run(run, digest))]
    if quality.conflicts:
        twice = f"{counted(quality.conflicts, 'number')} came twice with different content"
        said.append(Said(f"{twice}: the folder has logs of two meshes with one name.", "bad"))
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
                f"wall clocks were up to {distance(max(offs))} away from it."
            )
        )
    return Section("The logs", said, grids=[Grid(columns, rows, more=more).without_zeros()])
