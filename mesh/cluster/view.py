"""The other brokers and their counters, as the broker's inspection reads them.

Every answer is a snapshot; reading changes nothing.
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
    """One member. ``since`` is when it entered its state, on the loop's clock."""

    record: MemberRecord
    since: float
    is_self: bool


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """One link that is up. ``rtt_s`` is the round trip of the last answer, or of the admission before any."""

    peer: int
    dialed: bool
    up_since: float
    rtt_s: float
    remote_address: str


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses at which this broker looks for others, besides the members that it knows."""

    join: tuple[str, ...]
    """The join URLs that it was given."""
    known: tuple[str, ...]
    """URLs of an earlier run whose members it has not met yet."""


@dataclass(frozen=True, slots=True)
class FramesOut:
    """Frames sent to other brokers since the start."""

    control: int
    """Surveys and answers."""
    bus: int
    """All other frames."""


@dataclass(frozen=True, slots=True)
class HeldInterest:
    """The interest held of one member. Version 0: nothing."""

    version: int
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class InterestView:
    """Interest as this broker holds it: (pattern, role) pairs."""

    version: int
    """The version of its own interest."""
    own: tuple[Pattern, ...]
    held: Mapping[int, HeldInterest]
    """The interest of each linked member, by id."""
    barriers: int
    """Number of own versions that somebody waits for."""


@dataclass(frozen=True, slots=True)
class PeeringStatistics:
    """All are cumulative except ``members``, ``links`` and ``strangers``, which are now."""

    rounds: int
    void_rounds: dict[str, int]
    """By reason: ``late`` (this broker was late), ``silent`` (nobody answered)."""
    late_answers: int
    refutations: int
    refused_records: int
    syncs: int
    refused: dict[str, int]
    """Connections that were refused, or lost for a broken rule, by reason."""
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
        """All known members, this broker first."""
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
        """Over all links since the start. The cost grows with their number."""
        manager = self._manager
        surveyor, respondent = manager.surveyor.statistics(), manager.respondent.statistics()
        return FramesOut(
            control=surveyor.frames_out + respondent.frames_out, bus=manager.bus.statistics().frames_out
        )

    def records(self) -> tuple[MemberRecord, ...]:
        """The records of all members, this broker first. Cheaper than `members`."""
        return tuple(self._membership.records())

    @property
    def linked(self) -> tuple[int, ...]:
        """Ids of the members to which a link is up."""
        return tuple(self._links)

    @property
    def admissions(self) -> tuple[str, ...]:
        """The stage of each admission in progress."""
        return tuple(stage.value for stage in self._manager.admissions)

    def addresses(self) -> Addresses:
        return Addresses(self._overlay.join, self._overlay.known)

    def interest(self) -> InterestView:
        """Copies every held pattern, so its cost grows with their number."""
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
