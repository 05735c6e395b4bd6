"""What members reported about each other: deaths and their causes, detection, mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.analysis.reporting.findings import (
    duration,
    share,
)
from mesh.analysis.reporting.page.model import Column, Grid, Said, Section
from mesh.analysis.reporting.page.run import Run

WRONG_MOST: Final = 20
MEANING_OF_DEATHS: Final[Mapping[str, str]] = {
    "crash": "the process ended by force",
    "power_off": "its host lost power or was gone at once",
    "paused": "the process was stopped for a while and continued",
    "cut off": "it ran, but those that reported it heard nothing of it",
    "log lost": "its log does not say what happened to it",
    "left": "it had left properly; the news did not arrive",
    "mistaken": "it ran, and those that reported it heard it",
}


def reports(run: Run) -> Section | None:
    """The section of what members reported about each other; None without data."""
    found = run.found
    grids = []
    if found.deaths_told:
        meaning = MEANING_OF_DEATHS
        grids.append(
            Grid(
                [
                    Column("cause", False, True),
                    Column("reported deaths", always=True),
                    Column("", False, wraps=True),
                ],
                [[cause, count, meaning.get(cause, "")] for cause, count in found.deaths_told.items()],
                "Why members were reported dead",
                "Each boot and incarnation counts once, however many members reported it.",
            )
        )
    if found.detection:
        grids.append(_detection(run))
    wrong = sorted(run.rows("mistaken"), key=lambda row: (-row.count, row.subject))
    if wrong:
        rows = [
            [
                *(run.name(row.subject), row.state, row.cause, row.count, row.observers),
                "-" if row.longest_s is None else duration(row.longest_s),
            ]
            for row in wrong[:WRONG_MOST]
        ]
        columns = [
            Column("member", False, True),
            Column("reported as", False, True),
            Column("because", False, True),
        ]
        columns += [Column("times"), Column("by"), Column("longest")]
        more = f"{len(wrong) - len(rows):,} more are in the table mistakes." if len(wrong) > len(rows) else ""
        grids.append(
            Grid(columns, rows, "Running members reported suspect or dead", more=more).without_zeros()
        )
    said = []
    if found.agreement is not None:
        agreed = share(found.agreement)
        said.append(
            Said(f"At the end of the worst window, {agreed} of the members agreed on who is present.")
        )
    return Section("Reports of members about each other", said, grids=grids) if grids or said else None


def _detection(run: Run) -> Grid:
    of = run.found.detection

    def seconds(name: str) -> str:
        value = of.get(name)
        return "-" if value is None else duration(float(value))

    rate = of.get("rate_per_h")
    accuracy = of.get("accuracy")
    rows = [
        [
            "failures, by observer",
            f"{of.get('failures') or 0:,}",
            "each failure counts once for each observer that ran",
        ],
        ["noticed after, p50", seconds("detection_p50_s"), "from the failure to DEAD (T_D)"],
        ["noticed after, p99", seconds("detection_p99_s"), ""],
        [
            "never noticed",
            f"{of.get('missed') or 0:,}",
            "ended before an observer reported the broker dead",
        ],
        ["false reports", f"{of.get('mistakes') or 0:,}", "DEAD reported about a running broker"],
        ["false reports an hour", "-" if rate is None else f"{rate:.3g}", "of one observer and one member"],
        ["false reports lasted", seconds("mistake_s"), "on average (T_M)"],
        [
            "accuracy",
            "-" if accuracy is None else share(float(accuracy)),
            "share of the time without a false report (P_A)",
        ],
    ]
    columns = [
        Column("measure", False, True),
        Column("all pairs", always=True),
        Column("", False, wraps=True),
    ]
    what = "The failure detector by the measures of Chen, Toueg and Aguilera, over all pairs of brokers."
    kept = [row for row in rows if row[1] not in ("-", "0")]
    return Grid(columns, kept or rows[:1], "Detection", what)
