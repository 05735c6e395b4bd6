"""The evidence that a run leaves for its checks: the brokers' logs, the real events, and the brokers' state.

It is plain data, so a history can be written by hand, altered, or kept; `simulations.evidence.recorder`
gathers it from a world. Times are seconds since the run began, by the true clock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from mesh.broker.identity import format_id
from mesh.cluster.membership import MemberRecord
from simulations.evidence.journals import JournalLeft
from simulations.evidence.ledger import Ledger
from simulations.evidence.logs import STEADY, Logs, Row
from simulations.evidence.outboxes import OutboxLeft
from simulations.evidence.view import Sample, View
from simulations.faults.ongoing import Span
from simulations.scenario import Scenario

FLUSH_S: Final = 2.0
"""Seconds until the last written rows have reached the file, about."""
VIEW_STATES: Final = ("alive", "suspect")
"""States of members that count as living."""
PHASES: Final = {"safety": ("safety_s", "healed_s"), "quiet": ("quiet_from_s", "quiet_until_s")}
"""Phases whose beginning and end checks ask for by name."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a process."""

    name: str
    number: int
    host: str
    started_s: float
    ended_s: float | None = None
    how: str = ""
    """``left`` (it said goodbye), ``killed``, ``power_off`` (its unsynced data is lost); empty while it
    lives. The end of a client counts as killed, whatever ended it.
    """
    id: int | None = None
    """The boot of its broker, if it is a broker that got so far."""
    boot: int | None = None
    log_lost: bool = False
    """True if some of its log is lost or damaged, so that the log cannot show what it noticed."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """One attempt of a process to connect over TCP."""

    at_s: float
    by: str
    url: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One direction of one connection at the end of the run; ``sent`` and ``received`` are bytes."""

    name: str
    sent: int
    received: int
    waiting: int = 0
    """Packets still on their way, or held back by a cut."""
    cut_short: bool = False
    """True if one side forgot the connection, or was told that it broke: data on its way is lost."""


