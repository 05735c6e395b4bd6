"""The broadcast tree, which is not there yet: its coming must fill ``eager`` and the counter ``copies`` of a
`View`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simulations.evidence import Evidence, Sample
from simulations.invariants.check import Check, Parameter, at_end
from simulations.invariants.verdict import Verdict, verdict


@at_end
def tree(evidence: Evidence, rmr_max: float = 0.1) -> Verdict:
    """RMR: payloads received for each broker and broadcast, beyond the one that is needed."""
    wrong: list[str] = []
    samples = [
        sample
        for sample in evidence.rest
        if sample.views and all(view.eager is not None for view in sample.views.values())
    ]
    for sample in samples[-1:]:
        ids = {view.id: view.name for view in sample.views.values()}
        edges = dict.fromkeys(
            tuple(sorted((view.id, other)))
            for view in sample.views.values()
            for other in view.eager or ()
            if other in ids
        )
        pieces = _pieces(list(ids), list(edges))
        if pieces > 1:
            wrong.append(f"the eager edges leave {pieces} pieces at {sample.at_s:.1f} s")
        if len(edges) > len(ids) - pieces:
            wrong.append(
                f"{len(edges)} eager edges among {len(ids)} brokers at {sample.at_s:.1f} s make a ring; "
                f"{len(ids) - 1} are a tree"
            )
    if len(samples) > 1:
        wrong += _redundant(evidence, samples, rmr_max)
    return verdict("tree", len(samples), "moment(s) with a tree", wrong)


def _pieces(nodes: list[int], edges: list[tuple[int, ...]]) -> int:
    head = {node: node for node in nodes}

    def of(node: int) -> int:
        while head[node] != node:
            node = head[node]
        return node

    for one, other in edges:
        head[of(one)] = of(other)
    return sum(head[node] == node for node in nodes)


def _redundant(evidence: Evidence, samples: list[Sample], rmr_max: float) -> Iterator[str]:
    first, last = samples[0], samples[-1]
    broadcasts = sum(first.at_s < each.at_s <= last.at_s for each in evidence.ledger.publications.values())
    copies = sum(
        view.counters.get("copies", 0) - first.views[name].counters.get("copies", 0)
        for name, view in last.views.items()
        if name in first.views
    )
    needed = broadcasts * (len(last.views) - 1)
    if needed and copies / needed - 1 > rmr_max:
        allowed = f"{needed} and {rmr_max:.0%} more are allowed"
        yield f"{copies} payloads came for {broadcasts} broadcasts; {allowed}"


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D5",
        "tree",
        "eventually",
        "The eager edges make one tree, and few payloads come twice.",
        tree,
        (Parameter("rmr_max", "number", 0.1, "payloads beyond those needed, as a share"),),
        dormant="a broadcast tree",
    ),
)
