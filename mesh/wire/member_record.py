"""The record that brokers exchange about a member, and which of two records wins.

Every broker holds one record of each member: ALIVE, SUSPECT, DEAD or LEFT. Records are merged by
(incarnation, rank) with ALIVE < SUSPECT < DEAD < LEFT. So the order in which news arrives does not matter,
and repeated news changes nothing::

                    one round missed            three in a row
    (nothing) --> ALIVE -----------> SUSPECT ------------------> DEAD
                    ^ ^                 |                          |
                    | +-- refutation ---+                          |
                    +---- refutation or return (greater incarnation)
    any state --> LEFT, by the member's own word

Only a member raises its own incarnation (`mesh.cluster.membership.own_record`). So whatever others say about
it, its own next record wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

INCARNATION_MAX: Final = 1 << 62
INCARNATION_STEP_MAX: Final = 1 << 32
"""How far above a member's own incarnation the records of others may be. Honest brokers raise it by one at a
time."""


class State(StrEnum):
    """The state of a member. `UNKNOWN` is only the state before the first record."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"


RANKS: Final = {State.ALIVE: 0, State.SUSPECT: 1, State.DEAD: 2, State.LEFT: 3}
STATES: Final = (State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT)
"""The states by rank."""
IN_VIEW: Final = (State.ALIVE, State.SUSPECT)
"""The states of a living member."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The record that brokers exchange about a member."""

    id: int
    incarnation: int
    state: State
    boot: int
    name: str
    host: str
    peer_url: str
    client_url: str

    @property
    def key(self) -> tuple[int, int, int, str, str, str, str]:
        """The record's rank among records of one member; the greater key wins. Incarnation and rank decide.
        The other fields make the order total, so that the order of merges never matters, even if a peer
        lies."""
        return (
            self.incarnation,
            RANKS[self.state],
            self.boot,
            self.name,
            self.host,
            self.peer_url,
            self.client_url,
        )

    @property
    def in_view(self) -> bool:
        """True if it counts as a living member; a suspect does until it is dead."""
        return self.state in IN_VIEW


def merge(left: MemberRecord, right: MemberRecord) -> MemberRecord:
    """The winner of two records about one member."""
    return right if outweighs(right, left) else left


def outweighs(new: MemberRecord, old: MemberRecord) -> bool:
    """True if the key of ``new`` is greater. Most news is known already, so keys are compared last."""
    if new is old:
        return False
    if new.incarnation != old.incarnation:
        return new.incarnation > old.incarnation
    if new.state is not old.state:
        return RANKS[new.state] > RANKS[old.state]
    return new.key > old.key
