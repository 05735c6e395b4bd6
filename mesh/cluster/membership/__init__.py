"""Knows which brokers are in the mesh, and on whose evidence: the membership machine of one broker.

Each file is one decision:

* `record`: which of two records wins;
* `belief`: which sender is believed about what;
* `judgement`: which members are dead, and whether this broker may say so;
* `own_record`: what this broker says about itself;
* `roster`: which members are remembered, and whether two tables are equal.

`machine` joins them, and `mesh.cluster.core` drives it. Its outputs are `instructions`.

Pure: inputs carry ``now``, outputs are lists of instructions. The order of calls resolves ties; nothing
iterates over a set.
"""

from mesh.cluster.membership.instructions import (
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberMoved,
    NodeChanged,
    NodeState,
    Redial,
    SelfChanged,
    Survey,
    Tell,
    TellAll,
)
from mesh.cluster.membership.judgement import UNJUDGED_ROUNDS_MAX
from mesh.cluster.membership.machine import Membership, MembershipStatistics
from mesh.cluster.membership.options import MembershipOptions
from mesh.wire.member_record import (
    INCARNATION_MAX,
    INCARNATION_STEP_MAX,
    RANKS,
    STATES,
    MemberRecord,
    State,
    merge,
)

__all__ = [
    "INCARNATION_MAX",
    "INCARNATION_STEP_MAX",
    "RANKS",
    "STATES",
    "UNJUDGED_ROUNDS_MAX",
    "DropLink",
    "Instruction",
    "MemberChanged",
    "MemberForgotten",
    "MemberMoved",
    "MemberRecord",
    "Membership",
    "MembershipOptions",
    "MembershipStatistics",
    "NodeChanged",
    "NodeState",
    "Redial",
    "SelfChanged",
    "State",
    "Survey",
    "Tell",
    "TellAll",
    "merge",
]
