"""The sockets of one TCP listener: one for each address of its host, all on the same port.

The counterpart of `protocols.transports.tcp.serve_stream` without an event loop.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any

from protocols.transports.descriptors import backlog
from protocols.transports.tcp import PORT_TRIES, is_lacking, wildcards

Address = tuple[int, tuple[Any, ...]]
"""Address family, and the address that a socket is bound to."""


def bound_sockets(host: str, port: int, family: int) -> list[socket.socket]:
    """Return non-blocking listening sockets; an empty ``host`` means every interface.

    Addresses and families that this machine lacks are left out. It is an error if it lacks all of them.
    Raises OSError, and UnicodeError for an invalid host name.
    """
    addresses = _addresses(host, port, family)
    tries = 1 if port else PORT_TRIES
    while True:
        tries -= 1
        try:
            return _bound(addresses)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not tries:
                raise


def _addresses(host: str, port: int, family: int) -> list[Address]:
    if not host:
        every = wildcards(family)
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, (each, port)) for each in every]
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    return list(dict.fromkeys((int(each[0]), each[4]) for each in found))


def _bound(addresses: list[Address]) -> list[socket.socket]:
    """Bind all addresses to one port. For port 0 that is the port which the first address gets."""
    lacking = OSError("the host has no address")
    port = 0
    with contextlib.ExitStack() as undo:
        socks: list[socket.socket] = []
        for family, address in addresses:
            try:
                sock = listening_socket(family, (address[0], port or address[1], *address[2:]))
            except OSError as error:
                if not is_lacking(error):
                    raise
                lacking = error
            else:
                undo.callback(sock.close)
                socks.append(sock)
                port = sock.getsockname()[1]
        if not socks:
            raise lacking
        undo.pop_all()
        return socks


def listening_socket(family: int, address: Any) -> socket.socket:
    """Return a socket that is bound, listens and does not block. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has its own socket
        sock.bind(address)
        sock.listen(backlog())
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
