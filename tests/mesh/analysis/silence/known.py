"""The input for the decisions on silence, collected with loops from the oracle's facts instead of by
Spark."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.analysis.silence.rows import Tables, tables
from tests.mesh.analysis.lives.gathering import evidence_of, tell
from tests.mesh.analysis.oracle.log_facts import Facts
from tests.mesh.analysis.oracle.silence_tables import Life, Oracle


def lives_of(facts: Facts) -> list[Life]:
    nodes = sorted({boot.node for boot in facts.boots} | {word.subject for word in facts.said})
    return [
        Life(node, told.state, told.start, told.end, told.cause, told.boot, told.met)
        for node in nodes
        for told in tell(evidence_of(facts, node))
    ]


def joined_of(facts: Facts) -> list[tuple[str, int]]:
    """When each boot first heard any other."""
    found: dict[tuple[str, str], int] = {}
    for each in facts.stretches:
        key = (each.dst, each.boot)
        found[key] = min(found.get(key, each.first), each.first)
    return [(node, at) for (node, _), at in found.items()]


def beyond_of(facts: Facts) -> list[tuple[str, str, int, int]]:
    """The stretches that go on after the time of which a log tells everything."""
    told = {(boot.node, boot.boot): boot.told for boot in facts.boots if boot.told < boot.last}
    return [
        (each.src, each.dst, each.first, each.last)
        for each in facts.stretches
        if each.last > told.get((each.dst, each.boot), each.last)
    ]


def silence_of(facts: Facts, lives: Sequence[Life]) -> Tables:
    """For a full mesh."""
    gaps = [(*gap, 0.0) for gap in Oracle(facts, lives).logged_gaps()]
    return tables(
        [(life.node, life.state, life.start, life.end, life.boot, life.met) for life in lives],
        gaps,
        joined_of(facts),
        [(boot.node, boot.period_s) for boot in facts.boots],
        None,
        (),
        [(boot.node, boot.first, boot.told) for boot in facts.boots],
        [(node, *hole) for node, hole in facts.holes],
        beyond_of(facts),
    )
