"""This broker's address: the one URL at which the others are told to find it.

A URL set by the operator (``advertise``) always counts. Otherwise it is one of the URLs listened on. One that
other hosts can reach comes before loopback, loopback before ipc, and the first of several wins. A wildcard
bind names no address. The first link then decides, by the local address of its connection; a later link does
so only in place of loopback.
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
        """Takes the URLs listened on, as bound. Returns the one to advertise, empty while a wildcard's
        address is not known."""
        return self._advertise or self._best(urls)

    def on_loopback(self) -> str:
        """For a wildcard bind, an address that works at least on this host; otherwise empty."""
        return with_host(self._wildcard, "127.0.0.1") if self._wildcard else ""

    def learned(self, local_address: str, advertised: str) -> str:
        """The URL to advertise instead of ``advertised``, now that a connection has ``local_address`` on this
        side. Empty if there is no better one."""
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
    """True if a URL names a host, as tcp, TLS and WebSocket URLs do."""
    return url.partition("://")[0].rstrip("46") in ("tcp", "tls+tcp", "ws", "wss")


def host_of(url: str) -> str:
    """The host as written in the URL: IPv6 addresses in brackets."""
    return _split(url)[1]


def with_host(url: str, host: str) -> str:
    """The same scheme, port and path at another host. The scheme is the one for any address family."""
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
