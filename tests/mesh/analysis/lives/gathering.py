"""Evidence from the oracle's facts: loops collect what Spark collects in groups."""

from __future__ import annotations

from types import SimpleNamespace

from mesh.analysis.facts import Linked
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
        linked=[row for row in facts.linked if row.peer == node and not _has_left(facts, row)],
        heard=[stretch for stretch in facts.stretches if stretch.src == node],
        awake=[(boot, first, last) for of, boot, first, last in facts.awake if of == node],
        late=[row for row in facts.late if row.node == node],
        holes=[SimpleNamespace(start=start, end=end) for who, (start, end) in facts.holes if who == node],
        since=[boot.first for boot in facts.boots],
    )


def _has_left(facts: Facts, row: Linked) -> bool:
    """Its peers close their links to a broker that has left."""
    (boot,) = (boot for boot in facts.boots if boot.boot == row.boot)
    return boot.left is not None and row.at >= boot.left


def lives_of(facts: Facts) -> dict[str, list[Told]]:
    """The stretches of every broker that wrote or was reported, by name."""
    nodes = {boot.node for boot in facts.boots} | {word.subject for word in facts.said}
    return {facts.names[node]: tell(evidence_of(facts, node)) for node in sorted(nodes)}
