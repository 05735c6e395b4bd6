"""Accusations: none in a void round, and not too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mesh.broker.identity import format_id
from simulations.evidence import EVERY, Evidence, Row, Sample
from simulations.invariants.check import Check, Judge, Parameter, at_end
from simulations.invariants.circumstances import raised
from simulations.invariants.subjects import WHOM, at_most, named, pairs_watched
from simulations.invariants.verdict import Verdict, verdict


class VoidRoundsAccuseNobody(Judge):
    """An accusation and the judgement of a round happen at the same instant of the same clock."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._voids: dict[tuple[str, str], dict[int, None]] = {}

    def on_look(self, sample: Sample) -> None:
        for view in sample.views.values():
            if view.void_at is not None:
                writer = (format_id(view.id), format_id(view.boot))
                self._voids.setdefault(writer, {})[round(view.void_at * 1e6)] = None

    def finish(self) -> Verdict:
        evidence, voids = self.evidence, self._voids
        wrong = [
            f"{evidence.writer(row)} called {row['subject_name']} {row['to_state']} at {row['at_s']:.3f} s, "
            "in a round that was void"
            for row in evidence.member_rows
            if row["to_state"] in ("suspect", "dead")
            and raised(row)
            and any(
                round(row["mono_ns"] / 1e3) + near in voids.get((row["node"], row["boot"]), ())
                for near in (-1, 0, 1)
            )
        ]
        count = sum(map(len, voids.values()))
        return verdict("void_rounds_accuse_nobody", count, "void round(s)", wrong)


@at_end
def suspicions_at_most(
    evidence: Evidence, most: float = 0, per: str = "run", whom: tuple[str, ...] = ()
) -> Verdict:
    """Count suspicions raised in the safety phase, not those learned from others."""
    names = named(evidence, whom)
    since_s, until_s = evidence.phase("safety")
    counts: dict[str, int] = {}
    for row in evidence.member_rows:
        if row["to_state"] == "suspect" and raised(row) and row["subject_name"] in names:
            if since_s <= row["at_s"] <= until_s:
                key = {"run": "the run", "observer": evidence.writer(row), "member": row["subject_name"]}[per]
                counts[key] = counts.get(key, 0) + 1
    relation = {"run": "in", "observer": "by", "member": "of"}[per]
    wrong = [
        f"there were {count} suspicions {relation} {key}, more than {most:g}"
        for key, count in counts.items()
        if count > most
    ]
    detail = f"{sum(counts.values())} suspicions"
    return verdict(
        "suspicions_at_most",
        pairs_watched(evidence, names),
        "member(s) seen by another",
        wrong,
        detail=detail,
    )


class AccusesNobody(Judge):
    kinds = EVERY

    def __init__(self, evidence: Evidence, whom: tuple[str, ...] = (), of: str = "dead") -> None:
        super().__init__(evidence)
        self._names = named(evidence, whom)
        self._since_s, self._until_s = evidence.phase("safety")
        self._bad = ("dead",) if of == "dead" else ("suspect", "dead")
        self._wrong: list[str] = []
        self._looked = 0

    def on_row(self, row: Row) -> None:
        if row["at_s"] < self._since_s or self.evidence.writer(row) not in self._names:
            return
        self._looked += 1
        if (
            row["kind"] == "mem"
            and row["to_state"] in self._bad
            and raised(row)
            and row["node"] != row["subject"]
            and row["at_s"] <= self._until_s
        ):
            self._wrong.append(
                f"{self.evidence.writer(row)} called {row['subject_name']} {row['to_state']} at "
                f"{row['at_s']:.3f} s ({row['reason']})"
            )

    def finish(self) -> Verdict:
        return verdict("accuses_nobody", self._looked, "row(s) of their logs", self._wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M10",
        "void_rounds_accuse_nobody",
        "always",
        "A broker accuses nobody in a round that it voids.",
        VoidRoundsAccuseNobody,
        default=True,
        occasional=True,
    ),
    Check(
        "S5",
        "suspicions_at_most",
        "always",
        "The safety phase has no more suspicions than that.",
        suspicions_at_most,
        (
            at_most("suspicions", 0),
            Parameter("per", "text", "run", "what they are counted for", ("run", "observer", "member")),
            WHOM,
        ),
    ),
    Check(
        "S6",
        "accuses_nobody",
        "always",
        "In the safety phase, these brokers declare nobody dead themselves.",
        AccusesNobody,
        (WHOM, Parameter("of", "text", "dead", "suspect: they suspect nobody either", ("dead", "suspect"))),
    ),
)
