"""Decides what this broker says about itself, and when it repeats that.

Only a member raises its own incarnation. It does so whenever it hears anything about itself that differs from
its own record (**refutation**). So a broker that was paused or cut off returns with the same boot. A broker
that was restarted returns with another boot. Refutations are sent at most twice a period, whatever is said in
between.

Others are believed about a member up to a bound above its own last word (`mesh.cluster.membership.belief`),
and the member refutes up to twice that bound. So it can refute whatever is believed about it, even if its
last incarnations were not saved. No chain of lies can take a record out of its member's reach.
"""

from __future__ import annotations

from dataclasses import replace

from mesh.cluster.membership.instructions import Instruction, NodeChanged, NodeState, SelfChanged, Tell
from mesh.cluster.membership.options import MembershipOptions
from mesh.cluster.membership.roster import Roster
from mesh.wire.member_record import INCARNATION_MAX, INCARNATION_STEP_MAX, MemberRecord, State


class OwnRecord:
    """The record of this broker, and its state as a node of the mesh."""

    def __init__(
        self, record: MemberRecord, roster: Roster, options: MembershipOptions, *, join: bool, now: float
    ) -> None:
        self.record = record
        self.node_state = NodeState.JOINING if join else NodeState.READY
        self.refutations = 0
        self.refused_records = 0
        self.due: float | None = None
        """When a delayed refutation is due."""
        self._roster = roster
        self._pause_s = options.period_s / 2
        self._refuted_at = now - options.period_s
        roster.toggle(record)

    def hear(self, record: MemberRecord, now: float, out: list[Instruction]) -> None:
        """Take a record that others have of this broker."""
        mine = self.record
        if record.incarnation < mine.incarnation or record == mine:
            return
        if mine.state is State.LEFT and record.key < mine.key:
            return  # said before this broker left; its leaving wins everywhere
        if record.incarnation > min(mine.incarnation + 2 * INCARNATION_STEP_MAX, INCARNATION_MAX - 2):
            self.refused_records += 1
            return
        self.say(replace(mine, incarnation=record.incarnation + 1), out)
        self.refutations += 1
        if now - self._refuted_at >= self._pause_s:
            self.refute(now, out)
        elif self.due is None:
            self.due = self._refuted_at + self._pause_s

    def refute(self, now: float, out: list[Instruction]) -> None:
        """Announce this broker's present record."""
        self._refuted_at = now
        self.due = None
        out.append(Tell((self.record,)))

    def found_at(self, peer_url: str, client_url: str) -> None:
        """Set where this broker listens, before anybody was told anything."""
        self.record = replace(self.record, peer_url=peer_url, client_url=client_url)

    def move(self, peer_url: str, client_url: str, out: list[Instruction]) -> None:
        """This broker has other addresses, or has only now learned them."""
        mine = self.record
        if (peer_url, client_url) == (mine.peer_url, mine.client_url):
            return
        incarnation = mine.incarnation + 1
        self.say(replace(mine, incarnation=incarnation, peer_url=peer_url, client_url=client_url), out)
        out.append(Tell((self.record,)))

    def leave(self, out: list[Instruction]) -> None:
        """Say goodbye."""
        self.say(replace(self.record, state=State.LEFT), out)
        self.become(NodeState.LEAVING, out)
        out.append(Tell((self.record,)))

    def say(self, record: MemberRecord, out: list[Instruction]) -> None:
        """Change this broker's own record."""
        self._roster.toggle(self.record)
        self._roster.toggle(record)
        self.record = record
        out.append(SelfChanged(record))

    def become(self, state: NodeState, out: list[Instruction]) -> None:
        """Change this broker's state."""
        out.append(NodeChanged(self.node_state, state))
        self.node_state = state
