"""What brokers tell each other about one of them, and which of two records stands.

Every broker holds one record of each member, ALIVE, SUSPECT, DEAD or LEFT. Records are merged by
(incarnation, rank) with ALIVE < SUSPECT < DEAD < LEFT, so the order in which news arrives does not matter and
repeating it does nothing::

                    one round missed            three in a row
    (nothing) --> ALIVE -----------> SUSPECT ------------------> DEAD
                    ^ ^                 |                          |
                    | +-- refutation ---+                          |
                    +---- refutation or return (greater incarnation)
    any state --> LEFT, by the member's own word

Only a member raises its own incarnation (`mesh.cluster.membership.own_record`), so whatever others say of
it, its own
next word stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

INCARNATION_MAX: Final = 1 << 62
INCARNATION_STEP_MAX: Final = 1 << 32
"""How far above a member's own word others may speak of it: honest brokers raise it by one at a time."""


class State(StrEnum):
    """Of a member; `UNKNOWN` is only ever the state before the first record."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"


RANKS: Final = {State.ALIVE: 0, State.SUSPECT: 1, State.DEAD: 2, State.LEFT: 3}
STATES: Final = (State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT)
"""By rank."""
IN_VIEW: Final = (State.ALIVE, State.SUSPECT)
"""Of who counts as a living member."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What brokers tell each other about one of them."""

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
        """Of two records about one member the greater key wins. Incarnation and rank decide; the rest makes
        the order total, so that merging stays order-free even where a peer tells lies."""
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
        """Counts as a living member: suspects do until they are dead."""
        return self.state in IN_VIEW


def merge(left: MemberRecord, right: MemberRecord) -> MemberRecord:
    """The one of two records about one member that stands."""
    return right if outweighs(right, left) else left


def outweighs(new: MemberRecord, old: MemberRecord) -> bool:
    """Whether the key of one is greater. Most of what is heard is known already, so keys are made last."""
    if new is old:
        return False
    if new.incarnation != old.incarnation:
        return new.incarnation > old.incarnation
    if new.state is not old.state:
        return RANKS[new.state] > RANKS[old.state]
    return new.key > old.key
