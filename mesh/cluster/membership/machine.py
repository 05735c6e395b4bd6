"""The machine as its driver sees it: what happened goes in, what to do comes out."""

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
    """Cumulative, but ``members``, which is now."""

    rounds: int
    late_rounds: int
    """Void because this broker was late."""
    silent_rounds: int
    """Void because none of several peers answered."""
    refutations: int
    refused_records: int
    """Records beyond a bound: an incarnation out of reach, or a table that is full."""
    syncs: int
    """Tables exchanged because digests differed."""
    members: int


class Membership:
    """See the package. ``join`` says that this broker was told of others to find."""

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
        """To be read only."""
        self._own = OwnRecord(me, self.roster, options, join=join, now=now)
        self._belief = Belief(self._own, self.roster, options)
        self._judgement = Judgement(self._own, self.roster, options, rng=rng, now=now)

    # --- what others read

    @property
    def me(self) -> MemberRecord:
        """What this broker says of itself."""
        return self._own.record

    @property
    def node_state(self) -> NodeState:
        """Of this broker."""
        return self._own.node_state

    @property
    def round(self) -> int:
        """The number of the last round that began."""
        return self._judgement.round

    @property
    def digest(self) -> bytes:
        """Eight bytes over id, incarnation and state of all living members; equal tables have equal ones."""
        return self.roster.digest

    def record(self, id: int) -> MemberRecord | None:
        """What this broker holds of a member."""
        if id == self.me.id:
            return self.me
        member = self.roster.members.get(id)
        return None if member is None else member.record

    def records(self) -> list[MemberRecord]:
        """All of them, this broker first."""
        return [self.me, *(member.record for member in self.roster.members.values())]

    def others(self) -> list[tuple[MemberRecord, float]]:
        """All other members and since when they are in their state."""
        return [(member.record, member.since) for member in self.roster.members.values()]

    def since(self, id: int) -> float:
        """When a member came into its state."""
        return self._since if id == self.me.id else self.roster.members[id].since

    def live(self) -> list[MemberRecord]:
        """Other members that are alive or suspect."""
        return [member.record for member in self.roster.members.values() if member.record.in_view]

    def live_ids(self) -> list[int]:
        """Of other members that are alive or suspect."""
        return [id for id, member in self.roster.members.items() if member.record.in_view]

    def answers(self, id: int) -> bool:
        """Whether a member answered the last round on the link that it has."""
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
        """When a round was voided last, on the loop's clock; None: never."""
        judgement = self._judgement
        if not judgement.late_rounds + judgement.silent_rounds:
            return None
        return judgement.void_until - self.options.period_s

    def next_deadline(self) -> float:
        """When to call `tick`."""
        own = self._own
        if own.node_state is NodeState.LEAVING:
            return float("inf")
        due = self._judgement.due()
        return due if own.due is None else min(due, own.due)

    # --- time

    def begin(self, peer_url: str, client_url: str, now: float) -> None:
        """This broker listens from now on; to be called once, before any link."""
        self._own.found_at(peer_url, client_url)
        self._judgement.delay(now - self._since)
        self._since = now

    def tick(self, now: float) -> list[Instruction]:
        """Do what is due: judge a round, begin the next, refute."""
        out: list[Instruction] = []
        own = self._own
        if own.node_state is NodeState.LEAVING:
            return out
        if own.due is not None and now >= own.due:
            own.refute(now, out)
        self._judgement.tick(now, out)
        return out

    def answered(self, id: int, round: int, now: float) -> list[Instruction]:
        """A member answered a round; returns nothing if that round is over (then it does not count)."""
        return self._judgement.answered(id, round, now)

    def is_open(self, round: int) -> bool:
        """Whether an answer to this round would still count."""
        return self._judgement.is_open(round)

    # --- links

    def link_up(self, record: MemberRecord, now: float) -> list[Instruction]:
        """A link is admitted; ``record`` is what the member says of itself (ALIVE, by its HELLO).

        Also when it replaces an earlier link. If this broker holds something else of the member (that it is
        dead, for one), the table that is sent makes the member refute it.
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
        """The link of a member is gone and no other took its place."""
        out: list[Instruction] = []
        member = self.roster.members.get(id)
        if member is not None:
            member.differs_since = None
            self._judgement.unlinked(member, now, out)
        return out

    def joined(self) -> list[Instruction]:
        """The shell has heard of all it was told of: this broker is READY."""
        out: list[Instruction] = []
        if self._own.node_state is NodeState.JOINING:
            self._own.become(NodeState.READY, out)
        return out

    # --- news

    def heard(self, records: Iterable[MemberRecord], via: int, now: float) -> list[Instruction]:
        """Records that a linked member sent."""
        out: list[Instruction] = []
        for record in records:
            self._belief.hear(record, via, now, out)
        return out

    def heard_digest(self, id: int, digest: bytes, now: float) -> list[Instruction]:
        """The digest in a member's survey or answer."""
        out: list[Instruction] = []
        self.roster.compare(id, digest, now, out)
        return out

    # --- this broker

    def set_urls(self, peer_url: str, client_url: str) -> list[Instruction]:
        """This broker is to be found elsewhere, or knows only now where."""
        out: list[Instruction] = []
        self._own.move(peer_url, client_url, out)
        return out

    def leave(self) -> list[Instruction]:
        """Say goodbye; from then on nothing is judged and nobody surveyed."""
        out: list[Instruction] = []
        self._own.leave(out)
        self._judgement.stop()
        return out
