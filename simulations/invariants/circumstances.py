"""What was going on: who was down or struck, where the network was impaired, and what a broker believed.

Checks need it to know whom they may blame. A death is false only if nothing was done that excuses it, and
who was cut off cannot have noticed anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from mesh.identity import format_id
from simulations.evidence import Evidence, Life, Row
from simulations.faults import KINDS, Fault
from simulations.faults.ongoing import Span

SILENCES: Final = ("pause", "block_io", "stall")
"""Kinds in whose time a process says nothing, though it lives; a stall's is its value."""
STRANGERS: Final = (
    "garbage",
    "truncated_frame",
    "huge_frame",
    "wrong_key",
    "wrong_version",
    "replayed_admission",
)
"""Kinds that bring bytes to a broker from who is no member."""
LIES: Final = ("forged_dead", "huge_incarnation", "replayed_news")
"""Kinds in which a member says of another what is not so."""
DISKS: Final = ("disk_fault", "slow_disk", "lying_disk", "torn_file", "flipped_bits", "lost_files")
EXCUSE_NOTHING: Final = (
    *("start", "resume", "heal", "byte_split", "coalesce", "clock_step", "clock_drift"),
    *STRANGERS,
    *DISKS,
)
"""Nobody may die of these."""
END_LIVES: Final = ("crash", "power_off", "stop")
"""What these do is over when the process is up again, whatever the fault's own end."""
LOSS_MAX: Final = 0.1
"""A share of lost packets up to this must kill nobody."""
DRIFT_MAX_PPM: Final = 1000
PAUSE_PERIODS_MAX: Final = 2.5
"""A pause up to this must not either: three rounds in a row cannot be missed in it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker was not there for a while."""

    broker: str
    from_s: float
    until_s: float
    how: str
    """``killed``, ``power_off``, or the kind of fault that silenced it."""

    def overlaps(self, from_s: float, until_s: float) -> bool:
        return self.from_s < until_s and self.until_s > from_s


@dataclass(frozen=True, slots=True)
class Impairment:
    """Something was wrong with all that goes between hosts of the two sides, one way at least."""

    kind: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    """Empty: all others."""
    from_s: float
    until_s: float

    def touches(self, host: str) -> bool:
        return host in self.a or host in self.b or not self.b

    def parts(self, one: str, other: str) -> bool:
        def across(here: str, there: str) -> bool:
            return here in self.a and (there in self.b if self.b else there not in self.a)

        return across(one, other) or across(other, one)


@dataclass(frozen=True, slots=True)
class Belief:
    """What a broker held of another from a moment on."""

    at_s: float
    state: str
    incarnation: int
    boot: str


