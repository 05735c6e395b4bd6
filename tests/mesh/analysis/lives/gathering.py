"""Evidence from the oracle's facts: loops collect what Spark collects in groups."""

from __future__ import annotations

from types import SimpleNamespace

from mesh.analysis.facts import Late, Stretch
from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.telling import Told, tell
from tests.mesh.analysis.oracle.log_facts import Facts


def evidence_of(facts: Facts, node: str) -> Evidence:
    boots = [boot for boot in facts.boots if boot.node == node]
    return Evidence(
        node=node,
        begin=facts.begin,
        end=facts.end,
        period_s=(boots or facts.boots)[0].period_s,
        boots=boots,
        said=[word for word in facts.said if word.subject == node],
        linked=[row for row in facts.linked if row.peer == node],
        heard=[stretch for stretch in facts.stretches if stretch.src == node],
        awake=[(boot, first, last) for of, boot, first, last in facts.awake if of == node],
        late=[row for row in facts.late if row.node == node],
        read_late=[
            (stretch.dst, stretch.first)
            for stretch in facts.stretches
            if stretch.src == node and any(_read_late(stretch, row, facts) for row in facts.late)
        ],
        holes=[SimpleNamespace(start=start, end=end) for who, (start, end) in facts.holes if who == node],
        since=[boot.first for boot in facts.boots],
    )


def _read_late(stretch: Stretch, row: Late, facts: Facts) -> bool:
    """Its listener was stopped until the stretch began, and heard it for a moment only."""
    if row.boot != stretch.boot:
        return False
    (boot,) = (boot for boot in facts.boots if boot.boot == row.boot)
    return (
        row.late_s + 0.1 >= 2.2 * boot.period_s
        and row.at - (boot.stats_s + 0.1) * 1e6 <= stretch.first <= row.at
        and stretch.last - stretch.first <= 1.2e6 * boot.period_s
    )


def lives_of(facts: Facts) -> dict[str, list[Told]]:
    """The stretches of every broker that wrote or was reported, by name."""
    nodes = {boot.node for boot in facts.boots} | {word.subject for word in facts.said}
    return {facts.names[node]: tell(evidence_of(facts, node)) for node in sorted(nodes)}
