"""Options that a running broker can replace, and the outcome of a reload. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from mesh.broker.options import BrokerOptions

RELOADABLE: Final = frozenset(
    {
        "export",
        "stats_s",
        "drain_s",
        "log_heartbeats",
        "log_keep_days",
        "log_keep_mb",
        "principals",
        "anonymous",
    }
)
"""The others are promised to peers and clients, or belong to files and sockets that are open."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did: names of options, as the parameters of `mesh.Broker` are called."""

    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    """These differ too, but need a restart of the broker."""
    certificates: int
    """TLS addresses whose certificates were read again for new connections."""


def merge(
    running: BrokerOptions, wanted: BrokerOptions
) -> tuple[BrokerOptions, tuple[str, ...], tuple[str, ...]]:
    """The options to run on with, the names of those that are replaced, and of those that cannot be."""
    differing = [
        item.name
        for item in fields(BrokerOptions)
        if getattr(running, item.name) != getattr(wanted, item.name)
    ]
    replaced = tuple(name for name in differing if name in RELOADABLE)
    kept = tuple(name for name in differing if name not in RELOADABLE)
    return replace(running, **{name: getattr(wanted, name) for name in replaced}), replaced, kept
