"""What this broker says of itself, and when it says it again.

Only a member raises its own incarnation. It does so when it hears anything about itself that is not what it
says itself (**refutation**): that is how a broker which was paused, or cut off, comes back with the boot it
had. A broker that was started again comes back with another boot. Refutations are told twice a period at
most, whatever is said in between.

Others are believed of a member up to a bound above its own last word (`mesh.cluster.membership.belief`), and
it refutes twice as far: the member that it is about can refute whatever is believed, even if its last
incarnations were not saved, and no chain of lies takes a record out of its member's reach.
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
        """When a refutation is to be told that had to wait."""
        self._roster = roster
        self._pause_s = options.period_s / 2
        self._refuted_at = now - options.period_s
        roster.toggle(record)

    def hear(self, record: MemberRecord, now: float, out: list[Instruction]) -> None:
        """What others say of this broker."""
        mine = self.record
        if record.incarnation < mine.incarnation or record == mine:
            return
        if mine.state is State.LEFT and record.key < mine.key:
            return  # said before this broker left, which stands against it everywhere
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
        """Tell all what this broker says of itself now."""
        self._refuted_at = now
        self.due = None
        out.append(Tell((self.record,)))

    def found_at(self, peer_url: str, client_url: str) -> None:
        """Where this broker listens, before anybody was told anything."""
        self.record = replace(self.record, peer_url=peer_url, client_url=client_url)

    def move(self, peer_url: str, client_url: str, out: list[Instruction]) -> None:
        """This broker is to be found elsewhere, or knows only now where."""
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
        """Speak differently of oneself from now on."""
        self._roster.toggle(self.record)
        self._roster.toggle(record)
        self.record = record
        out.append(SelfChanged(record))

    def become(self, state: NodeState, out: list[Instruction]) -> None:
        """Another state of the node."""
        out.append(NodeChanged(self.node_state, state))
        self.node_state = state
