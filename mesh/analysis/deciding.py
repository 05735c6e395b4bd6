"""All tables of an analysis, from what the logs say: which decision stands on which.

Clocks first, since everything else is in mesh time. Then what processes did (lives), then what links did
(outages, parts), then what members said of it (changes, mistakes, the detector, views). What was carried
stands on clocks alone. The truth of a simulation, if it is there, is only held against what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from mesh.analysis.carried.tables import brokers, drops, links, traffic
from mesh.analysis.clocks.apply import at, facts
from mesh.analysis.clocks.measuring import clocks, measure
from mesh.analysis.lives.tables import figures, lives
from mesh.analysis.opinions.tables import opinions
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import TABLES
from mesh.analysis.silence.tables import silences
from mesh.analysis.truth.tables import matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mesh.analysis.reading.logs import Logs

READ: Final = ("heard", "boots_raw", "mem", "link", "stats", "meta")
TOLD: Final = ("boots", "said", "linked", "late", "stretches", "awake")
Stage = Callable[[str], None]


@dataclass
class Decided:
    """Frames by the names of their tables, with instants as microseconds."""

    tables: dict[str, DataFrame] = field(default_factory=dict)

    def add(self, name: str, frame: DataFrame) -> DataFrame:
        """A table, with its columns in their order."""
        schema = decision_schema(TABLES[name])
        table = frame.select(*(F.col(column.name).cast(column.dataType) for column in schema.fields))
        self.tables[name] = table
        return table


def decide(logs: Logs, *, window_s: float, say: Stage = lambda stage: None) -> Decided:
    """Every table of the logs; ``window_s`` is the length of the windows of churn, views and traffic.

    Raises:
        OtherTruth: the truth beside the logs is of another run.
    """
    found = Decided()
    _decide(found, logs, window_s, say)
    return found


def _made(frame: DataFrame) -> DataFrame:
    """Computed now, and with no memory of how: several frames stand on it, and a plan that holds the plans of
    all it stands on takes Spark minutes to look at."""
    return frame.localCheckpoint()


def _decide(found: Decided, logs: Logs, window_s: float, say: Stage) -> None:
    found.add("files", logs.files)
    made: dict[str, Any] = {name: _made(getattr(logs, name)) for name in READ}
    logs = replace(logs, **made)
    found.add("heard", logs.heard)
    say("putting all clocks on one")
    clock = _made(measure(logs))
    found.add("clocks", clocks(logs, clock))
    told = facts(logs, clock)
    told = replace(told, **{name: _made(getattr(told, name)) for name in TOLD})
    say("telling what processes did")
    life = _made(found.add("lives", lives(told)))
    of_lives = figures(life, window_s)
    for name in ("availability", "churn", "survival"):
        found.add(name, getattr(of_lives, name))
    say("looking for silence between brokers")
    silent = silences(told.boots, told.stretches, told.linked, life)
    outages = _made(found.add("outages", silent.outages))
    parts, sides = found.add("parts", silent.parts), found.add("part_sides", silent.part_sides)
    say("weighing what members said of each other")
    periods = {
        row["run"]: row["period_s"]
        for row in told.boots.groupBy("run").agg(F.max("period_s").alias("period_s")).collect()
    }
    thought = opinions(told.said, life, outages, periods=periods, window_s=window_s)
    for name in ("changes", "mistakes", "detector", "views"):
        found.add(name, getattr(thought, name))
    say("counting messages")
    stats = logs.stats.join(F.broadcast(clock.select("run", "boot", "rough", "pieces")), ["run", "boot"])
    stats = _made(stats.withColumn("at", at("mono_ns")))
    found.add("brokers", brokers(told.boots, stats))
    found.add("links", links(stats, logs.heard))
    found.add("traffic", traffic(stats, window_s))
    found.add("drops", drops(stats))
    found.add(
        "matches",
        matches(
            logs.truth,
            boots=told.boots,
            stretches=told.stretches,
            lives=life,
            outages=outages,
            parts=parts,
            part_sides=sides,
        ),
    )
