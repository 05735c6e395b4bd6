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
"""Peers and clients rely on all other options, or open files and sockets use them."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload: names of options, as the parameters of `mesh.Broker`."""

    replaced: tuple[str, ...]
    kept: tuple[str, ...]
    """Options that also differ but need a restart of the broker."""
    certificates: int
    """TLS addresses whose certificates were read again for new connections."""


def merge(
    running: BrokerOptions, wanted: BrokerOptions
) -> tuple[BrokerOptions, tuple[str, ...], tuple[str, ...]]:
    """The options to continue with, the names of those that were replaced, and of those that cannot be."""
    differing = [
        item.name
        for item in fields(BrokerOptions)
        if getattr(running, item.name) != getattr(wanted, item.name)
    ]
    replaced = tuple(name for name in differing if name in RELOADABLE)
    kept = tuple(name for name in differing if name not in RELOADABLE)
    return replace(running, **{name: getattr(wanted, name) for name in replaced}), replaced, kept
