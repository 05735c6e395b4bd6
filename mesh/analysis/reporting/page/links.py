"""The links: what they carried and lost, and their round trips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.analysis.reporting.findings import (
    natural,
    share,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.model import Column, Figure, Grid, Said, Section
from mesh.analysis.reporting.page.run import Run
from mesh.analysis.reporting.page.words import milliseconds, short, size
from mesh.analysis.results.tables import Link

LINKS_MOST: Final = 40
MATRIX_MOST: Final = 40


def links(run: Run) -> Section | None:
    """The section of the links, the worst first; None without data."""
    links: list[Link] = run.rows("links")
    if not links:
        return None
    figures = _matrices(run, links)
    worst = sorted(
        links,
        key=lambda row: (
            -((row.lost or 0) + (row.dropped or 0) + (row.missed or 0)),
            -(row.rtt_p99_us or 0),
        ),
    )
    rows = [
        [
            f"{run.name(row.node)} → {run.name(row.peer)}",
            *("-" if value is None else f"{value:,}" for value in (row.msgs_out, row.msgs_in)),
            *("-" if value is None else size(value) for value in (row.bytes_out, row.bytes_in)),
            *("-" if value is None else f"{value:,}" for value in (row.dropped, row.lost, row.missed)),
            *(
                "-" if value is None else milliseconds(value / 1e3)
                for value in (row.rtt_p50_us, row.rtt_p99_us)
            ),
        ]
        for row in worst[:LINKS_MOST]
    ]
    columns = [Column("link", False, True)]
    columns += [Column(name) for name in ("sent", "received", "bytes out", "bytes in", "dropped")]
    columns += [
        Column("lost", meaning="Lost: gaps in the numbers of frames."),
        Column("heartbeats missed", meaning="Heartbeats missed: rounds in which no survey of the peer came."),
        Column("p50"),
        Column("p99", meaning="p50, p99: round trips of heartbeats."),
    ]
    more = f"{len(links) - len(rows):,} more are in the table links." if len(links) > len(rows) else ""
    what = (
        "The first broker of each link counted. It sent to the second broker, and received from it. "
        "The worst link comes first."
    )
    beats = run.found.heartbeats
    said = []
    if beats.get("heard") is not None:
        heard, missed = int(beats["heard"] or 0), int(beats.get("missed") or 0)
        part = share(missed / (heard + missed)) if heard + missed else "-"
        over = f"{beats.get('links') or 0:,} links"
        said = [
            Said(f"Of the heartbeat surveys on {over}, {heard:,} arrived and {missed:,} ({part}) did not.")
        ]
    return Section(
        "Links", said, figures, [Grid(columns, rows, what=what, more=more).without_zeros()], "pair"
    )


def _matrices(run: Run, links: Sequence[Link]) -> list[Figure]:
    nodes = sorted(
        {node for row in links for node in (row.node, row.peer)},
        key=lambda node: (natural(run.name(node)), node),
    )
    if not 1 < len(nodes) <= MATRIX_MOST:
        return []
    place = {node: number for number, node in enumerate(nodes)}
    names = [run.name(node) for node in nodes]
    slowest = max((row.rtt_p99_us or 0 for row in links), default=0) or 1.0
    most = max((row.msgs_out or 0 for row in links), default=0)
    trips = {
        (place[row.node], place[row.peer]): (
            row.rtt_p99_us / slowest,
            f"{row.rtt_p99_us / 1e3:.3g}",
            f"{run.name(row.node)} to {run.name(row.peer)}: {milliseconds(row.rtt_p99_us / 1e3)}",
        )
        for row in links
        if row.rtt_p99_us is not None
    }
    sent = {
        (place[row.node], place[row.peer]): (
            row.msgs_out / most,
            short(row.msgs_out),
            f"{run.name(row.node)} sent {run.name(row.peer)} {row.msgs_out:,} messages",
        )
        for row in links
        if row.msgs_out
    }
    figures = []
    if trips:
        drawing = plots.matrix(names, trips, rows="asks", columns="answers", label="round trips")
        what = "The 99th percentile of heartbeats, in ms. The darkest field is the slowest."
        figures.append(Figure("Round trips", what, drawing))
    if sent:
        drawing = plots.matrix(names, sent, rows="from", columns="to", label="messages sent")
        what = "Each sender counted the messages that it sent over each of its links."
        figures.append(Figure("Messages sent", what, drawing))
    return figures
