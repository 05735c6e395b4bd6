"""Which transport serves which scheme.

A new transport is a class with the contract of `base.Transport` and a row here.
"""

from __future__ import annotations

from typing import Final

from protocols.errors import AddressError
from protocols.transports.base import Transport, split_url
from protocols.transports.inproc import InprocTransport, parse_name
from protocols.transports.ipc import IpcTransport, parse_path
from protocols.transports.tcp import TcpTransport, parse_address

TRANSPORTS: Final[dict[str, Transport]] = {
    "tcp": TcpTransport("tcp"),
    "tcp4": TcpTransport("tcp4"),
    "tcp6": TcpTransport("tcp6"),
    "ipc": IpcTransport(),
    "inproc": InprocTransport(),
}


def find_transport(url: str) -> tuple[Transport, str]:
    """The transport of a URL and the address it understands. Raises `AddressError`."""
    scheme, address = split_url(url)
    transport = TRANSPORTS.get(scheme)
    if transport is None:
        raise AddressError(f"{url!r}: no transport {scheme!r}; there are {', '.join(TRANSPORTS)}")
    return transport, address


def check_url(url: str) -> str:
    """The URL, if a transport understands it; nothing is resolved or opened. Raises `AddressError`."""
    _, address = find_transport(url)
    scheme, _ = split_url(url)
    if scheme == "ipc":
        parse_path(address)
    elif scheme == "inproc":
        parse_name(address)
    else:
        parse_address(scheme, address)
    return url


def check_dialable(url: str) -> str:
    """The URL, if it names something that can be dialled: no wildcard, no port 0. Raises `AddressError`."""
    check_url(url)
    scheme, address = split_url(url)
    if scheme.startswith("tcp"):
        target = parse_address(scheme, address)
        if not target.host or not target.port:
            raise AddressError(f"{url}: to dial needs a host and a port; wildcards and 0 are for listening")
    return url


def is_wildcard(url: str) -> bool:
    """Whether a listener's URL stands for every interface, so that peers cannot dial it as it is."""
    scheme, address = split_url(url)
    if not scheme.startswith("tcp"):
        return False
    return parse_address(scheme, address).host in ("", "0.0.0.0", "::")
