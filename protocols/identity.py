"""Who a peer is, as far as its transport can vouch for it.

Over ipc the kernel says which process connected. Over TLS the peer's certificate says what a certificate
authority calls it, provided that it was asked for one and proved to hold the key. Over tcp and inproc nobody
vouches for anything, and there is no identity.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """What was vouched for; empty or None where nothing was."""

    subject: str = ""
    """The subject of the peer's certificate, as RFC 4514 writes it: ``CN=broker-1,O=Example``."""
    names: tuple[str, ...] = ()
    """The certificate's other names: host names, IP addresses, URIs."""
    pid: int | None = None
    """The process that connected (or that listens) at the other end of an ipc connection."""
    uid: int | None = None
    gid: int | None = None
