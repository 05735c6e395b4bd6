"""The table ``matches`` for runs that have truth, which are simulations, so all of it fits on the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Match
from mesh.analysis.truth.scoring import SECOND, Run, score, truth_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OtherTruth(ValueError):
    """The truth belongs to other logs. The message is a sentence that says what to do."""


def matches(
    truth: DataFrame,
    *,
    boots: DataFrame,
    holes: DataFrame,
    stretches: DataFrame,
    lives: DataFrame,
    outages: DataFrame,
    parts: DataFrame,
    part_sides: DataFrame,
) -> DataFrame:
    """A frame with the columns of the table as in `decision_schema`. Empty without truth.

    ``truth`` has the columns of the log and ``us``; ``boots`` and ``stretches`` those of
    `mesh.analysis.facts`, the others those of their tables. Instants are in microseconds.

    Raises:
        OtherTruth: it tells of another run, or of brokers that no log names.
    """
    from pyspark.sql import functions as F

    told: dict[str, list[Any]] = {}
    for row in truth.orderBy("seq").collect():
        told.setdefault(row.run, []).append(row)
    known = {row.run for row in boots.select("run").distinct().collect()}
    check_runs(told, known)

    def of(frame: DataFrame, run: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in frame.where(F.col("run") == run).select(*columns).collect()]

    heard = stretches.groupBy("run", "dst", "boot").agg(F.min("first").alias("at"))
    scored = []
    for run, rows in told.items():
        named = of(boots, run, "node", "name", "period_s", "stats_s")
        told_lives = of(lives, run, "node", "state", "start", "end", "cause", "boot", "met")
        tables = Run(
            names={**{node: node for node, *_ in told_lives}, **{node: name for node, name, *_ in named}},
            lives=told_lives,
            silent=of(outages, run, "src", "dst", "last", "next"),
            parts=sorted(of(parts, run, "no", "start", "end", "kind")),
            sides=of(part_sides, run, "no", "node", "side"),
            joined=of(heard, run, "dst", "at"),
            logged=of(boots, run, "node", "first", "told", "last"),
            holes=of(holes, run, "node", "start", "end"),
            period=round(max(period_s for *_, period_s, _ in named) * SECOND),
            counters=round(max(stats_s for *_, stats_s in named) * SECOND),
        )
        done = [truth_row(row.us, row.op, row.of, row.a, row.b, row.value, row.more or {}) for row in rows]
        check_names(run, [name for row in done for name in row.a], tables.names.values())
        scored += [(run, *each) for each in score(done, tables)]
    return truth.sparkSession.createDataFrame(scored, decision_schema(Match))


def check_runs(told: Collection[str], known: Collection[str]) -> None:
    """Raises `OtherTruth` unless the logs of all runs in the truth are there."""
    others = sorted(set(told) - set(known))
    if others:
        raise OtherTruth(
            f"the truth is of run {others[0]!r}, and the logs are of {_listed(known)}; put a simulation's "
            "truth beside its own logs, or remove it"
        )


def check_names(run: str, struck: Iterable[str], brokers: Iterable[str]) -> None:
    """Raises `OtherTruth` unless the truth names at least one of the brokers."""
    names = set(struck)
    if names and names.isdisjoint(brokers):
        raise OtherTruth(
            f"the truth of run {run!r} tells of {_listed(names)}, and its logs of {_listed(set(brokers))}: "
            "two runs have one name; put a simulation's truth beside its own logs, or remove it"
        )


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:3]
    return ", ".join(shown) + (" and others" if len(names) > len(shown) else "") if shown else "none"
