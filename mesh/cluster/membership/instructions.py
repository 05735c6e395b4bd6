"""Instructions of the membership machine to its driver, which carries them out in their order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from mesh.wire.member_record import MemberRecord, State


class NodeState(StrEnum):
    """Of this broker."""

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
    """Send these records to all linked members but one (0: to all)."""

    records: tuple[MemberRecord, ...]
    except_member: int = 0


@dataclass(frozen=True, slots=True)
class TellAll:
    """Send the whole table to one member; with ``reply`` it sends its own back."""

    member: int
    reply: bool


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member came into another state, or began a new run. ``via`` told it, or is this broker itself."""

    record: MemberRecord
    from_state: State
    reason: str
    via: int


@dataclass(frozen=True, slots=True)
class MemberMoved:
    """A member says something new of itself (an address), its state and run being what they were."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class MemberForgotten:
    """A member that was dead or had left is remembered no longer: a day has passed, or the table is full."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class SelfChanged:
    """This broker speaks of itself differently from now on."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class DropLink:
    """Close the link to a member (what is queued is still written)."""

    member: int
    reason: str


@dataclass(frozen=True, slots=True)
class Redial:
    """Dial all living members without a link at once, whichever's turn it is."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """This broker came into another state."""

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
