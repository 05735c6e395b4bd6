"""The membership machine as its driver sees it: events go in, instructions come out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from mesh.cluster.membership.belief import Belief
from mesh.cluster.membership.instructions import DropLink, Instruction, NodeState, TellAll
from mesh.cluster.membership.judgement import Judgement
from mesh.cluster.membership.options import MembershipOptions
from mesh.cluster.membership.own_record import OwnRecord
from mesh.cluster.membership.roster import Roster
from mesh.wire.member_record import MemberRecord


@dataclass(frozen=True, slots=True)
class MembershipStatistics:
    """All are cumulative except ``members``, which is now."""

    rounds: int
    late_rounds: int
    """Rounds that were void because this broker was late."""
    silent_rounds: int
    """Rounds that were void because none of several peers answered."""
    refutations: int
    refused_records: int
    """Records beyond a bound: an incarnation out of reach, or a full table."""
    syncs: int
    """Tables exchanged because digests differed."""
    members: int


class Membership:
    """The machine that the package describes. ``join``: this broker was told about others to find."""

    def __init__(
        self,
        me: MemberRecord,
        *,
        options: MembershipOptions | None = None,
        join: bool = False,
        rng: random.Random,
        now: float,
    ) -> None:
        self.options = options = options or MembershipOptions()
        self._since = now
        self.roster = Roster(options)
        """Read only."""
        self._own = OwnRecord(me, self.roster, options, join=join, now=now)
        self._belief = Belief(self._own, self.roster, options)
        self._judgement = Judgement(self._own, self.roster, options, rng=rng, now=now)

    # --- state for others

    @property
    def me(self) -> MemberRecord:
        """This broker's own record."""
        return self._own.record

    @property
    def node_state(self) -> NodeState:
        """The state of this broker."""
        return self._own.node_state

    @property
    def round(self) -> int:
        """The number of the last round that began."""
        return self._judgement.round

    @property
    def digest(self) -> bytes:
        """Eight bytes over id, incarnation and state of all living members. Equal tables have equal
        digests."""
        return self.roster.digest

    def record(self, id: int) -> MemberRecord | None:
        """This broker's record of a member."""
        if id == self.me.id:
            return self.me
        member = self.roster.members.get(id)
        return None if member is None else member.record

    def records(self) -> list[MemberRecord]:
        """All records, this broker's first."""
        return [self.me, *(member.record for member in self.roster.members.values())]

    def others(self) -> list[tuple[MemberRecord, float]]:
        """All other members, and since when they are in their state."""
        return [(member.record, member.since) for member in self.roster.members.values()]

    def since(self, id: int) -> float:
        """When a member entered its state."""
        return self._since if id == self.me.id else self.roster.members[id].since

    def live(self) -> list[MemberRecord]:
        """Other members that are alive or suspect."""
        return [member.record for member in self.roster.members.values() if member.record.in_view]

    def live_ids(self) -> list[int]:
        """Ids of other members that are alive or suspect."""
        return [id for id, member in self.roster.members.items() if member.record.in_view]

    def answers(self, id: int) -> bool:
        """True if a member answered the last round on its present link."""
        member = self.roster.members.get(id)
        return member is not None and member.linked and member.link_misses == 0

    def statistics(self) -> MembershipStatistics:
        own, judgement, roster = self._own, self._judgement, self.roster
        return MembershipStatistics(
            rounds=judgement.round,
            late_rounds=judgement.late_rounds,
            silent_rounds=judgement.silent_rounds,
            refutations=own.refutations,
            refused_records=own.refused_records + self._belief.refused_records,
            syncs=roster.syncs,
            members=len(roster.members) + 1,
        )

    @property
    def last_void(self) -> float | None:
        """When the last void round was, on the loop's clock. None: never."""
        judgement = self._judgement
        if not judgement.late_rounds + judgement.silent_rounds:
            return None
        return judgement.void_until - self.options.period_s

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        own = self._own
        if own.node_state is NodeState.LEAVING:
            return float("inf")
        due = self._judgement.due()
        return due if own.due is None else min(due, own.due)

    # --- time

    def begin(self, peer_url: str, client_url: str, now: float) -> None:
        """This broker listens from now on. Call this once, before any link."""
        self._own.found_at(peer_url, client_url)
        self._judgement.delay(now - self._since)
        self._since = now

    def tick(self, now: float) -> list[Instruction]:
        """Do the work that is due: judge a round, begin the next, refute."""
        out: list[Instruction] = []
        own = self._own
        if own.node_state is NodeState.LEAVING:
            return out
        if own.due is not None and now >= own.due:
            own.refute(now, out)
        self._judgement.tick(now, out)
        return out

    def answered(self, id: int, round: int, now: float) -> list[Instruction]:
        """A member answered a round. Returns nothing if that round is over; the answer then does not
        count."""
        return self._judgement.answered(id, round, now)

    def is_open(self, round: int) -> bool:
        """True if an answer to this round would still count."""
        return self._judgement.is_open(round)

    # --- links

    def link_up(self, record: MemberRecord, now: float) -> list[Instruction]:
        """A link is admitted. ``record`` is the member's own record (ALIVE, from its HELLO).

        This includes a link that replaces an earlier one. If this broker's record of the member differs (such
        as DEAD), the table that it sends makes the member refute it.
        """
        out: list[Instruction] = []
        self._belief.take(record, record.id, now, out)
        member = self.roster.members.get(record.id)
        if member is None:
            out.append(DropLink(record.id, f"the table of {self.options.members_max} members is full"))
            return out
        self._judgement.linked(member, now)
        out.append(TellAll(record.id, reply=False))
        return out

    def link_down(self, id: int, now: float) -> list[Instruction]:
        """The link of a member has ended and no other took its place."""
        out: list[Instruction] = []
        member = self.roster.members.get(id)
        if member is not None:
            member.differs_since = None
            self._judgement.unlinked(member, now, out)
        return out

    def joined(self) -> list[Instruction]:
        """The shell has heard from all that it was told about: this broker is READY."""
        out: list[Instruction] = []
        if self._own.node_state is NodeState.JOINING:
            self._own.become(NodeState.READY, out)
        return out

    # --- news

    def heard(self, records: Iterable[MemberRecord], via: int, now: float) -> list[Instruction]:
        """Take records from a linked member."""
        out: list[Instruction] = []
        for record in records:
            self._belief.hear(record, via, now, out)
        return out

    def heard_digest(self, id: int, digest: bytes, now: float) -> list[Instruction]:
        """Take the digest in a member's survey or answer."""
        out: list[Instruction] = []
        self.roster.compare(id, digest, now, out)
        return out

    # --- this broker

    def set_urls(self, peer_url: str, client_url: str) -> list[Instruction]:
        """This broker has other addresses, or has only now learned them."""
        out: list[Instruction] = []
        self._own.move(peer_url, client_url, out)
        return out

    def leave(self) -> list[Instruction]:
        """Say goodbye. From then on nothing is judged and nobody surveyed."""
        out: list[Instruction] = []
        self._own.leave(out)
        self._judgement.stop()
        return out
