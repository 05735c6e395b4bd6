"""How long brokers were up: shares of time, and how long stretches last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.analysis.reporting.findings import (
    duration,
    named,
    share,
)
from mesh.analysis.reporting.page import plots
from mesh.analysis.reporting.page.model import Column, Figure, Grid, Key, Said, Section
from mesh.analysis.reporting.page.run import Run
from mesh.analysis.reporting.page.words import NAMES_MOST

BROKERS_MOST: Final = 60
METHODS: Final[Mapping[str, str]] = {
    "kaplan-meier": "Kaplan-Meier includes stretches that had not ended, with a 95 % interval.",
    "create-based": "Create-based takes those that began in the first half.",
    "naive": "Naive takes only those that ended, which favours short ones.",
}


def availability(run: Run) -> Section:
    """The section of availability, by broker."""
    found = run.found
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
    columns += [Column(name) for name in ("boots", "failures", "up")]
    columns += [
        Column("of it paused", meaning="A paused process counts as up."),
        Column("down"),
        Column("away", meaning="Time away, after a broker left, counts as neither."),
        Column("unknown", meaning="Unknown time counts as neither."),
        Column("mean repair"),
    ]
    what = "Time up, divided by time up and down. Only crashes and power losses are failures."
    said = []
    if found.unlogged:
        missing = f"There is no log of {named(found.unlogged, NAMES_MOST)}."
        said.append(Said(f"{missing} What is known of them comes from the logs of others.", "warn"))
    if found.mttf_s is not None:
        repair = "" if found.mttr_s is None else f", and the mean time to repair {duration(found.mttr_s)}"
        said.append(
            Said(f"The mean time to failure was {duration(found.mttf_s)} of a broker's time up{repair}.")
        )
    return Section("Availability", said, grids=[Grid(columns, rows, what=what, more=more).without_zeros()])


def survival(run: Run) -> Section | None:
    """The section of how long stretches up and down last; None without data."""
    rows = run.rows("survival")
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
    drawn = {key.text for figure in figures for key in figure.keys}
    said = Said(" ".join(what for method, what in METHODS.items() if method in drawn), "what")
    return Section("How long stretches last", [said], figures, layout="pair")
