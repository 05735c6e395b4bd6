"""All tables of a folder of logs of one run with a full mesh. Plain Python, for up to some 200 000 rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mesh.analysis.truth.scoring import Run, score, truth_row
from tests.mesh.analysis.lives.gathering import evidence_of, tell
from tests.mesh.analysis.oracle import carried_tables, lives_tables, reading
from tests.mesh.analysis.oracle.clock_tables import Clocks
from tests.mesh.analysis.oracle.log_facts import Facts, wall_us
from tests.mesh.analysis.oracle.mesh_facts import holes, mesh_facts, raw_holes
from tests.mesh.analysis.oracle.opinions_tables import Opinions
from tests.mesh.analysis.oracle.silence_tables import Oracle
from tests.mesh.analysis.silence.known import joined_of, silence_of

Row = dict[str, Any]
Table = list[Row]
SECOND = 1_000_000


def tables(folder: Path, window_s: float) -> dict[str, Table]:
    """Tables by name.

    Lives, parts and matches come from the decisions themselves, with input collected by plain Python.
    `tests.mesh.analysis.truth.proof` compares these with the truth, and `Oracle.check` also checks parts.
    """
    rows = reading.read_rows(folder)
    run = rows[0]["run"]
    heard = reading.heard(folder) + reading.summed_up(folder)
    clocks = Clocks(rows, heard)
    facts = mesh_facts(folder, rows, heard, clocks)
    lives = _lives(facts)
    oracle = Oracle(facts, lives)
    silence = silence_of(facts, lives)
    oracle.check(silence.parts, silence.sides)
    errors = oracle.errors()
    outages = [
        dict(zip(("src", "dst", "last", "next", "expected", "cause"), each, strict=True))
        | {"run": run, "error_s": errors[each[:4]]}
        for each in oracle.outages()
    ]
    period_s = max(boot.period_s for boot in facts.boots)
    opinions = Opinions(facts.said, lives, [SimpleNamespace(**each) for each in outages], period_s)
    stats = carried_tables.Stats(rows)
    nodes = sorted({life.node for life in lives})
    survival = lives_tables.survival(lives)
    return {
        "files": reading.files(folder),
        "holes": holes(rows, clocks),
        "heard": heard,
        "clocks": clocks.table(),
        "lives": [{"run": run, **vars(life)} for life in lives],
        "availability": [
            {"run": run, "node": node}
            | lives_tables.availability([life for life in lives if life.node == node])
            for node in nodes
        ],
        "churn": [{"run": run, **row} for row in lives_tables.churn(lives, window_s)],
        "survival": [
            {"run": run, "of": of, "method": method, "t_s": t_s, **row}
            for (of, method, t_s), row in survival.items()
        ],
        "outages": outages,
        "parts": [
            {"run": run, "no": no, "start": start, "end": end, "kind": kind, "majority": majority}
            for no, start, end, kind, majority in silence.parts
        ],
        "part_sides": [
            {"run": run, "no": no, "node": node, "side": side} for no, node, side in silence.sides
        ],
        "changes": opinions.changes(),
        "mistakes": opinions.mistakes,
        "detector": opinions.detector(),
        "views": opinions.views(window_s),
        "brokers": carried_tables.brokers(stats, facts.boots, facts.said),
        "links": carried_tables.links(stats, heard, raw_holes(rows)),
        "traffic": carried_tables.traffic(stats, clocks, window_s),
        "drops": carried_tables.drops(stats),
        "matches": _matches(run, facts, lives, outages, silence),
    }


def _lives(facts: Facts) -> list[Any]:
    nodes = {boot.node for boot in facts.boots} | {word.subject for word in facts.said}
    nodes |= {stretch.src for stretch in facts.stretches} | {row.peer for row in facts.linked}
    return [
        SimpleNamespace(node=node, **told._asdict())
        for node in sorted(nodes)
        for told in tell(evidence_of(facts, node))
    ]


def _matches(run: str, facts: Facts, lives: Sequence[Any], outages: Table, silence: Any) -> Table:
    told = score(
        [
            truth_row(wall_us(row), row["op"], row["of"], row["a"], row["b"], row["value"], row["more"])
            for row in sorted(facts.truth, key=lambda row: int(row["seq"]))
        ],
        Run(
            names=facts.names,
            lives=[
                (life.node, life.state, life.start, life.end, life.cause, life.boot, life.met)
                for life in lives
            ],
            silent=[(row["src"], row["dst"], row["last"], row["next"]) for row in outages],
            parts=[row[:4] for row in silence.parts],
            sides=silence.sides,
            joined=joined_of(facts),
            logged=[(boot.node, boot.first, boot.told, boot.last) for boot in facts.boots],
            holes=[(node, *hole) for node, hole in facts.holes],
            period=round(max(boot.period_s for boot in facts.boots) * SECOND),
            counters=round(max(boot.stats_s for boot in facts.boots) * SECOND),
        ),
    )
    names = ("of", "truth", "found", "verdict", "at", "start_lag_s", "end_lag_s")
    return [{"run": run, **dict(zip(names, row, strict=True))} for row in told] if facts.truth else []
