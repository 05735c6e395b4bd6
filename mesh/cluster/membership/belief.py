"""Decides which statements about a member are believed: its own, those of others, and those that nobody may
make.

* **A member's own word**, on its own link, is believed as it is.
* **Hearsay** is what others say about a member. It is believed up to `INCARNATION_STEP_MAX` above the last
  incarnation that the member itself told this broker (0 if it never did). The member could not refute a lie
  beyond that (`mesh.cluster.membership.own_record`).
* **Direct evidence** outweighs hearsay of a death. A member that is linked and answered within the last round
  is suspected at most, and is told so. It refutes, and the broker that believed it dead hears that. This
  matters because after a partition each side reports the other dead, and a broker that heard little for a
  while reports many live members dead.
* A member **first reported** as dead or gone is not recorded at all: the members that knew it counted its
  death.
* **This broker** itself answers what others say about it.

News that is believed goes to all linked members except its sender. Known or refused news goes to nobody. A
death by hearsay costs a link only if the link has missed rounds too.
"""

from __future__ import annotations

from dataclasses import replace

from mesh.cluster.membership.instructions import DropLink, Instruction, Tell
from mesh.cluster.membership.options import MembershipOptions
from mesh.cluster.membership.own_record import OwnRecord
from mesh.cluster.membership.roster import Member, Roster
from mesh.wire.member_record import (
    INCARNATION_MAX,
    INCARNATION_STEP_MAX,
    MemberRecord,
    State,
    outweighs,
)


class Belief:
    """Applies these rules to the table."""

    def __init__(self, own: OwnRecord, roster: Roster, options: MembershipOptions) -> None:
        self.refused_records = 0
        self._own = own
        self._roster = roster
        self._fresh_s = options.period_s + options.deadline_s
        """From the beginning of a round to the last answers to the next one."""

    def hear(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """Take a record from a linked member about any member."""
        if record.id == self._own.record.id:
            self._own.hear(record, now, out)
        else:
            self.take(record, via, now, out)

    def take(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """Take a record from ``via`` about a broker other than this one. ``via`` may be that broker."""
        member = self._roster.members.get(record.id)
        if member is None:
            self._take_in(record, via, now, out)
            return
        if via == record.id:
            member.own_incarnation = max(member.own_incarnation, record.incarnation)
        elif record.state is State.DEAD and self._is_seen_to_live(member, now):
            record = replace(record, state=State.SUSPECT)
        if not outweighs(record, member.record):
            return
        if record.incarnation > member.own_incarnation + INCARNATION_STEP_MAX:
            self.refused_records += 1
            return
        self._roster.replace(member, record, _reason(member.record, record), via, now, out)
        out.append(Tell((record,), via))
        self._let_go(member, via, out)

    def _is_seen_to_live(self, member: Member, now: float) -> bool:
        """True if it answered within the last round on its present link. This broker may have slept since."""
        return member.linked and not member.link_misses and now - member.heard_at <= self._fresh_s

    def _take_in(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """Add a member that was unknown."""
        if not record.in_view:
            return
        own_word = via == record.id
        believed = own_word or record.incarnation <= INCARNATION_STEP_MAX
        if not believed or record.incarnation >= INCARNATION_MAX:
            self.refused_records += 1
            return
        member = self._roster.admit(record, via, now, out)
        if member is None:
            self.refused_records += 1
            return
        member.own_incarnation = record.incarnation if own_word else 0
        out.append(Tell((record,), via))

    def _let_go(self, member: Member, via: int, out: list[Instruction]) -> None:
        """Drop the link to a member that is gone."""
        record = member.record
        if not member.linked:
            return
        if record.state is State.LEFT and via == record.id:
            out.append(DropLink(record.id, "left"))
        elif record.state is State.DEAD and member.link_misses:
            out.append(DropLink(record.id, "dead"))


def _reason(before: MemberRecord, after: MemberRecord) -> str:
    if after.state is State.LEFT:
        return "left"
    if after.state is not State.ALIVE:
        return "reported"
    if after.boot != before.boot:
        return "restarted"
    return "returned" if before.state is State.LEFT else "refuted"
