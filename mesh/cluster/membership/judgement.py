"""Decides by this broker's own rounds which members are dead, and when it may say so.

Every period all linked members are surveyed at once, and all are judged at one instant, the deadline:

* a member that answered is not judged. One that was asked, or lost its link, and did not answer has *missed*;
* one miss makes a SUSPECT, three in a row a DEAD. A refutation that arrives through others resets the count:
  one bad link between two brokers kills neither. Only the link is dropped and dialled again;
* a member known by **hearsay** (it has no link, and others reported its record) is unjudged for
  `UNJUDGED_ROUNDS_MAX` rounds from its last report. That is time to link to it or to hear about it again.
  After that it misses rounds like any other, and if nobody can pass on its refutation, it is dead. So no
  record stays whose member nobody can reach. A round without an answer proves nothing about hearsay, unless
  this broker has no peers at all;
* a round is **void** if this broker's own timers were more than half a deadline late (it was paused or
  starved), or if it has two or more peers and none answered (this broker is cut off). A void round judges
  nobody and dials again at once. Members without a link are then unjudged until they answer once, or for
  `UNJUDGED_ROUNDS_MAX` rounds, so that a member that died just then is noticed. After three silent rounds in
  a row the broker is ISOLATED: its peers are unreachable, not dead.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mesh.cluster.full_mesh import ought_to_link
from mesh.cluster.membership.instructions import DropLink, Instruction, NodeState, Redial, Survey, Tell
from mesh.cluster.membership.options import MembershipOptions
from mesh.cluster.membership.own_record import OwnRecord
from mesh.cluster.membership.roster import Member, Roster
from mesh.wire.member_record import IN_VIEW, State

UNJUDGED_ROUNDS_MAX: Final = 10
_ISOLATED: Final = NodeState.ISOLATED  # globals are faster than members of an enum


class Judgement:
    """Begins rounds and judges members."""

    def __init__(
        self, own: OwnRecord, roster: Roster, options: MembershipOptions, *, rng: random.Random, now: float
    ) -> None:
        self.round = 0
        self.late_rounds = 0
        self.silent_rounds = 0
        self.void_until = now
        """For a period after a void round, a link found lost counts as lost during it."""
        self.options = options
        self._own = own
        self._roster = roster
        self._asked: dict[int, None] = {}
        self._answered: dict[int, None] = {}
        self._waiting = False
        self._began_at = now
        self._deadline = now
        # Rounds of brokers started together should not coincide.
        self._next_round = now + options.period_s * rng.random()
        self._began_late = False
        self._silent_in_row = 0

    # --- time

    def due(self) -> float:
        """The time of the next call of `tick`."""
        return min(self._next_round, self._deadline) if self._waiting else self._next_round

    def delay(self, seconds: float) -> None:
        """Delay the first round by so much."""
        self._next_round += seconds

    def tick(self, now: float, out: list[Instruction]) -> None:
        """Do the work that is due: judge a round, begin the next."""
        if self._waiting and now >= self._deadline:
            self._judge(now, out)
        if now >= self._next_round:
            self._begin_round(now, out)

    def stop(self) -> None:
        """Judge nobody any more."""
        self._waiting = False

    # --- evidence about members

    def answered(self, id: int, round: int, now: float) -> list[Instruction]:
        """A member answered a round. Returns nothing if that round is over; the answer then does not
        count."""
        out: list[Instruction] = []
        member = self._roster.members.get(id)
        if not self._waiting or round != self.round or member is None or id not in self._asked:
            return out
        if now > self._deadline and not self._was_late(now):
            return out
        self._answered[id] = None
        member.heard_at = self._began_at  # a broker that slept finds old answers
        member.judged, member.voided, member.unjudged_rounds = True, False, 0
        member.misses = member.link_misses = 0
        if self._own.node_state is _ISOLATED:
            self._silent_in_row = 0
            self._own.become(NodeState.READY, out)
        return out

    def is_open(self, round: int) -> bool:
        """True if an answer to this round would still count."""
        return self._waiting and round == self.round

    def linked(self, member: Member, now: float) -> None:
        """A link to the member is up, perhaps in place of another."""
        member.linked = member.seen_linked = True
        member.heard_at = now
        member.link_misses = 0
        self._asked.pop(member.record.id, None)  # this round asked the earlier link
        if not member.voided:
            member.judged = True

    def unlinked(self, member: Member, now: float, out: list[Instruction]) -> None:
        """The member's link has ended."""
        member.linked = False
        if now < self.void_until:
            member.unjudge()  # lost while this broker was paused or cut off, and noticed only now
            out.append(Redial())

    # --- rounds

    def _begin_round(self, now: float, out: list[Instruction]) -> None:
        options = self.options
        late_s = now - self._next_round
        self._began_late = late_s > options.deadline_s / 2
        self._next_round = now + options.period_s if self._began_late else self._next_round + options.period_s
        self.round += 1
        self._asked = {id: None for id, member in self._roster.members.items() if member.linked}
        self._answered = {}
        self._waiting = True
        self._began_at = now
        self._deadline = now + options.deadline_s
        out.append(Survey(self.round, tuple(self._asked)))

    def _was_late(self, now: float) -> bool:
        return self._began_late or now - self._deadline > self.options.deadline_s / 2

    def _judge(self, now: float, out: list[Instruction]) -> None:
        """The deadline of a round: void it, or judge the members that did not answer."""
        self._waiting = False
        present = [m for m in self._roster.members.values() if m.record.state in IN_VIEW]
        peers = [m for m in present if m.seen_linked]
        late = self._was_late(now)
        silent = not late and not self._answered and len(peers) >= 2
        self._count(late, silent)
        if not late:
            self._judge_links(out)
        if late or silent:
            self._void(now, out)
        else:
            for member in present if self._answered or not peers else peers:
                if member.record.id not in self._answered:
                    self._judge_member(member, now, out)
        if self._silent_in_row >= self.options.misses_max and self._own.node_state is NodeState.READY:
            self._own.become(_ISOLATED, out)
        self._roster.expire(now, out)

    def _count(self, late: bool, silent: bool) -> None:
        if late:
            self.late_rounds += 1
        elif silent:
            self.silent_rounds += 1
            self._silent_in_row += 1
        else:
            self._silent_in_row = 0

    def _judge_links(self, out: list[Instruction]) -> None:
        """Drop links without answers, whatever the state of the member. TCP would report them only after
        minutes."""
        for id in self._asked:
            if id in self._answered:
                continue
            member = self._roster.members.get(id)
            if member is None or not member.linked:
                continue
            member.link_misses += 1
            if member.link_misses >= self.options.misses_max:
                out.append(DropLink(id, f"no answer in {member.link_misses} rounds"))

    def _judge_member(self, member: Member, now: float, out: list[Instruction]) -> None:
        record = member.record
        if member.linked and record.id not in self._asked:
            return  # linked since the round began
        if not member.linked and not ought_to_link(self._own.record.id, record.id):
            return  # others judge it
        if not member.judged:
            member.unjudged_rounds += 1
            member.judged = member.unjudged_rounds >= UNJUDGED_ROUNDS_MAX
            return
        member.misses += 1
        if member.misses >= self.options.misses_max:
            self._accuse(member, State.DEAD, f"missed {member.misses} rounds", now, out)
            if member.linked:
                out.append(DropLink(record.id, "dead"))
        elif record.state is State.ALIVE:
            self._accuse(member, State.SUSPECT, "missed a round", now, out)

    def _accuse(self, member: Member, state: State, reason: str, now: float, out: list[Instruction]) -> None:
        record = replace(member.record, state=state)
        self._roster.replace(member, record, reason, self._own.record.id, now, out)
        out.append(Tell((record,)))

    def _void(self, now: float, out: list[Instruction]) -> None:
        self.void_until = now + self.options.period_s
        for member in self._roster.members.values():
            if not member.linked:
                member.unjudge()
        out.append(Redial())
