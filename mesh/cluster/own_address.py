"""Where this broker is: the one URL that the others are told to find it at.

The operator's word stands (``advertise``). Else it is one of the URLs listened on: one that other hosts
can reach before loopback, loopback before ipc, and the first given of several. A wildcard bind names no
address; there the first link decides, by the address that its connection has on this side, and a later one
only if it takes the place of loopback.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from protocols import is_wildcard


class OwnAddress:
    """See the module."""

    def __init__(self, advertise: str | None) -> None:
        self._advertise = advertise
        self._wildcard = ""

    def listening(self, urls: Sequence[str]) -> str:
        """Takes the URLs listened on, as bound; returns what to advertise, empty while a wildcard's address
        is not known."""
        return self._advertise or self._best(urls)

    def on_loopback(self) -> str:
        """Of a wildcard bind: an address that works on this host at least; empty of any other."""
        return with_host(self._wildcard, "127.0.0.1") if self._wildcard else ""

    def learned(self, local_address: str, advertised: str) -> str:
        """What to advertise instead of ``advertised``, now that a connection has ``local_address`` on this
        side; empty: nothing better."""
        if not self._wildcard or self._advertise or not has_host(local_address):
            return ""
        url = with_host(self._wildcard, host_of(local_address))
        better = not advertised or (is_loopback(advertised) and not is_loopback(url))
        return url if better else ""

    def _best(self, urls: Sequence[str]) -> str:
        with_hosts = [url for url in urls if has_host(url)]
        for url in with_hosts:
            if is_wildcard(url):
                self._wildcard = url
                return ""
        outside = [url for url in with_hosts if not is_loopback(url)]
        return next(iter([*outside, *with_hosts, *urls]), "")


# --- URLs of the form scheme://host:port/path


def has_host(url: str) -> bool:
    """Whether it names a host: tcp, TLS and WebSocket do."""
    return url.partition("://")[0].rstrip("46") in ("tcp", "tls+tcp", "ws", "wss")


def host_of(url: str) -> str:
    """The host as it stands in the URL: IPv6 addresses in brackets."""
    return _split(url)[1]


def with_host(url: str, host: str) -> str:
    """The same scheme, port and path at another host; the scheme is the one for any family."""
    scheme, _, port, path = _split(url)
    return f"{scheme.rstrip('46')}://{host}{port}{path}"


def _split(url: str) -> tuple[str, str, str, str]:
    """Scheme, host, ``:port`` (may be empty: WebSocket has default ports) and ``/path``."""
    scheme, _, rest = url.partition("://")
    address, slash, path = rest.partition("/")
    host, bracket, port = address.partition("]") if address.startswith("[") else ("", "", address)
    if not bracket:
        host, colon, port = address.partition(":")
        port = colon + port
    return scheme, host + bracket, port, slash + path


def is_loopback(url: str) -> bool:
    host = host_of(url).strip("[]").lower()
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
