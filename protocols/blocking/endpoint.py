"""The common part of dialers and listeners of blocking sockets: their socket, and how a stream is made."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from protocols.blocking.connecting import Extra
from protocols.blocking.io_thread import IoThread
from protocols.blocking.lock import BlockingLock
from protocols.blocking.log_thread import LogThread
from protocols.blocking.stream import Stream
from protocols.identity import PeerIdentity
from protocols.options import SocketOptions
from protocols.pipe import Pipe
from protocols.transports import ipc, tcp
from protocols.transports.base import split_url
from protocols.wire.codec import Codec
from protocols.wire.handshake import Greeting

T = TypeVar("T")


class EndpointOwner(Protocol):
    """A blocking socket, as its endpoints see it."""

    lock: BlockingLock
    log: LogThread
    greeting: Greeting
    options: SocketOptions
    rng: random.Random

    @property
    def io(self) -> IoThread: ...

    def forget(self, endpoint: object) -> None:
        """A dialer or listener was closed explicitly."""

    def attach(self, stream: Stream, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe of a stream. Raises `PipeRefused`; the endpoint then closes it."""

    def wait(self, look: Callable[[], T | None], limit_s: float | None) -> T | None:
        """Return the first value of ``look`` that is not None, or None when the time is up. Call it with the
        lock.
        """


def lacking(error: OSError | RuntimeError) -> str:
    """The system's message when it had no descriptor or thread left."""
    return tcp.system_message(error) if isinstance(error, OSError) else str(error)


def stream_of(
    owner: EndpointOwner,
    url: str,
    sock: socket.socket,
    codec: Codec,
    opened: Callable[[Stream], None] | None,
) -> Stream:
    """Make a stream of a connected socket, with the addresses of both ends."""
    scheme = split_url(url)[0].rstrip("46")
    over_ip = sock.family in (socket.AF_INET, socket.AF_INET6)
    local = remote = ""
    identity: PeerIdentity | None = None
    if scheme == "inproc":
        local = remote = url
    else:
        with contextlib.suppress(OSError):  # the peer may be gone
            here, there = sock.getsockname(), sock.getpeername()
            local = tcp.describe(here, scheme) if over_ip else ipc.describe(here)
            remote = tcp.describe(there, scheme) if over_ip else ipc.describe(there)
        if not over_ip:
            identity = ipc.identify(cast(Any, Extra(sock)))
    return Stream(
        owner.io,
        sock,
        codec,
        local_address=local,
        remote_address=remote,
        identity=identity,
        opened=opened,
    )
