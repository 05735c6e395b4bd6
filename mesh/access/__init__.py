"""The identities, rights and limits of clients: principals, proofs, rules and rates."""

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
