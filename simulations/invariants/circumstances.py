"""The circumstances of a run: which brokers were down or struck, where the network was impaired, and what
each broker believed.

Checks use this to decide whom to blame. A death is false only if no fault excuses it, and a broker that was
cut off cannot have noticed anything.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from mesh.broker.identity import format_id
from mesh.cluster.membership import MemberRecord
from simulations.evidence import FLUSH_S, Evidence, Life, Row
from simulations.faults import KINDS, Fault
from simulations.faults.ongoing import Span

SILENCES: Final = ("pause", "block_io", "stall")
"""Kinds during which a process says nothing, though it lives; the duration of a stall is its value."""
STRANGERS: Final = (
    "garbage",
    "truncated_frame",
    "huge_frame",
    "wrong_key",
    "wrong_version",
    "replayed_admission",
)
"""Kinds that send a broker bytes from a program that is no member."""
LIES: Final = ("forged_dead", "huge_incarnation", "replayed_news")
"""Kinds in which a member tells a lie about another."""
DISKS: Final = (
    *("disk_fault", "slow_disk", "lying_disk", "failing_syncs", "full_disk"),
    *("torn_file", "flipped_bits", "lost_files"),
)
EXCUSE_NOTHING: Final = (
    *("start", "resume", "heal", "byte_split", "clock_step", "clock_drift"),
    *STRANGERS,
    *DISKS,
)
"""Kinds that must kill nobody."""
END_LIVES: Final = ("crash", "power_off", "stop")
"""Kinds whose effect ends when the process is up again, whatever the fault's own end."""
RESTART_TWICE: Final = ("config_skew", "version_skew")
"""Brokers are asked to end when these begin and when they end, and start again."""
LOSS_MAX: Final = 0.1
"""A share of lost packets up to this must kill nobody."""
DRIFT_MAX_PPM: Final = 1000
PAUSE_PERIODS_MAX: Final = 2.5
"""A pause up to this must kill nobody either: it cannot make a broker miss three rounds in a row."""
STALL_DEADLINES_MIN: Final = 0.25
"""A process that is silent for a smaller part of a deadline is never late."""
CUTS: Final = ("partition", "isolate")
"""Kinds during which nothing at all passes, either way."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a broker was down or silent."""

    broker: str
    from_s: float
    until_s: float
    how: str
    """``killed``, ``power_off``, or the kind of fault that silenced it."""

    def overlaps(self, from_s: float, until_s: float) -> bool:
        return self.from_s < until_s and self.until_s > from_s

    @property
    def length_s(self) -> float:
        return self.until_s - self.from_s


@dataclass(frozen=True, slots=True)
class Impairment:
    """A fault of all traffic between hosts of the two sides, one way at least."""

    kind: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    """One of the two may be empty; it then means all others."""
    from_s: float
    until_s: float

    def touches(self, host: str) -> bool:
        return self.kind == "isolate" or host in (*self.a, *self.b) or not (self.a and self.b)

    def parts(self, one: str, other: str) -> bool:
        if self.kind == "isolate":  # each of both sides from all
            alone = (*self.a, *self.b)
            return one != other and (one in alone or other in alone)
        return self._leads(one, other) or self._leads(other, one)

    def _leads(self, here: str, there: str) -> bool:
        """True if it affects traffic from the first side to the second."""
        return (here in self.a if self.a else here not in self.b) and (
            there in self.b if self.b else there not in self.a
        )


@dataclass(frozen=True, slots=True)
class Belief:
    """A broker's view of another from a moment on."""

    at_s: float
    state: str
    incarnation: int
    boot: str


