"""Instructions of the membership machine to its driver, which carries them out in their order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from mesh.wire.member_record import MemberRecord, State


class NodeState(StrEnum):
    """States of this broker."""

    JOINING = "joining"
    READY = "ready"
    ISOLATED = "isolated"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Survey:
    """Begin a round: ask these members now; their answers count until the deadline."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Send these records to all linked members except one (0: to all)."""

    records: tuple[MemberRecord, ...]
    except_member: int = 0


@dataclass(frozen=True, slots=True)
class TellAll:
    """Send the whole table to one member. With ``reply`` it sends its own back."""

    member: int
    reply: bool


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member changed its state, or began a new run. ``via`` reported it, or is this broker itself."""

    record: MemberRecord
    from_state: State
    reason: str
    via: int


@dataclass(frozen=True, slots=True)
class MemberMoved:
    """A member announces something new about itself (an address); its state and run are unchanged."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class MemberForgotten:
    """A member that was dead or had left is forgotten: a day has passed, or the table is full."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class SelfChanged:
    """This broker's own record has changed."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class DropLink:
    """Close the link to a member. Queued frames are still written."""

    member: int
    reason: str


@dataclass(frozen=True, slots=True)
class Redial:
    """Dial all living members without a link at once, even out of turn."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """This broker changed its state."""

    from_state: NodeState
    state: NodeState


Instruction: TypeAlias = (
    Survey
    | Tell
    | TellAll
    | MemberChanged
    | MemberMoved
    | MemberForgotten
    | SelfChanged
    | DropLink
    | Redial
    | NodeChanged
)
