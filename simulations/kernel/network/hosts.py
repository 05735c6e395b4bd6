"""Machines: their addresses, their listeners, and whether they have power.

A host has one address (10.0.0.n), which exists only in the simulation; 127.0.0.1 is the host itself. A unix
socket's file exists only here too (`simulations.kernel.network.files` shows it to programs), and stays behind
when its listener goes. An abstract name (a zero in front) has no file and disappears with its listener.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from simulations.kernel.network.links import Link
    from simulations.kernel.network.tcp import Half

BACKLOG: Final = 100
PORT_FIRST: Final = 32768
PORT_LAST: Final = 60999
LOOPBACK: Final = "127.0.0.1"
WILDCARD: Final = "0.0.0.0"

Address = tuple[str, int] | str
"""(host, port), or the path of a unix socket."""


class Owner(Protocol):
    """The process that holds sockets; compared by identity when it dies."""

    @property
    def name(self) -> str: ...

    @property
    def alive(self) -> bool: ...


@dataclass(slots=True)
class SocketFile:
    """The path to which a unix socket is bound."""

    listener: Listener | None
    """None: nobody listens any more."""
    inode: int
    mode: int = 0o755
    owner: int = 0
    group: int = 0


class Host:
    """A machine: an address, ports, unix socket paths, power."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.links: list[Link] = []
        """Links from here and to here that were ever used."""
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.unix: dict[str, SocketFile] = {}
        self._powered = True
        self._port = PORT_FIRST
        self._inode = 0

    @property
    def powered(self) -> bool:
        return self._powered

    @powered.setter
    def powered(self, powered: bool) -> None:
        self._powered = powered
        for link in self.links:
            link.ends_changed()

    def free_port(self) -> int:
        """A port without a listener; they are assigned in turn."""
        while True:
            self._port = PORT_FIRST if self._port >= PORT_LAST else self._port + 1
            if not any(port == self._port for _, port in self.listeners):
                return self._port

    def bind(self, listener: Listener, address: str, port: int) -> tuple[str, int]:
        """Take an address; port 0 is any free one. Raises OSError as bind(2) does."""
        if address not in (self.address, LOOPBACK, WILDCARD):
            raise OSError(
                errno.EADDRNOTAVAIL, f"{address} is not an address of host {self.name} ({self.address})"
            )
        port = port or self.free_port()
        for held_address, held_port in self.listeners:
            if held_port == port and (held_address == address or WILDCARD in (address, held_address)):
                raise OSError(errno.EADDRINUSE, f"address {(address, port)} is in use on host {self.name}")
        self.listeners[address, port] = listener
        return address, port

    def bind_unix(self, listener: Listener, path: str) -> None:
        """Take a path or an abstract name.

        asyncio removes a socket's file at that path, even one with a listener. An abstract name that has an
        owner is in use.
        """
        if path.startswith("\0") and path in self.unix:
            raise OSError(errno.EADDRINUSE, f"{path!r} is in use on host {self.name}")
        self._inode += 1
        self.unix[path] = SocketFile(listener, self._inode)

    def listener_at(self, destination: Address) -> Listener | None:
        if isinstance(destination, str):
            file = self.unix.get(destination)
            return None if file is None else file.listener
        return self.listeners.get(destination) or self.listeners.get((WILDCARD, destination[1]))


class Listener:
    """A listening socket. ``accept`` is called with the server's half when the third packet has arrived."""

    def __init__(
        self, host: Host, owner: Owner, accept: Callable[[Half], None], backlog: int = BACKLOG
    ) -> None:
        self.host = host
        self.owner = owner
        self.accept = accept
        self.backlog = backlog
        self.waiting = 0
        """Connections that the program has not taken yet."""
        self.listening = False
        self.address: Address = ""

    def bind(self, address: str, port: int) -> None:
        self.address = self.host.bind(self, address, port)

    def bind_unix(self, path: str) -> None:
        self.host.bind_unix(self, path)
        self.address = path

    def close(self) -> None:
        self.listening = False
        if not isinstance(self.address, str):
            if self.host.listeners.get(self.address) is self:
                del self.host.listeners[self.address]
        elif (file := self.host.unix.get(self.address)) is not None and file.listener is self:
            file.listener = None
            if self.address.startswith("\0"):
                del self.host.unix[self.address]
