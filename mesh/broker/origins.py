"""The origin of a client's connection: the names in its certificate, and whether it is on this machine. Pure.

A connection is near if it uses ipc or inproc, comes from a loopback address, or comes from the very address
that it came to: packets that a host sends to itself do not leave it. Behind a program that forwards
connections, such as an SSH tunnel or an SP device, clients look like that program.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final, Protocol

from mesh.cluster.own_address import has_host, host_of
from protocols.identity import PeerIdentity

_PART: Final = re.compile(r"(?:\\.|[^,+\\])+")
_ESCAPED: Final = re.compile(r"\\(.)")
COMMON_NAME: Final = "CN="


class Connected(Protocol):
    """A connection (`protocols.Pipe`, `protocols.PipeView`)."""

    @property
    def url(self) -> str: ...
    @property
    def remote_address(self) -> str: ...
    @property
    def local_address(self) -> str: ...
    @property
    def identity(self) -> PeerIdentity | None: ...


def certificate_names(identity: PeerIdentity | None) -> tuple[str, ...] | None:
    """The names by which a principal may be configured: the subject, its common names and the other names.
    None without a certificate."""
    if identity is None or not (identity.subject or identity.names):
        return None
    parts = [part.lstrip() for part in _PART.findall(identity.subject)]
    common = [
        _ESCAPED.sub(r"\1", part.removeprefix(COMMON_NAME)) for part in parts if part.startswith(COMMON_NAME)
    ]
    return tuple(dict.fromkeys(filter(None, (identity.subject, *common, *identity.names))))


def is_near(pipe: Connected) -> bool:
    """True if the other end is on this machine."""
    if not has_host(pipe.url):
        return True
    remote = address_of(pipe.remote_address)
    if remote.startswith("127.") or not remote:  # no remote address: the connection has already ended
        return bool(remote)
    if remote == address_of(pipe.local_address):
        return True
    try:
        return ip_address(remote).is_loopback
    except ValueError:
        return False


def address_of(url: str) -> str:
    """The host of an address, without brackets. IPv4 addresses inside IPv6 are returned as IPv4."""
    host = host_of(url).strip("[]").partition("%")[0]
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