@dataclass
class Evidence:
    """All that a run left. See the module."""

    scenario: Scenario
    rows: Logs | list[Row] = field(default_factory=list)
    """The rows of all brokers' event logs by time, with ``at_s``. All readers read them together, once
    (`simulations.evidence.reading`).
    """
    faults: list[Span] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    samples: Sequence[Sample] = field(default_factory=list)
    dials: list[Dialled] = field(default_factory=list)
    """In order, the dials to a broker that had left, by the dialler's table at the look before."""
    phases: dict[str, float] = field(default_factory=dict)
    """When each phase began; see `simulations.runs.playing`."""
    failures: list[str] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    sessions: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    """For each subscriber and worker, by name and life: when each connection was first seen, and when both
    ends last had it.
    """
    journals: list[JournalLeft] = field(default_factory=list)
    """The content of homes at the end."""
    outboxes: list[OutboxLeft] = field(default_factory=list)
    """The content of outboxes at the end."""
    hashes: list[tuple[str, str]] = field(default_factory=list)
    """The history's hash, and those of repetitions, each with a word on where it was made."""

    @property
    def period_s(self) -> float:
        return self.scenario.period_s

    @property
    def deadline_s(self) -> float:
        return self.scenario.deadline_s

    @property
    def end_s(self) -> float:
        """The last moment for which there is evidence."""
        return max([self.phases.get("end_s", 0.0), *self._looks_s[-1:]])

    # --- names and ids

    @cached_property
    def brokers(self) -> dict[str, list[Life]]:
        """All lives of every broker that was ever started, by name."""
        found: dict[str, list[Life]] = {}
        for life in self.lives:
            if life.id is not None:
                found.setdefault(life.name, []).append(life)
        return found

    def had_several(self) -> bool:
        return len(self.brokers) > 1

    def holders(self, id: int | None, from_s: float, until_s: float) -> list[str]:
        """The brokers that were up under that id at some moment of that time; none if no broker had the
        id.
        """
        return [
            life.name
            for life in self._by_id.get(id, ())
            if life.started_s <= until_s and (life.ended_s is None or life.ended_s > from_s)
        ]

    def twin_between(self, name: str, id: int | None, from_s: float, until_s: float) -> bool:
        """True if another broker had the same id in that time, because of a copied state folder.

        It answers in the broker's name, and the others drop one of the two.
        """
        return any(holder != name for holder in self.holders(id, from_s, until_s))

    @cached_property
    def _by_id(self) -> dict[int | None, list[Life]]:
        found: dict[int | None, list[Life]] = {}
        for lives in self.brokers.values():
            for life in lives:
                found.setdefault(life.id, []).append(life)
        return found

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of brokers by id."""
        found = {record.id: record.name for sample in self.samples[-1:] for record in _records(sample)}
        return found | {life.id: life.name for life in self.lives if life.id is not None}

    def name_of(self, id: int) -> str:
        return self.names.get(id, format_id(id))

    def writer(self, row: Row) -> str:
        """The name of the broker that wrote a row."""
        return self._writers.get((row["node"], row["boot"])) or self.name_of(int(row["node"], 16))

    @cached_property
    def _writers(self) -> dict[tuple[str, str], str]:
        return {
            (format_id(life.id), format_id(life.boot)): life.name
            for life in self.lives
            if life.id is not None and life.boot is not None
        }

    @cached_property
    def _hosts(self) -> dict[str, str]:
        return {life.name: life.host for life in self.lives}

    def host_of(self, name: str) -> str:
        return self._hosts.get(name, name)

    # --- the rows

    @cached_property
    def changes(self) -> list[Row]:
        """Rows that report a change: of members, of links, of the broker."""
        if isinstance(self.rows, Logs):
            return self.rows.changes()
        return [row for row in self.rows if row["kind"] not in STEADY]

    @cached_property
    def member_rows(self) -> list[Row]:
        """Rows in which a member changed its state in the writer's view, except the writer's own leave."""
        return [row for row in self.changes if row["kind"] == "mem" and row["node"] != row["subject"]]

    @cached_property
    def deaths(self) -> list[Row]:
        return [row for row in self.member_rows if row["to_state"] == "dead"]

    @cached_property
    def by_writer(self) -> dict[tuple[str, str], list[Row]]:
        """The `changes` of each life that wrote any, by (node, boot), in the order of writing."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.changes:
            found.setdefault((row["node"], row["boot"]), []).append(row)
        for rows in found.values():
            rows.sort(key=lambda row: int(row["seq"]))
        return found

    # --- time

    def phase(self, name: str) -> tuple[float, float]:
        """The time of one of `PHASES`; one that never began or never ended spans the whole run."""
        since, until = PHASES[name]
        return self.phases.get(since, 0.0), self.phases.get(until, self.end_s)

    @cached_property
    def _looks_s(self) -> list[float]:
        """The times of the looks."""
        return [sample.at_s for sample in self.samples]

    def samples_between(self, from_s: float, until_s: float) -> Sequence[Sample]:
        """Samples for checks whose moments are known only at the end of the run.

        Checks of all moments are readers (`simulations.evidence.reading`).
        """
        return self.samples[bisect_left(self._looks_s, from_s) : bisect_right(self._looks_s, until_s)]

    def look_from(self, at_s: float) -> Sample | None:
        """The first look at or after that time."""
        index = bisect_left(self._looks_s, at_s)
        return self.samples[index] if index < len(self.samples) else None

    def look_until(self, at_s: float) -> Sample | None:
        """The last look at or before that time."""
        index = bisect_right(self._looks_s, at_s)
        return self.samples[index - 1] if index else None

    @property
    def _rest_s(self) -> tuple[float, float]:
        """The time in which the mesh should be whole and undisturbed, before all leave."""
        since_s = self.phases.get("held_s", math.inf)
        return since_s, self.phases.get("drained_s", self.phases.get("end_s", since_s))

    def is_rest(self, at_s: float) -> bool:
        since_s, until_s = self._rest_s
        return since_s <= at_s <= until_s

    @property
    def rest(self) -> Sequence[Sample]:
        return self.samples_between(*self._rest_s)

    @property
    def last_rest(self) -> Sample | None:
        last = self.look_until(self._rest_s[1])
        return last if last is not None and self.is_rest(last.at_s) else None

    def was_whole(self) -> bool:
        """If false, `converged` reports it, and there was no time of rest to judge."""
        return self.last_rest is not None

    @property
    def last(self) -> Mapping[str, View]:
        """The last state of the brokers before all left, whether or not the mesh ever was whole."""
        last = self.look_until(self.phases.get("drained_s", self.end_s))
        return {} if last is None else last.views

    def up(self, name: str, from_s: float, until_s: float) -> Life | None:
        """The life of a broker that lasted from the first time to the second."""
        for life in self.brokers.get(name, ()):
            if life.started_s <= from_s and (life.ended_s is None or life.ended_s >= until_s):
                return life
        return None


def _records(sample: Sample) -> Iterable[MemberRecord]:
    for view in sample.views.values():
        yield from view.table
