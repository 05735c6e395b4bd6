"""The identity of a peer, as far as its transport can vouch for it.

Over ipc the kernel names the process that connected. Over TLS the identity is the peer's certificate, if one
was requested and verified. Over tcp and inproc nobody vouches for anything, so there is no identity.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """The facts that the transport vouches for; the others are empty or None."""

    subject: str = ""
    """The subject of the peer's certificate, as RFC 4514 writes it: ``CN=broker-1,O=Example``."""
    names: tuple[str, ...] = ()
    """The certificate's other names: host names, IP addresses, URIs."""
    pid: int | None = None
    """The process that connected (or that listens) at the other end of an ipc connection."""
    uid: int | None = None
    gid: int | None = None
