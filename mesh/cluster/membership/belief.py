"""Whose word is taken for what: a member's own, what others say of it, and what nobody may say.

* **A member's own word**, on its own link, is believed as it is.
* **Hearsay** is what others say of a member. It is believed up to `INCARNATION_STEP_MAX` above the member's
  own last word to this broker (0 if it never spoke to it): a lie beyond that could not be refuted by the
  member it is about (`mesh.cluster.membership.own_record`).
* **Direct evidence** outweighs hearsay of a death: a member that is linked and answered within the last round
  is suspected at most, whatever others say, and told so. It refutes, and the broker that said it hears that.
  For after a partition each side tells the other that it is dead, and one that was hardly heard for a while
  tells everybody of many who live.
* A member **first heard of** as dead or gone is not recorded at all: its death was counted by those who knew
  it.
* **This broker** itself answers what is said of it.

What is believed and was not known goes to all linked members but the one it came from; what is known already,
or refused, to nobody. A death by hearsay costs a link only if the link has missed rounds too.
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
    """See the module."""

    def __init__(self, own: OwnRecord, roster: Roster, options: MembershipOptions) -> None:
        self.refused_records = 0
        self._own = own
        self._roster = roster
        self._fresh_s = options.period_s + options.deadline_s
        """From the beginning of a round to the last answers to the next one."""

    def hear(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """What a linked member says of anybody."""
        if record.id == self._own.record.id:
            self._own.hear(record, now, out)
        else:
            self.take(record, via, now, out)

    def take(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """What ``via`` says of another broker, which may be itself."""
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
        """It answered within the last round on the link that it has. This broker may have slept since."""
        return member.linked and not member.link_misses and now - member.heard_at <= self._fresh_s

    def _take_in(self, record: MemberRecord, via: int, now: float, out: list[Instruction]) -> None:
        """A member never heard of."""
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
        """Of the link to who is gone."""
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
