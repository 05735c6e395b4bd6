"""Queueing: heartbeats behind data, and all others behind a slow reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulations.evidence import Evidence, Row, Sample
from simulations.invariants.bounds import (
    QUICK_S,
    WAITING_MAX,
)
from simulations.invariants.check import Check, Judge, Parameter
from simulations.invariants.circumstances import quantile
from simulations.invariants.verdict import Verdict, verdict


class HeartbeatsPass(Judge):
    """In the safety phase. Half of a round trip's time above the fastest is queueing. Answers after the
    deadline are only counted, by their receiver.
    """

    kinds = ("hb",)

    def __init__(self, evidence: Evidence, within_s: float = 0.0, share: float = 1.0) -> None:
        super().__init__(evidence)
        self._within_s = within_s or evidence.deadline_s / 2
        self._share = share
        self._since_s = evidence.phases.get("safety_s", 0.0)
        self._until_s = evidence.phases.get("healed_s", evidence.end_s)
        self._fastest: dict[tuple[str, str], float] = {}
        self._long: dict[tuple[str, str], list[float]] = {}
        """Round trips that may have waited for too long."""
        self._count = 0
        self._late: dict[str, int] = {}
        self._before: Sample | None = None

    def on_row(self, row: Row) -> None:
        if row["msg"] != "answer" or not self._since_s <= row["at_s"] <= self._until_s:
            return
        self._count += 1
        pair, trip_s = (self.evidence.writer(row), row["src"]), row["rtt_us"] / 1e6
        self._fastest[pair] = min(trip_s, self._fastest.get(pair, trip_s))
        if trip_s / 2 > self._within_s:
            self._long.setdefault(pair, []).append(trip_s)

    def on_look(self, sample: Sample) -> None:
        """How many answers came too late to each broker."""
        since_s, until_s = self.evidence.phase("safety")
        if not since_s <= sample.at_s <= until_s:
            return
        before, self._before = self._before, sample
        for name, view in sample.views.items() if before is not None else ():
            earlier = before.views.get(name) if before is not None else None
            if earlier is not None and earlier.boot == view.boot:
                risen = view.counters.get("late_answers", 0) - earlier.counters.get("late_answers", 0)
                self._late[name] = self._late.get(name, 0) + max(0, risen)

    def finish(self) -> Verdict:
        slow = [
            f"a heartbeat from {writer} to {self.evidence.name_of(int(peer, 16))} and back waited "
            f"{waited_s:.3f} s each way, more than {self._within_s:g} s"
            for (writer, peer), times in self._long.items()
            for trip_s in times
            if (waited_s := (trip_s - self._fastest[writer, peer]) / 2) > self._within_s
        ]
        late = sum(self._late.values())
        count = self._count + late
        in_time = (count - len(slow) - late) / count if count else 0.0
        slow += [
            f"{times} answers came to {name} after the deadline"
            for name, times in self._late.items()
            if times
        ]
        wrong = slow if in_time < self._share else []
        return verdict(
            "heartbeats_pass", count, "heartbeat(s)", wrong, detail=f"{in_time:.2%} of them in time"
        )


class OthersUnaffected(Judge):
    """``whom`` are slow: compares deliveries between all others in the safety phase with those before it."""

    def __init__(self, evidence: Evidence, whom: tuple[str, ...] = (), factor: float = 2.0) -> None:
        super().__init__(evidence)
        self._factor = factor
        self._slow = dict.fromkeys((*whom, *(life.name for life in evidence.lives if life.host in whom)))
        self._crowded: list[str] = []

    def on_look(self, sample: Sample) -> None:
        for view in sample.views.values():
            most = WAITING_MAX * max(1, len(view.links))
            if view.sizes.get("queued", 0) > most:
                self._crowded.append(
                    f"{view.name} holds back {view.sizes['queued']} messages, more than {most}"
                )

    def finish(self) -> Verdict:
        before, during = self._delays()
        wrong: list[str] = []
        if before and during:
            usual, now = quantile(before, 0.99), quantile(during, 0.99)
            if now > max(QUICK_S, self._factor * usual):
                wrong.append(
                    f"p99 of deliveries among the others is {now:.4f} s, and was {usual:.4f} s before"
                )
        count = len(during) if before else 0
        return verdict("others_unaffected", count, "deliver(y|ies) among others", wrong + self._crowded)

    def _delays(self) -> tuple[list[float], list[float]]:
        """Before the safety phase, and in it."""
        evidence = self.evidence
        safety_s = evidence.phases.get("safety_s", 0.0)
        healed_s = evidence.phases.get("healed_s", evidence.end_s)
        before: list[float] = []
        during: list[float] = []
        for receipt in evidence.ledger.receipts:
            publication = evidence.ledger.publications.get(receipt.body)
            if publication is None or receipt.subscriber in self._slow or publication.publisher in self._slow:
                continue
            if publication.at_s < safety_s:
                before.append(receipt.at_s - publication.at_s)
            elif publication.at_s < healed_s:
                during.append(receipt.at_s - publication.at_s)
        return before, during


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D7",
        "heartbeats_pass",
        "always",
        "Heartbeats do not wait behind data for more than half a deadline.",
        HeartbeatsPass,
        (
            Parameter("within_s", "number", 0.0, "seconds of queueing one way; 0 is half the deadline"),
            Parameter("share", "number", 1.0, "of all heartbeats that must be in time"),
        ),
    ),
    Check(
        "D8",
        "others_unaffected",
        "always",
        "A slow reader delays nobody else, and the messages waiting for it are bounded.",
        OthersUnaffected,
        (
            Parameter("whom", "names", (), "the slow ones: clients, or brokers with theirs"),
            Parameter("factor", "number", 2.0, "how much slower p99 may become"),
        ),
    ),
)
