"""All tables of an analysis, made from the logs: the order of decisions and what each is based on.

Clocks come first, since everything else is in mesh time. Then lives of processes, then losses of links
(outages, parts), then opinions of members about these (changes, mistakes, the detector, views). Traffic needs
clocks only. The truth of a simulation, if present, is only compared with the findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from mesh.analysis.carried.pairs import pairs
from mesh.analysis.carried.tables import brokers, drops, links, traffic
from mesh.analysis.clocks.apply import at, facts
from mesh.analysis.clocks.measuring import clocks, measure
from mesh.analysis.lives.tables import figures, lives
from mesh.analysis.made import made
from mesh.analysis.opinions.tables import opinions
from mesh.analysis.results.spark_types import as_decided
from mesh.analysis.results.tables import Life, Outage
from mesh.analysis.silence.tables import silences
from mesh.analysis.truth.tables import matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mesh.analysis.reading.logs import Logs

TOLD: Final = ("boots", "said", "linked", "stretches")
"""Facts that several decisions stand on."""
Stage = Callable[[str], None]


def decide(logs: Logs, *, window_s: float, say: Stage = lambda stage: None) -> dict[str, DataFrame]:
    """Every table of the logs by name, with instants as microseconds. To be written by `as_table`.

    ``window_s`` is the length of the windows of churn, views and traffic.

    Raises:
        OtherTruth: the truth beside the logs belongs to another run.
    """
    files = logs.files
    say("aligning all clocks")
    clock = measure(logs)
    heard_of = made(pairs(logs.heard, logs.mem, logs.holes))
    told = facts(logs, clock, heard_of)
    kept: dict[str, Any] = {name: made(getattr(told, name)) for name in TOLD}
    told = replace(told, **kept)
    say("finding the lives of processes")
    life = made(as_decided(lives(told), Life))
    of_lives = figures(life, window_s)
    say("finding silence between brokers")
    silent = silences(told.boots, told.stretches, told.linked, life, told.holes)
    outages = made(as_decided(silent.outages, Outage))
    say("judging reports of members about each other")
    periods = {
        row["run"]: row["period_s"]
        for row in told.boots.groupBy("run").agg(F.max("period_s").alias("period_s")).collect()
    }
    thought = opinions(told.said, life, outages, periods=periods, window_s=window_s)
    say("counting messages")
    stats = logs.stats.join(
        F.broadcast(clock.select("run", "boot", "first_seq", "rough", "pieces")), ["run", "boot"]
    )
    stats = made(stats.withColumn("at", at("mono_ns")))
    scored = matches(
        logs.truth,
        boots=told.boots,
        holes=told.holes,
        stretches=told.stretches,
        lives=life,
        outages=outages,
        parts=silent.parts,
        part_sides=silent.part_sides,
    )
    found = {
        "files": files,
        "holes": told.holes,
        "heard": logs.heard,
        "clocks": clocks(logs, clock),
        "lives": life,
        "availability": of_lives.availability,
        "churn": of_lives.churn,
        "survival": of_lives.survival,
        "outages": outages,
        "parts": silent.parts,
        "part_sides": silent.part_sides,
        "changes": thought.changes,
        "mistakes": thought.mistakes,
        "detector": thought.detector,
        "views": thought.views,
        "brokers": brokers(told.boots, told.said, stats),
        "links": links(stats, heard_of),
        "traffic": traffic(stats, window_s),
        "drops": drops(stats),
        "matches": scored,
    }
    return found
