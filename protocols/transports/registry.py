"""Which transport serves which scheme.

The table is global to the process, like the list of codecs of the standard library. A program registers its
transports once, before it opens sockets, and every socket can use them::

    register_transport("serial", SerialTransport())

A built-in transport with further imports (WebSocket) is loaded at its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from protocols.errors import AddressError
from protocols.transports.base import Transport, split_url
from protocols.transports.inproc import InprocTransport
from protocols.transports.ipc import IpcTransport
from protocols.transports.tcp import TcpTransport

_TRANSPORTS: Final[dict[str, Transport]] = {
    "tcp": TcpTransport("tcp"),
    "tcp4": TcpTransport("tcp4"),
    "tcp6": TcpTransport("tcp6"),
    "ipc": IpcTransport("ipc"),
    "unix": IpcTransport("unix"),
    "abstract": IpcTransport("abstract"),
    "inproc": InprocTransport(),
}

_LOADED_LATER: Final[dict[str, tuple[str, str]]] = {
    scheme: ("protocols.transports.tls", "TlsTransport") for scheme in ("tls+tcp", "tls+tcp4", "tls+tcp6")
} | {
    scheme: ("protocols.transports.websocket", "WebSocketTransport")
    for scheme in ("ws", "ws4", "ws6", "wss", "wss4", "wss6")
}
"""Scheme: the module and the class in it, which is called with the scheme."""


def register_transport(scheme: str, transport: Transport) -> None:
    """Serve ``scheme://`` URLs with ``transport``, in the whole process.

    Raises `ValueError` for a scheme that is taken or cannot be part of a URL.
    """
    if not scheme or not all(sign.isalnum() or sign in "+.-" for sign in scheme) or not scheme.isascii():
        raise ValueError(f"{scheme!r} cannot be a URL's scheme: letters, digits, + . - only")
    if scheme in _TRANSPORTS or scheme in _LOADED_LATER:
        raise ValueError(f"{scheme}:// has a transport already; choose another scheme")
    _TRANSPORTS[scheme] = transport


def find_transport(url: str) -> tuple[Transport, str]:
    """The transport of a URL and the address it understands. Raises `AddressError`."""
    scheme, address = split_url(url)
    transport = _TRANSPORTS.get(scheme)
    if transport is None and scheme in _LOADED_LATER:
        module, name = _LOADED_LATER[scheme]
        make: Callable[[str], Transport] = getattr(import_module(module), name)
        transport = _TRANSPORTS[scheme] = make(scheme)
    if transport is None:
        known = ", ".join(dict.fromkeys((*_TRANSPORTS, *_LOADED_LATER)))
        raise AddressError(f"{url!r}: no transport {scheme!r}; there are {known}")
    return transport, address


def check_url(url: str) -> str:
    """Return the URL if a transport understands it; nothing is resolved or opened. Raises `AddressError`."""
    transport, address = find_transport(url)
    transport.check(address)
    return url


def check_dialable(url: str) -> str:
    """Return the URL if it can be dialled: no wildcard, no port 0. Raises `AddressError`."""
    transport, address = find_transport(url)
    transport.check_dialable(address)
    return url


def is_wildcard(url: str) -> bool:
    """True if a listener's URL stands for every interface, so that peers cannot dial it as it is."""
    transport, address = find_transport(url)
    return transport.is_wildcard(address)
