"""Views of running brokers from outside: of one at an instant, of all together, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mesh.cluster.membership import MemberRecord
from mesh.dataplane.counters import LinkLoss

Patterns = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class View:
    """One running broker at one instant."""

    name: str
    life: int
    id: int
    boot: int
    state: str
    """joining, ready, isolated, leaving."""
    table: tuple[MemberRecord, ...]
    """Its record of itself, then those of the others."""
    links: tuple[int, ...] = ()
    """The members to which a link is up."""
    join: tuple[str, ...] = ()
    """The URLs that it was given to join."""
    known: tuple[str, ...] = ()
    """The URLs of an earlier run that it has not met yet."""
    digest: bytes = b""
    interest: Patterns = ()
    interest_version: int = 1
    held: Mapping[int, tuple[int, Patterns]] = field(default_factory=dict)
    """The others' interest as this broker knows it: version and patterns; version 0 is nothing."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Counted since its boot: rounds, late_rounds, silent_rounds, refutations, refused_records, syncs,
    late_answers, refused (connections and sessions), control_out (frames of surveys and answers), bus_out
    (all other frames on links), dropped and unresolved (messages for its own subscribers).
    """
    losses: Mapping[int, LinkLoss] = field(default_factory=dict)
    """Since its boot, by the id of the broker they were for: messages that did not arrive there."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Current numbers: members, strangers, barriers, questions, seen, queued, sockets, and in a deep sample
    tasks, timers.
    """
    void_at: float | None = None
    """When it last voided a round, on its own monotonic clock."""
    paused: bool = False

    def looks_as(self, other: View) -> bool:
        """True if nothing differs that changes only with an event."""
        return (
            self.table == other.table
            and self.links == other.links
            and self.held == other.held
            and (self.state, self.interest, self.interest_version, self.digest)
            == (other.state, other.interest, other.interest_version, other.digest)
        )

    @property
    def me(self) -> MemberRecord:
        return self.table[0]

    @property
    def states(self) -> dict[int, str]:
        """The states of all members, by id."""
        return {record.id: str(record.state) for record in self.table}

    @property
    def in_view(self) -> list[int]:
        """Ids of the members that it counts as living: alive or suspect."""
        return [record.id for record in self.table if record.in_view]

    def record(self, id: int) -> MemberRecord | None:
        return next((record for record in self.table if record.id == id), None)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one broker from one look to the next."""

    at_s: float
    view: View
    before: View | None
    """The same broker at the look before; None if it was not there, or had another life."""

    @property
    def records(self) -> tuple[MemberRecord, ...]:
        """The records in its table that were not there before."""
        if self.before is None:
            return self.view.table
        if self.before.table is self.view.table:
            return ()
        held = {record.id: record for record in self.before.table}
        return tuple(record for record in self.view.table if held.get(record.id) is not record)


@dataclass(frozen=True, slots=True)
class Sample:
    """All running brokers at one instant, by name."""

    at_s: float
    views: Mapping[str, View]

    def changes(self, before: Sample | None) -> Iterator[Change]:
        """Changes since the sample before. A broker in which only counters and sizes differ has none."""
        for name, view in self.views.items():
            earlier = before.views.get(name) if before is not None else None
            if earlier is not None and (earlier.life, earlier.boot) != (view.life, view.boot):
                earlier = None
            if earlier is None or not view.looks_as(earlier):
                yield Change(self.at_s, view, earlier)
