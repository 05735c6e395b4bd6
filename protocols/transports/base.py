"""What every transport is, and what its connections tell whom.

A transport turns a URL into `Connection` objects whose handshake is done. It knows no sockets and no
patterns:

* a `Greeting` says which protocol number to send and which to accept;
* a `Watcher` (an endpoint) hears what becomes of each connection: ``opened`` when the stream is up, then
  either ``failed`` (no good header came) or ``ready`` and, after that, ``ended`` once; at last ``gone``.

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
        """The stream is up, no header has been read."""

    def connection_ready(self, connection: Connection) -> None:
        """The handshake is done; the connection is held until its ``start``."""

    def connection_moved(self, connection: Connection) -> None:
        """Instead of ``ready``: what it sent showed that it is another watcher's, which is told of it now."""

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        """The stream ended before ``ready``; nothing follows."""

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        """It was ready and has ended; ``error`` says which rule the peer broke, if it did."""

    def connection_gone(self, connection: Connection) -> None:
        """After ``failed`` or ``ended``: it holds no descriptor any more, and what was to be written is."""


class Binding(Protocol):
    """An address that is being listened on."""

    @property
    def url(self) -> str:
        """The address as bound: port 0 is resolved."""

    def close(self) -> None:
        """Accept no more; the address is free a loop turn later. Connections that were accepted live on."""


class Transport(Protocol):
    """One way to reach a peer, registered under a scheme (`registry.register_transport`).

    An ``address`` is what stands behind ``scheme://``. All methods raise `AddressError` (the last two also
    `AddressInUse`, `ConnectionRefused`) with a sentence naming the URL.
    """

    def check(self, address: str) -> None:
        """Refuse what can never be an address of this transport; nothing is resolved or opened."""

    def check_dialable(self, address: str) -> None:
        """Refuse also what can only be listened on: wildcards, port 0."""

    def is_wildcard(self, address: str) -> bool:
        """Whether a listener there stands for every interface, so that peers cannot dial it as it is."""

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        """Open one connection; returns when the stream is up, ``watcher`` hears the rest.

        Each step may take ``options.handshake_timeout_s``; then this raises `Timeout`.
        """

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding: ...


def check_string(url: object) -> str:
    """The URL, if it is a string. Raises TypeError."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is a string like 'tcp://host:7000', not {url!r}")
    return url


def split_url(url: str) -> tuple[str, str]:
    """``tcp://host:1`` as (``tcp``, ``host:1``). Raises `AddressError`; TypeError for what is no string."""
    scheme, separator, address = check_string(url).partition("://")
    if not separator:
        raise AddressError(f"{url!r} is not a URL like tcp://host:port, ipc://path or inproc://name")
    return scheme, address


def url_list(urls: str | Iterable[str]) -> list[str]:
    """One URL or several. Raises TypeError for anything else, such as bytes."""
    if isinstance(urls, str | bytes | bytearray) or not isinstance(urls, Iterable):
        return [check_string(urls)]
    return [check_string(url) for url in urls]