class Circumstances:
    """The circumstances of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    # --- the faults

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
        """The outages of all brokers; overlapping ones are separate."""
        return [*self._deaths(), *self._silences]

    @cached_property
    def slow_readers(self) -> list[Outage]:
        """Processes that read little, or nothing: messages to them waited with the senders."""
        return [
            Outage(name, span.start_s, until_s, fault.kind)
            for span, fault, until_s in self._spans
            if fault.kind == "slow_reader"
            for name in fault.a
        ]

    def _deaths(self) -> Iterator[Outage]:
        for lives in self.evidence.brokers.values():
            for life, following in zip(lives, [*lives[1:], None], strict=True):
                if life.ended_s is None or life.how == "left":
                    continue
                back_s = following.started_s if following else self._lives_on_s(life, life.ended_s)
                if back_s > life.ended_s:
                    yield Outage(life.name, life.ended_s, back_s, life.how)

    def _lives_on_s(self, gone: Life, ended_s: float) -> float:
        """The time from which another broker had the id of one that never came back."""
        others = (life for lives in self.evidence.brokers.values() for life in lives if life.id == gone.id)
        return min(
            (
                max(ended_s, other.started_s)
                for other in others
                if other is not gone and (other.ended_s is None or other.ended_s > ended_s)
            ),
            default=math.inf,
        )

    @cached_property
    def _silences(self) -> list[Outage]:
        least_s = STALL_DEADLINES_MIN * self.evidence.deadline_s
        return [each for each in (*self._pauses, *self._stalls) if each.length_s >= least_s]

    @cached_property
    def _pauses(self) -> list[Outage]:
        return [
            Outage(name, span.start_s, self._awake_s(name, span, until_s), fault.kind)
            for span, fault, until_s in self._spans
            if fault.kind in SILENCES and fault.kind != "stall"
            for name in fault.a
            if name in self.evidence.brokers and (fault.kind == "block_io" or self._strikes(name, span))
        ]

    @cached_property
    def _stalls(self) -> list[Outage]:
        """The times in which computing blocked a process.

        The work is done piece by piece: new work waits while a process is busy or paused. So two faults that
        each leave it some time may together leave none.
        """
        found: dict[str, list[Outage]] = {}
        for span, fault, _ in self._spans:
            for name in fault.a if fault.kind == "stall" else ():
                if not self._strikes(name, span):
                    continue
                before = found.setdefault(name, [])
                last = before.pop() if before and span.start_s <= before[-1].until_s else None
                begun_s, free_s = (last.from_s, last.until_s) if last else (span.start_s, span.start_s)
                done_s = self._worked_off_s(name, free_s, fault.amount)
                until_s = min(done_s, self._ended_s(name, span.start_s))
                before.append(Outage(name, begun_s, until_s, "stall"))
        return [each for stalls in found.values() for each in stalls]

    def _strikes(self, name: str, span: Span) -> bool:
        """True if the fault strikes it: a process that is down is not affected
        (`simulations.faults.processes`), nor is its next life.
        """
        return self.evidence.up(name, span.start_s, span.start_s) is not None

    def _worked_off_s(self, name: str, from_s: float, work_s: float) -> float:
        """When computing that begins then is finished; a pause delays it."""
        pauses = (each for each in self._pauses if (each.broker, each.how) == (name, "pause"))
        for pause in merged(pauses, 0.0):
            if from_s < pause.until_s and from_s + work_s > pause.from_s:
                work_s -= max(0.0, pause.from_s - from_s)
                from_s = pause.until_s
        return from_s + work_s

    def free_s(self, name: str, at_s: float) -> float:
        """When that process, if it was computing at that time, had its next turn."""
        for each in self._stalls:
            if each.broker == name and each.from_s <= at_s < each.until_s:
                return each.until_s
        return at_s

    def _awake_s(self, name: str, span: Span, until_s: float) -> float:
        """When it wakes: it may be resumed by hand, or killed."""
        resumed = (
            other.start_s
            for other, fault, _ in self._spans
            if fault.kind == "resume" and name in fault.a and other.start_s >= span.start_s
        )
        return min(until_s, self._ended_s(name, span.start_s), *resumed)

    def _ended_s(self, name: str, since_s: float) -> float:
        """When the life ended that it had then."""
        ends = (life.ended_s for life in self.evidence.brokers[name] if life.ended_s is not None)
        return min((end_s for end_s in ends if end_s >= since_s), default=math.inf)

    def written_until_s(self, life: Life) -> float:
        """Until when that life's rows are on its disk, if the disk worked.

        If it left, these are all rows; if it was killed, those after which it was awake for `FLUSH_S`.
        """
        at_s = self.evidence.end_s if life.ended_s is None else life.ended_s
        if life.how == "left":
            return at_s
        awake_s = FLUSH_S
        for frozen in reversed(self._frozen.get(life.name, ())):
            since_s = min(at_s, frozen.until_s)
            if at_s - since_s >= awake_s:
                break
            awake_s -= at_s - since_s
            at_s = min(since_s, frozen.from_s)
        return at_s - awake_s

    @cached_property
    def _frozen(self) -> dict[str, list[Outage]]:
        """By broker: when it did nothing at all, not even with its disk."""
        found: dict[str, list[Outage]] = {}
        for each in (*self._stalls, *self._pauses):
            if each.how != "block_io":
                found.setdefault(each.broker, []).append(each)
        return {name: merged(outages, 0.0) for name, outages in found.items()}

    def mute(self, from_s: float, until_s: float) -> list[str]:
        """Names of brokers that were up in that time and may have said at the end what no log has.

        Their log is lost, or they were killed before their last rows were written.
        """
        return [
            life.name
            for life in self.evidence.lives
            if life.id is not None
            and (life.log_lost or life.how == "killed")
            and life.started_s <= until_s
            and (life.ended_s is None or life.ended_s >= from_s)
            and (life.log_lost or self.written_until_s(life) <= until_s)
        ]

    def disk_was_struck(self, life: Life) -> bool:
        """True if its disk was struck in that time, or a fault of it lasted until then."""
        ended_s = math.inf if life.ended_s is None else life.ended_s
        return any(
            span.fault.kind in DISKS
            and life.host in span.fault.a
            and span.start_s <= ended_s
            and (span.end_s or span.start_s) >= life.started_s
            for span in self.evidence.faults
        )

    def asked_to_end_s(self, life: Life) -> float:
        """From then on it says goodbye, and judges nobody."""
        asked = (at_s for name, at_s in self._orders_to_end if name == life.name and at_s >= life.started_s)
        return min(asked, default=math.inf)

    @cached_property
    def _orders_to_end(self) -> list[tuple[str, float]]:
        """Which brokers were asked to end in good order, and when.

        The reason may be a stop, a restart, or a change of settings: a broker reads settings at a start, and
        again when that fault ends.
        """
        found = []
        for span, fault, until_s in self._spans:
            if fault.kind == "stop" or (fault.kind == "restart" and fault.text("how", "crash") == "stop"):
                found += [(name, span.start_s) for name in fault.a]
            elif fault.kind in RESTART_TWICE:
                found += [(name, at_s) for name in fault.a for at_s in (span.start_s, until_s)]
        return found

    @cached_property
    def impairments(self) -> list[Impairment]:
        """Faults of links, except those so mild that no broker may notice."""
        return [
            Impairment(fault.kind, fault.a, fault.b, span.start_s, until_s)
            for span, fault, until_s in self._spans
            if KINDS[fault.kind].of == "links" and not self._is_mild(fault)
        ]

    @cached_property
    def losses(self) -> list[Impairment]:
        """Lossy links, mild ones too. Where a packet and its repetition are lost, a round is missed."""
        return [
            Impairment(fault.kind, fault.a, fault.b, span.start_s, until_s)
            for span, fault, until_s in self._spans
            if fault.kind == "lossy_link"
        ]

    def _is_mild(self, fault: Fault) -> bool:
        if fault.kind == "lossy_link":
            return fault.amount <= LOSS_MAX
        if fault.kind in ("slow_link", "coalesce"):
            most_s = fault.amount + fault.number("jitter_s", 0.0)
            return 2 * most_s < self.evidence.deadline_s / 2
        if fault.kind == "monotonic_drift":
            return abs(fault.amount) <= DRIFT_MAX_PPM
        return fault.kind in EXCUSE_NOTHING

    @cached_property
    def _blows(self) -> list[tuple[str, str, float, float]]:
        """Name, kind, begin and end of all faults of processes and hosts that excuse a death."""
        found = [
            (outage.broker, outage.how, outage.from_s, outage.until_s)
            for outage in self.outages
            if outage.how not in SILENCES
        ]
        found += [
            (name, silence.how, silence.from_s, silence.until_s)
            for name in self.evidence.brokers
            for silence in self.silences((name,))
            if silence.length_s >= PAUSE_PERIODS_MAX * self.evidence.period_s
        ]
        for span, fault, until_s in self._spans:
            harmless = self._is_mild(fault) or fault.kind in (*SILENCES, *END_LIVES)
            if KINDS[fault.kind].of in ("processes", "hosts") and not harmless:
                found += [(name, fault.kind, span.start_s, until_s) for name in fault.a]
        return found

    def silences(self, names: tuple[str, ...]) -> list[Outage]:
        """When one of these was silent, though it lived.

        Silences that are closer together than a deadline count as one: a broker that is awake for so short a
        time may miss round after round.
        """
        apart_s = self.evidence.deadline_s
        return merged((each for each in self._silences if each.broker in names), apart_s)

    @cached_property
    def absences(self) -> list[Outage]:
        """For each broker, all the time that it was down or silent without a break."""
        return [
            absence
            for name in self.evidence.brokers
            for absence in merged((each for each in self.outages if each.broker == name), 0.0)
        ]

    def unheard(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """True if the second could not hear the first for longer than it must bear, within that time.

        The first was silent for a part of that time.
        """
        least_s = PAUSE_PERIODS_MAX * self.period_s(other, from_s, until_s)
        for silence in self.silences((one, other)):
            if silence.overlaps(from_s, until_s):
                own = any(each.overlaps(silence.from_s, silence.until_s) for each in self.silences((one,)))
                if own and silence.length_s >= least_s:
                    return True
        return False

    def period_s(self, name: str, from_s: float, until_s: float) -> float:
        """The period of its rounds; the shortest, if its settings were different for some of that time."""
        times = (
            fault.amount
            for span, fault, end_s in self._spans
            if fault.kind == "config_skew" and name in fault.a and span.start_s <= until_s and end_s >= from_s
        )
        return min([1.0, *times]) * self.evidence.period_s

    def longest_trouble_s(self, one: str, other: str, from_s: float, until_s: float) -> float:
        """The longest time without a break in which the two may not have heard each other.

        TCP takes as long to recover as the fault lasted.
        """
        here, there = self.evidence.host_of(one), self.evidence.host_of(other)
        troubles = [each for each in self._silences if each.broker in (one, other)]
        troubles += [
            Outage(name, begin_s, end_s, kind)
            for name, kind, begin_s, end_s in self._blows
            if name in (one, other, here, there)
        ]
        troubles += [
            Outage(one, each.from_s, 2 * each.until_s - each.from_s, each.kind)
            for each in self.impairments
            if self.comes_between(each, one, other)
        ]
        within = (
            replace(each, from_s=max(from_s, each.from_s), until_s=min(until_s, each.until_s))
            for each in merged(troubles, self.evidence.deadline_s)
            if each.from_s <= until_s and each.until_s >= from_s
        )
        return max((each.length_s for each in within), default=0.0)

    def cut_throughout(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """True if nothing at all passed between the two."""
        return any(
            each.kind in CUTS
            and each.from_s <= from_s
            and each.until_s >= until_s
            and self.comes_between(each, one, other)
            for each in self.impairments
        )

    def comes_between(self, impairment: Impairment, one: str, other: str) -> bool:
        """True if the impairment is between the two. It applies to the hosts of its beginning, so one that
        comes later is reached by all.
        """
        here, there = self.evidence.host_of(one), self.evidence.host_of(other)
        last_s = max(self.came_s.get(here, 0.0), self.came_s.get(there, 0.0))
        return last_s <= impairment.from_s and impairment.parts(here, there)

    @cached_property
    def came_s(self) -> dict[str, float]:
        """When the hosts of brokers came that were not there from the beginning, such as those of spares."""
        scenario = self.evidence.scenario
        planned = dict.fromkeys((*scenario.broker_names, *scenario.spare_names))
        found: dict[str, float] = {}
        for lives in self.evidence.brokers.values():
            if lives[0].host not in planned:
                found[lives[0].host] = lives[0].started_s
        return found

    def struck(self, name: str, from_s: float, until_s: float, *, but: Collection[str] = ()) -> bool:
        """True if a fault of another kind struck that broker or its host in that time."""
        host = self.evidence.host_of(name)
        return any(
            struck in (name, host) and begin_s <= until_s and end_s >= from_s and kind not in but
            for struck, kind, begin_s, end_s in self._blows
        )

    def parted(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """True if the network was impaired between the two in that time."""
        return self._come_between(self.impairments, one, other, from_s, until_s)

    def may_miss_a_round(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """True if the network lost packets between the two in that time, however few."""
        return self._come_between(self.losses, one, other, from_s, until_s)

    def _come_between(
        self, impairments: Iterable[Impairment], one: str, other: str, from_s: float, until_s: float
    ) -> bool:
        return any(
            each.from_s <= until_s and each.until_s >= from_s and self.comes_between(each, one, other)
            for each in impairments
        )

    def is_well(self, name: str, from_s: float, until_s: float) -> bool:
        """True if it was up and never silent all that time, and affected only by others' lies about it."""
        return (
            self.evidence.up(name, from_s, until_s) is not None
            and not self.away(name, from_s, until_s)
            and not any(
                each in (name, self.evidence.host_of(name)) and begin_s <= until_s and end_s >= from_s
                for each, kind, begin_s, end_s in self._blows
                if kind not in LIES
            )
        )

    def touched(self, name: str, from_s: float, until_s: float) -> bool:
        """True if a fault affected it, or one of its links."""
        host = self.evidence.host_of(name)
        return self.struck(name, from_s, until_s) or any(
            each.from_s <= until_s and each.until_s >= from_s and each.touches(host)
            for each in self.impairments
        )

    def away(self, name: str, from_s: float, until_s: float) -> bool:
        """True if it was down or silent for some of that time."""
        return any(each.broker == name and each.overlaps(from_s, until_s) for each in self.outages)

    # --- able observers

    def up_through(self, from_s: float, until_s: float) -> list[Life]:
        """Lives of brokers that lasted and spoke all that time."""
        found = []
        for name in self.evidence.brokers:
            life = self.evidence.up(name, from_s, until_s)
            if life is not None and not self.away(name, from_s, until_s):
                found.append(life)
        return found

    # --- beliefs

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
        """The same by looks. A change dates from the look before, since it may have come right after that."""
        spoilt = {(life.name, life.number): life for life in self.evidence.lives if life.log_lost}
        found: dict[tuple[str, int | None], dict[int, list[Belief]]] = {}
        before_s = 0.0
        tables: dict[str, tuple[MemberRecord, ...]] = {}
        for sample in self.evidence.samples if spoilt else ():
            for view in sample.views.values():
                if (view.name, view.life) not in spoilt or tables.get(view.name) is view.table:
                    continue
                tables[view.name] = view.table
                about = found.setdefault((view.name, view.boot), {})
                for record in view.table[1:]:
                    held = about.setdefault(record.id, [])
                    now = Belief(before_s, str(record.state), record.incarnation, format_id(record.boot))
                    if not held or replace(held[-1], at_s=before_s) != now:
                        held.append(now)
            before_s = sample.at_s
        return found

    def beliefs(self, observer: Life, subject: int) -> list[Belief]:
        """All states that one life of a broker held of a member, in order. Where its log is incomplete, they
        come from looks.
        """
        if observer.log_lost:
            return self._seen_beliefs.get((observer.name, observer.boot), {}).get(subject, [])
        return self._beliefs.get((observer.name, observer.boot), {}).get(subject, [])

    def belief(self, observer: Life, subject: int, at_s: float) -> Belief | None:
        """The state that it held at that time; None if it did not know the member."""
        held = [each for each in self.beliefs(observer, subject) if each.at_s <= at_s]
        return held[-1] if held else None

    def were_linked(self, one: str, other: str, from_s: float, until_s: float) -> bool:
        """True if a new link of the two was admitted in that time, as one of them recorded."""
        pair = frozenset((one, other))
        return any(from_s <= at_s <= until_s for at_s in self._links_s.get(pair, ()))

    @cached_property
    def _links_s(self) -> dict[frozenset[str], list[float]]:
        evidence = self.evidence
        found: dict[frozenset[str], list[float]] = {}
        for row in evidence.changes:
            if row["kind"] == "link" and row["state"] == "up":
                pair = frozenset((evidence.writer(row), evidence.name_of(int(row["peer"], 16))))
                found.setdefault(pair, []).append(row["at_s"])
        return found


def merged(outages: Iterable[Outage], apart_s: float) -> list[Outage]:
    """One span for all that are no further apart than that."""
    found: list[Outage] = []
    for outage in sorted(outages, key=lambda each: (each.from_s, each.until_s)):
        if found and outage.from_s <= found[-1].until_s + apart_s:
            found[-1] = replace(found[-1], until_s=max(found[-1].until_s, outage.until_s))
        else:
            found.append(outage)
    return found


def raised(row: Row) -> bool:
    """True if the writer concluded it by itself, not from another's message."""
    return bool(row["via"] == row["node"])


def quantile(values: Iterable[float], share: float) -> float:
    """The least value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
