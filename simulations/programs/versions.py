"""Brokers of another version of the link: the code of the broker loaded a second time, with another number.

The link's format has one version, and no minor ones: a broker of another version is refused, and a frame with
one field more costs the link. So what a broker of a version to come does can only be what the present one
does, under another number. `broker_ahead` makes it from the sources as they are: the modules below are
executed again as copies, which nobody else imports, and in the copy of `mesh.wire.link_frames` the version
is another.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Final

from mesh.broker.broker import Broker
from mesh.wire.link_frames import VERSION

COPIED: Final = (
    "mesh.wire.link_frames",
    "mesh.cluster.links",
    "mesh.cluster.remote_interest",
    "mesh.cluster.joining",
    "mesh.cluster.gossip",
    "mesh.cluster.heartbeat",
    "mesh.cluster.dialling",
    "mesh.cluster.peering",
    "mesh.broker.inspection",
    "mesh.broker.report",
    "mesh.broker.node",
    "mesh.broker.broker",
)
"""All between a broker and its link's version, in the order in which they import each other."""


@cache
def broker_ahead(versions: int) -> type[Broker]:
    """The class of brokers whose version of the link is so many ahead; of 0, the usual one."""
    if not versions:
        return Broker
    copies = _copied(versions)
    ahead: type[Broker] = copies["mesh.broker.broker"].Broker
    # Whoever looks for brokers finds it to be one; all it does is the copy's.
    return type("BrokerAhead", (ahead, Broker), {})


def _copied(versions: int) -> dict[str, ModuleType]:
    """They import each other by name, so for as long as they are executed the names are theirs."""
    usual = {name: sys.modules[name] for name in COPIED}
    copies: dict[str, ModuleType] = {}
    try:
        for name, module in usual.items():
            spec = module.__spec__
            assert spec is not None and spec.loader is not None, "it was imported from a file"
            copies[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(copies[name])
            if name == "mesh.wire.link_frames":
                _set_version(copies[name], VERSION + versions)
    finally:
        sys.modules.update(usual)
    return copies


def _set_version(link: ModuleType, version: int) -> None:
    """What it asks of others, and what it says of itself, which is the default of a field."""
    *others, usual = link.Hello.__init__.__defaults__
    assert usual == link.VERSION, "the version is the last field"
    link.Hello.__init__.__defaults__ = (*others, version)
    vars(link)["VERSION"] = version
