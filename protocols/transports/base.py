"""The interface of transports, and the events that their connections report.

A transport turns a URL into `Connection` objects whose handshake is complete. It knows no sockets and no
patterns:

* A `Greeting` says which protocol number to send and which to accept.
* A `Watcher` (an endpoint) hears about each connection. First it gets ``opened``, when the stream is up. Then
  it gets either ``failed`` (no good header came), or ``ready`` and later ``ended``, each once. The last call
  is ``gone``.

A connection that is ready is *held*: it keeps early frames and reads no further until ``start(pipe)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from protocols.errors import AddressError, HandshakeError, RemoteProtocolError
from protocols.options import SocketOptions
from protocols.pipe import Connection
from protocols.wire.handshake import Greeting


class Watcher(Protocol):
    """An endpoint, as its connections see it. All calls are synchronous and come in this order."""

    def connection_opened(self, connection: Connection) -> None:
        """The stream is up; no header has been read."""

    def connection_ready(self, connection: Connection) -> None:
        """The handshake is complete; the connection is held until its ``start``."""

    def connection_moved(self, connection: Connection) -> None:
        """Called instead of ``ready``: the handshake showed that the connection belongs to another watcher,
        which gets ``ready`` now.
        """

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        """The stream ended before ``ready``; nothing follows."""

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        """The connection was ready and has ended. ``error`` names the rule that the peer broke, if any."""

    def connection_gone(self, connection: Connection) -> None:
        """After ``failed`` or ``ended``: the connection has no descriptor any more, and has written all its
        output.
        """


class Binding(Protocol):
    """An address with an open listener."""

    @property
    def url(self) -> str:
        """The address as bound: port 0 is resolved."""

    def close(self) -> None:
        """Accept no more; the address is free a loop turn later. Accepted connections stay open."""


class Transport(Protocol):
    """One way to reach a peer, registered under a scheme (`registry.register_transport`).

    An ``address`` is the part after ``scheme://``. All methods raise `AddressError` (the last two also
    `AddressInUse`, `ConnectionRefused`) with a sentence that names the URL.
    """

    def check(self, address: str) -> None:
        """Refuse an address that this transport can never use; nothing is resolved or opened."""

    def check_dialable(self, address: str) -> None:
        """Refuse also addresses that can only be listened on: wildcards, port 0."""

    def is_wildcard(self, address: str) -> bool:
        """True if a listener there stands for every interface, so that peers cannot dial its URL as it is."""

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        """Open one connection. Returns when the stream is up; ``watcher`` gets the further events.

        Each step may take ``options.handshake_timeout_s``; after that it raises `Timeout`.
        """

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding: ...


def check_string(url: object) -> str:
    """Return the URL if it is a string. Raises TypeError."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is a string like 'tcp://host:7000', not {url!r}")
    return url


def split_url(url: str) -> tuple[str, str]:
    """Split ``tcp://host:1`` into ``tcp`` and ``host:1``. Raises `AddressError`, and TypeError if it is no
    string.
    """
    scheme, separator, address = check_string(url).partition("://")
    if not separator:
        raise AddressError(f"{url!r} is not a URL like tcp://host:port, ipc://path or inproc://name")
    return scheme, address


def url_list(urls: str | Iterable[str]) -> list[str]:
    """One URL or several. Raises TypeError for anything else, such as bytes."""
    if isinstance(urls, str | bytes | bytearray) or not isinstance(urls, Iterable):
        return [check_string(urls)]
    return [check_string(url) for url in urls]
