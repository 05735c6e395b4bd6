"""What every transport is, and what its connections tell whom.

A transport turns a URL into `Connection` objects whose handshake is done. It knows no sockets and no
patterns:

* a `Greeting` says which protocol number to send and which to accept;
* a `Watcher` (an endpoint) hears what becomes of each connection: ``opened`` when the stream is up, then
  either ``failed`` (no good header came) or ``ready`` and, after that, ``ended`` once.

A connection that is ready is *held*: it keeps early frames and reads no further until ``start(pipe)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from protocols.errors import AddressError, HandshakeError, RemoteProtocolError
from protocols.options import SocketOptions
from protocols.pipe import Connection
from protocols.wire.handshake import PEER_OF, protocol_name


@dataclass(frozen=True, slots=True)
class Greeting:
    """Our side of the handshake.

    ``serves`` maps the protocol number of a peer to the number we answer with; it may change while a listener
    runs. With ``wait`` our header is sent only after the peer's was read, so that one listener can be of
    several protocols; without, ``serves`` has one entry and the header goes out at once (nanomsg allows 1 s).
    """

    serves: Mapping[int, int]
    wait: bool = False

    @classmethod
    def of(cls, own: int, peer: int) -> Greeting:
        return cls({peer: own})

    @property
    def own(self) -> int:
        """Our number, where there is only one."""
        assert not self.wait
        return next(iter(self.serves.values()))

    def answer(self, peer: int) -> int:
        """Our number for this peer. Raises `HandshakeError` if nothing here talks to it."""
        own = self.serves.get(peer)
        if own is not None:
            return own
        served = ", ".join(protocol_name(number) for number in self.serves) or "nothing"
        wanted = PEER_OF.get(peer)
        hint = f"; it looks for {protocol_name(wanted)}" if wanted is not None else ""
        raise HandshakeError(
            f"the peer is {protocol_name(peer)} and this end talks to {served}{hint}", reason="wrong protocol"
        )


class Watcher(Protocol):
    """An endpoint, as its connections see it. All calls are synchronous and come in this order."""

    def connection_opened(self, connection: Connection) -> None:
        """The stream is up, no header has been read."""

    def connection_ready(self, connection: Connection) -> None:
        """The handshake is done; the connection is held until its ``start``."""

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        """The stream ended before ``ready``; nothing follows."""

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        """It was ready and is gone; ``error`` says which rule the peer broke, if it did."""


class Binding(Protocol):
    """An address that is being listened on."""

    @property
    def url(self) -> str:
        """The address as bound: port 0 is resolved."""

    def close(self) -> None:
        """Accept no more. Connections that were accepted live on."""


class Transport(Protocol):
    """One way to reach a peer.

    Both methods raise `AddressError` (or `AddressInUse`, `ConnectionRefused`) with a sentence naming the URL.
    """

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        """Open one connection; returns when the stream is up, ``watcher`` hears the rest."""

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding: ...


def split_url(url: str) -> tuple[str, str]:
    """``tcp://host:1`` as (``tcp``, ``host:1``). Raises `AddressError`."""
    scheme, separator, address = url.partition("://")
    if not separator:
        raise AddressError(f"{url!r} is not a URL like tcp://host:port, ipc://path or inproc://name")
    return scheme, address
