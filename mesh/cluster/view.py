"""What is known of the other brokers, and what was counted at them, as the broker's inspection reads it.

Every answer is a snapshot; nothing changes by asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.cluster.core import ClusterCore
from mesh.cluster.heartbeat import Rounds
from mesh.cluster.link_dialer import LinkDialer
from mesh.cluster.links import LinkManager
from mesh.cluster.membership import MemberRecord
from mesh.cluster.remote_interest import InterestTable, Pattern


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member; ``since`` is when it came into its state, on the loop's clock."""

    record: MemberRecord
    since: float
    is_self: bool


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """One link that is up; ``rtt_s`` is of the last answer, of the admission before that."""

    peer: int
    dialed: bool
    up_since: float
    rtt_s: float
    remote_address: str


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where this broker looks for others, besides the members that it knows."""

    join: tuple[str, ...]
    """The URLs it was given to join by."""
    known: tuple[str, ...]
    """The URLs of an earlier run whose members it has not met yet."""


@dataclass(frozen=True, slots=True)
class FramesOut:
    """Frames sent to other brokers since the start."""

    control: int
    """Surveys and answers."""
    bus: int
    """All others."""


@dataclass(frozen=True, slots=True)
class HeldInterest:
    """What is held of one member's interest; version 0: nothing."""

    version: int
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class InterestView:
    """Interest as this broker holds it: (pattern, role) pairs."""

    version: int
    """Of its own interest."""
    own: tuple[Pattern, ...]
    held: Mapping[int, HeldInterest]
    """Of each linked member, by id."""
    barriers: int
    """Versions of its own that somebody waits for."""


@dataclass(frozen=True, slots=True)
class PeeringStatistics:
    """Cumulative, but ``members``, ``links`` and ``strangers``, which are now."""

    rounds: int
    void_rounds: dict[str, int]
    """By reason: ``late`` (this broker was), ``silent`` (nobody answered)."""
    late_answers: int
    refutations: int
    refused_records: int
    syncs: int
    refused: dict[str, int]
    """Connections that were not admitted, or lost for a broken rule, by reason."""
    dial_failures: dict[str, int]
    members: int
    links: int
    strangers: int


class PeeringView:
    """See the module."""

    def __init__(
        self,
        core: ClusterCore,
        interest: InterestTable,
        rounds: Rounds,
        manager: LinkManager,
        dialer: LinkDialer,
    ) -> None:
        self._membership = core.membership
        self._overlay = core.overlay
        self._interest = interest
        self._rounds = rounds
        self._manager = manager
        self._links = manager.up
        self._dialer = dialer

    def members(self) -> list[MemberView]:
        """All that are known, this broker first."""
        me = self._membership.me
        others = [MemberView(record, since, False) for record, since in self._membership.others()]
        return [MemberView(me, self._membership.since(me.id), True), *others]

    def links(self) -> list[LinkInfo]:
        """Those that are up."""
        return [
            LinkInfo(id, link.bus.dialed, link.up_since, link.rtt_s, link.bus.remote_address)
            for id, link in self._links.items()
        ]

    def statistics(self) -> PeeringStatistics:
        counted = self._membership.statistics()
        return PeeringStatistics(
            rounds=counted.rounds,
            void_rounds={"late": counted.late_rounds, "silent": counted.silent_rounds},
            late_answers=self._rounds.late_answers,
            refutations=counted.refutations,
            refused_records=counted.refused_records,
            syncs=counted.syncs,
            refused=dict(self._manager.refusals.counts),
            dial_failures=dict(self._dialer.failures),
            members=counted.members,
            links=len(self._links),
            strangers=self._manager.strangers,
        )

    def frames_out(self) -> FramesOut:
        """Over all links since the start; costs by their number."""
        manager = self._manager
        surveyor, respondent = manager.surveyor.statistics(), manager.respondent.statistics()
        return FramesOut(
            control=surveyor.frames_out + respondent.frames_out, bus=manager.bus.statistics().frames_out
        )

    def records(self) -> tuple[MemberRecord, ...]:
        """What is held of all members, this broker first; cheaper than `members`."""
        return tuple(self._membership.records())

    @property
    def linked(self) -> tuple[int, ...]:
        """Ids of the members to which a link is up."""
        return tuple(self._links)

    @property
    def admissions(self) -> tuple[str, ...]:
        """The stage of each admission under way."""
        return tuple(stage.value for stage in self._manager.admissions)

    def addresses(self) -> Addresses:
        return Addresses(self._overlay.join, self._overlay.known)

    def interest(self) -> InterestView:
        """Copies every pattern that is held, so it costs by their number."""
        interest = self._interest
        return InterestView(
            version=interest.version,
            own=tuple(interest.own),
            held={
                id: HeldInterest(interest.held_version(id), tuple(interest.patterns(id)))
                for id in self._links
            },
            barriers=interest.barriers,
        )
