"""Brokers with a future version of the link: the code of the broker loaded a second time, which speaks more.

Such a broker speaks the present version too. Its HELLO offers newer versions and an unknown capability, and
each of its link frames has one field more than those of the present version: all that a later version may do.
`broker_ahead` makes it from the unchanged sources. It executes the modules below again as copies, which
nobody else imports, and changes the copy of `mesh.wire.link_frames`.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any, Final

from mesh.broker.broker import Broker
from mesh.wire.capabilities import LINK, Offer

CAPABILITY: Final = "of-a-version-to-come"
FIELD: Final = {"of": "a version to come"}
"""The field after the present fields of each frame."""
COPIED: Final = (
    "mesh.wire.link_frames",
    "mesh.cluster.admission",
    "mesh.cluster.link",
    "mesh.cluster.links",
    "mesh.cluster.joining",
    "mesh.cluster.core",
    "mesh.cluster.remote_interest",
    "mesh.cluster.standstill",
    "mesh.cluster.durable_table",
    "mesh.cluster.durable_interest",
    "mesh.cluster.durable_gossip",
    "mesh.cluster.gossip",
    "mesh.cluster.heartbeat",
    "mesh.cluster.link_dialer",
    "mesh.cluster.view",
    "mesh.cluster.peering",
    "mesh.broker.durable_file",
    "mesh.broker.inspection",
    "mesh.broker.report",
    "mesh.broker.http_source",
    "mesh.broker.home_shell",
    "mesh.broker.peer_events",
    "mesh.broker.node",
    "mesh.broker.broker",
)
"""All modules between a broker and its link's version, in the order in which they import each other."""


@cache
def broker_ahead(versions: int) -> type[Broker]:
    """The class of brokers whose link version is so many ahead; 0 gives the usual one."""
    if not versions:
        return Broker
    copies = _copied(versions)
    ahead: type[Broker] = copies["mesh.broker.broker"].Broker
    # It counts as a Broker, but the copy does all the work.
    return type("BrokerAhead", (ahead, Broker), {})


def _copied(versions: int) -> dict[str, ModuleType]:
    """They import each other by name, so the names are theirs while they are executed."""
    usual = {name: sys.modules[name] for name in COPIED}
    copies: dict[str, ModuleType] = {}
    try:
        for name, module in usual.items():
            spec = module.__spec__
            assert spec is not None and spec.loader is not None, "it was imported from a file"
            copies[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(copies[name])
            if name == "mesh.wire.link_frames":
                _lengthen_frames(copies[name])
            elif name == "mesh.cluster.links":
                names = [*LINK.capabilities, CAPABILITY]
                vars(copies[name])["LINK"] = Offer.of(LINK.oldest, LINK.newest + versions, names)
    finally:
        sys.modules.update(usual)
    return copies


def _lengthen_frames(link: ModuleType) -> None:
    present = link.encode

    def encode(kind: int, *fields: Any) -> bytes:
        frame: bytes = present(kind, *fields, FIELD)
        return frame

    vars(link)["encode"] = encode
