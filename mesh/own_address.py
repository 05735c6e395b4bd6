"""Where this broker is: the one URL that the others are told to find it at.

What the operator says stands (``advertise``). Else it is one of the URLs listened on: tcp before ipc, an
address that other hosts can reach before loopback. A wildcard bind names no address; there the first link
decides, by the address that its connection has on this side, and a later one only if it takes the place of
loopback.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocols import is_wildcard


class OwnAddress:
    """See the module."""

    def __init__(self, advertise: str | None) -> None:
        self._advertise = advertise
        self._wildcard_port = ""

    def listening(self, urls: Sequence[str]) -> str:
        """Takes the URLs listened on, as bound; returns what to advertise, empty while a wildcard's address
        is not known."""
        return self._advertise or self._best(urls)

    def on_loopback(self) -> str:
        """Of a wildcard bind: an address that works on this host at least; empty of any other."""
        return f"tcp://127.0.0.1:{self._wildcard_port}" if self._wildcard_port else ""

    def learned(self, local_address: str, advertised: str) -> str:
        """What to advertise instead of ``advertised``, now that a connection has ``local_address`` on this
        side; empty: nothing better."""
        if not self._wildcard_port or self._advertise or not local_address.startswith("tcp"):
            return ""
        url = f"{local_address.rpartition(':')[0]}:{self._wildcard_port}"
        better = not advertised or (_is_loopback(advertised) and not _is_loopback(url))
        return url if better else ""

    def _best(self, urls: Sequence[str]) -> str:
        tcp = [url for url in urls if url.startswith("tcp")]
        for url in tcp:
            if is_wildcard(url):
                self._wildcard_port = url.rpartition(":")[2]
                return ""
        outside = [url for url in tcp if not _is_loopback(url)]
        return next(iter([*outside, *tcp, *urls]), "")


def _is_loopback(url: str) -> bool:
    host = url.partition("://")[2]
    return host.startswith(("127.", "localhost", "[::1]"))
