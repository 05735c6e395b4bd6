"""Who clients are, what they may do, and how much of it: principals, proofs, rights and limits."""

from mesh.access.principals import (
    ACTIONS,
    ANONYMITIES,
    ANONYMOUS,
    CERTIFIED,
    Action,
    Anonymity,
    Policy,
    Principal,
)
from mesh.access.rights import Rights

__all__ = [
    "ACTIONS",
    "ANONYMITIES",
    "ANONYMOUS",
    "CERTIFIED",
    "Action",
    "Anonymity",
    "Policy",
    "Principal",
    "Rights",
]