class Circumstances:
    """Of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    # --- what was done

    @cached_property
    def _spans(self) -> list[tuple[Span, Fault, float]]:
        """Simple faults, with their ends."""
        found = []
        for span in self.evidence.faults:
            kind = KINDS[span.fault.kind]
            if kind.unfold is None:
                lasts = kind.end is not None and span.end_s is None
                found.append((span, span.fault, math.inf if lasts else span.end_s or span.start_s))
        return found

    @cached_property
    def outages(self) -> list[Outage]:
        """Of all brokers, those that overlap each by itself."""
        return [*self._deaths(), *self._silences()]

    def _deaths(self) -> Iterator[Outage]:
        for lives in self.evidence.brokers.values():
            for life, following in zip(lives, [*lives[1:], None], strict=True):
                if life.id in self.evidence.shared_ids:
                    continue  # the id lives on in the other
                if life.ended_s is not None and life.how != "left":
                    back_s = math.inf if following is None else following.started_s
                    yield Outage(life.name, life.ended_s, back_s, life.how)

    def _silences(self) -> Iterator[Outage]:
        for span, fault, until_s in self._spans:
            if fault.kind in SILENCES:
                for name in fault.a:
                    if name in self.evidence.brokers:
                        until_s = span.start_s + fault.value if fault.kind == "stall" else until_s
                        yield Outage(name, span.start_s, self._awake_s(name, span, until_s), fault.kind)

    def _awake_s(self, name: str, span: Span, until_s: float) -> float:
        """It may be resumed by hand, or killed."""
        ends = [until_s]
        ends += [
            other.start_s
            for other, fault, _ in self._spans
            if fault.kind == "resume" and name in fault.a and other.start_s >= span.start_s
        ]
        for life in self.evidence.brokers[name]:
            if life.ended_s is not None and life.ended_s >= span.start_s:
                ends.append(life.ended_s)
        return min(ends)

    @cached_property
    def impairments(self) -> list[Impairment]:
        """Of links, but those so mild that nobody may notice."""
        return [
            Impairment(fault.kind, fault.a, fault.b, span.start_s, until_s)
            for span, fault, until_s in self._spans
            if KINDS[fault.kind].of == "links" and not self._is_mild(fault)
        ]

    def _is_mild(self, fault: Fault) -> bool:
        if fault.kind == "lossy_link":
            return fault.value <= LOSS_MAX
        if fault.kind == "slow_link":
            return 2 * fault.value < self.evidence.deadline_s / 2
        if fault.kind == "monotonic_drift":
            return abs(fault.value) <= DRIFT_MAX_PPM
        return fault.kind in EXCUSE_NOTHING

    @cached_property
    def _blows(self) -> list[tuple[str, float, float]]:
        """Name, from and until, of all that was done to processes and hosts and excuses their deaths."""
        found = []
        for outage in self.outages:
            short = outage.until_s - outage.from_s < PAUSE_PERIODS_MAX * self.evidence.period_s
            if not (outage.how in SILENCES and short):
                found.append((outage.broker, outage.from_s, outage.until_s))
        for span, fault, until_s in self._spans:
            harmless = self._is_mild(fault) or fault.kind in (*SILENCES, *END_LIVES)
            if KINDS[fault.kind].of in ("processes", "hosts") and not harmless:
                found += [(name, span.start_s, until_s) for name in fault.a]
        return found

    def struck(self, name: str, from_s: float, until_s: float) -> bool:
        """Something was done to that broker or its host in that time."""
        host = self.evidence.host_of(name)
        return any(
            struck in (name, host) and begin_s <= until_s and end_s >= from_s
            for struck, begin_s, end_s in self._blows
        )

    def parted(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """Something was wrong between the two in that time."""
        here, there = self.evidence.host_of(one), self.evidence.host_of(other)
        return any(
            each.from_s <= until_s and each.until_s >= from_s and each.parts(here, there)
            for each in self.impairments
        )

    def touched(self, name: str, from_s: float, until_s: float) -> bool:
        """Something was done to it, or to one of its links."""
        host = self.evidence.host_of(name)
        return self.struck(name, from_s, until_s) or any(
            each.from_s <= until_s and each.until_s >= from_s and each.touches(host)
            for each in self.impairments
        )

    def away(self, name: str, from_s: float, until_s: float) -> bool:
        """It was down or silent for some of that time."""
        return any(each.broker == name and each.overlaps(from_s, until_s) for each in self.outages)

    # --- who could see it

    def up_through(self, from_s: float, until_s: float) -> list[Life]:
        """Lives of brokers that lasted and spoke all that time."""
        found = []
        for name in self.evidence.brokers:
            life = self.evidence.up(name, from_s, until_s)
            if life is not None and not self.away(name, from_s, until_s):
                found.append(life)
        return found

    def present(self, from_s: float, until_s: float) -> int:
        """How many brokers were up and spoke all that time."""
        return sum(
            self.evidence.up(name, from_s, until_s) is not None and not self.away(name, from_s, until_s)
            for name in self.evidence.brokers
        )

    # --- what was believed

    @cached_property
    def _beliefs(self) -> dict[tuple[str, int | None], dict[int, list[Belief]]]:
        found: dict[tuple[str, int | None], dict[int, list[Belief]]] = {}
        for row in self.evidence.member_rows:
            belief = Belief(row["at_s"], row["to_state"], row["subject_inc"], row["subject_boot"])
            about = found.setdefault((self.evidence.writer(row), int(row["boot"], 16)), {})
            about.setdefault(int(row["subject"], 16), []).append(belief)
        return found

    @cached_property
    def _seen_beliefs(self) -> dict[tuple[str, int | None], dict[int, list[Belief]]]:
        """The same by looks; a change dates from the look before, since it may have come right after that."""
        spoilt = {(life.name, life.number): life for life in self.evidence.lives if life.log_lost}
        found: dict[tuple[str, int | None], dict[int, list[Belief]]] = {}
        before_s = 0.0
        for sample in self.evidence.samples:
            for view in sample.views.values():
                if (view.name, view.life) not in spoilt:
                    continue
                about = found.setdefault((view.name, view.boot), {})
                for record in view.table[1:]:
                    held = about.setdefault(record.id, [])
                    now = Belief(before_s, str(record.state), record.incarnation, format_id(record.boot))
                    if not held or replace(held[-1], at_s=before_s) != now:
                        held.append(now)
            before_s = sample.at_s
        return found

    def beliefs(self, observer: Life, subject: int) -> list[Belief]:
        """All that one life of a broker came to hold of a member, in order; where its log is not whole, as
        far as it was seen.
        """
        if observer.log_lost:
            return self._seen_beliefs.get((observer.name, observer.boot), {}).get(subject, [])
        return self._beliefs.get((observer.name, observer.boot), {}).get(subject, [])

    def belief(self, observer: Life, subject: int, at_s: float) -> Belief | None:
        """What it held at that time; None if it had not heard of it."""
        held = [each for each in self.beliefs(observer, subject) if each.at_s <= at_s]
        return held[-1] if held else None


def raised(row: Row) -> bool:
    """The writer came to it by itself, not by another's word."""
    return bool(row["via"] == row["node"])


def quantile(values: Iterable[float], share: float) -> float:
    """The least value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
