"""The table of members: which records it keeps and for how long, and whether another broker's table is equal.

Besides the record that all share, each `Member` has what only this broker knows: whether it is linked, what
it answered, which rounds it missed. `mesh.cluster.membership.judgement` uses that.

**Tombstones.** Dead members are remembered for a day. So a stale record cannot revive them, and both sides of
a healed partition know which members to look for. A full table drops its oldest tombstone; without one it
adds nobody.

**Digest.** News can be lost with a link, so surveys and answers carry `Roster.digest`, a fingerprint of all
living members. If two digests differ for half a period, both tables are exchanged. Every change of a record
goes through the table, which updates the digest incrementally: n members join in n changes, so no change may
iterate over all of them.
"""

from __future__ import annotations

import hashlib
import struct
from math import inf
from typing import Final

from mesh.cluster.membership.instructions import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberMoved,
    TellAll,
)
from mesh.cluster.membership.options import MembershipOptions
from mesh.wire.member_record import IN_VIEW, RANKS, MemberRecord, State

_DIGESTED: Final = struct.Struct("<QQB")


class Member:
    """This broker's knowledge about another, besides the record that all share."""

    __slots__ = (
        "differs_since",
        "heard_at",
        "judged",
        "link_misses",
        "linked",
        "misses",
        "own_incarnation",
        "record",
        "seen_linked",
        "since",
        "unjudged_rounds",
        "voided",
    )

    def __init__(self, record: MemberRecord, since: float) -> None:
        self.record = record
        self.since = since
        self.linked = False
        self.seen_linked = False  # in this broker's run
        self.heard_at = -inf  # when the round that it last answered, or its link, began
        self.own_incarnation = 0  # the greatest that it announced itself, on its link
        self.judged = False
        self.voided = False  # unjudged by a void round, until it answers
        self.unjudged_rounds = 0
        self.misses = 0  # consecutive rounds; a refutation resets it
        self.link_misses = 0  # consecutive rounds on its present link
        self.differs_since: tuple[bytes, bytes, float] | None = None

    def said_to_live(self) -> None:
        """A record says that it is alive: a refutation, or a return."""
        self.misses = 0  # it is alive, though perhaps not reachable: see `judgement` on bad links
        if not self.linked:  # the sender has it from a link: see `judgement` on hearsay
            self.judged, self.unjudged_rounds = False, 0

    def unjudge(self) -> None:
        """Do not judge it until it answers once, or for some rounds."""
        self.judged, self.voided = False, True
        self.unjudged_rounds = self.misses = 0


class Roster:
    """All members except this broker, by id."""

    def __init__(self, options: MembershipOptions) -> None:
        self.members: dict[int, Member] = {}
        self.digest = bytes(8)
        """Eight bytes over id, incarnation and state of all living members, including this broker. Equal
        tables have equal digests."""
        self.syncs = 0
        self._options = options
        self._fingerprints = 0  # of all living members, combined

    # --- changes

    def admit(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> Member | None:
        """Add an unknown member. None if the table is full."""
        if not self._make_room(out):
            return None
        member = self.members[record.id] = Member(record, now)
        self.toggle(record)
        out.append(MemberChanged(record, State.UNKNOWN, "joined", via))
        return member

    def replace(
        self,
        member: Member,
        record: MemberRecord,
        reason: str,
        via: int,
        now: float,
        out: list[Instruction],
    ) -> None:
        """Replace the record of a member."""
        before = member.record
        member.record = record
        self.toggle(before)
        self.toggle(record)
        if record.state is State.ALIVE:
            member.said_to_live()
        if record.state is not before.state or record.boot != before.boot:
            member.since = now
            out.append(MemberChanged(record, before.state, reason, via))
        elif record.peer_url != before.peer_url:
            out.append(MemberMoved(record))

    def forget(self, member: Member, out: list[Instruction]) -> None:
        """Remove a member."""
        del self.members[member.record.id]
        self.toggle(member.record)
        out.append(MemberForgotten(member.record))

    def expire(self, now: float, out: list[Instruction]) -> None:
        """Remove tombstones older than a day. Drop links to members that left and did not hang up."""
        for id, member in list(self.members.items()):
            if member.record.state in IN_VIEW:
                continue
            if member.linked and member.record.state is State.LEFT:
                out.append(DropLink(id, "left"))
            elif not member.linked and now - member.since > self._options.tombstone_s:
                self.forget(member, out)

    def _make_room(self, out: list[Instruction]) -> bool:
        if len(self.members) + 1 < self._options.members_max:
            return True
        buried = [m for m in self.members.values() if not m.record.in_view and not m.linked]
        if not buried:
            return False
        self.forget(min(buried, key=lambda member: (member.since, member.record.id)), out)
        return True

    # --- whether tables are equal

    def toggle(self, record: MemberRecord) -> None:
        """Add a record to the digest, or take it out again."""
        if record.in_view:
            self._fingerprints ^= _fingerprint(record)
            self.digest = self._fingerprints.to_bytes(8, "little")

    def compare(self, id: int, digest: bytes, now: float, out: list[Instruction]) -> None:
        """Compare another table's digest. News takes some milliseconds after every change, so only a lasting
        difference is worth an exchange of tables."""
        member = self.members.get(id)
        if member is None:
            return
        own = self.digest
        if digest == own:
            member.differs_since = None
        elif member.differs_since is None or member.differs_since[:2] != (digest, own):
            member.differs_since = (digest, own, now)
        elif now - member.differs_since[2] >= self._options.period_s / 2:
            member.differs_since = None
            self.syncs += 1
            out.append(TellAll(id, reply=True))


def _fingerprint(record: MemberRecord) -> int:
    """Eight well-mixed bytes of the fields that decide a merge. Their XOR does not depend on the order."""
    packed = _DIGESTED.pack(record.id, record.incarnation, RANKS[record.state])
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")
