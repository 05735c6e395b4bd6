"""``ipc://path`` and ``unix://path``: a Unix stream socket; ``abstract://name``: one without a file (Linux).

Frames begin with the byte 01 (nanomsg aborts its process on any other).

The file belongs to its user alone (``ipc_permissions``, mode 0600) before the first connection can be made. A
path has one listener; the file of a dead process is taken over (`protocols.transports.unix_path`).

An abstract name is any bytes, written with %-escapes as in NNG. It disappears with its listener, and any
process in the same network namespace may connect. A listener without a name gets a free one from the kernel;
its ``url`` shows the name. ``ipc://@name`` is ``abstract://name``, as in mangos.

The kernel knows the other end: `Pipe.identity` has its process, user and group.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from functools import partial
from struct import Struct
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from protocols.errors import AddressError, AddressInUse, ConnectionRefused
from protocols.identity import PeerIdentity
from protocols.options import SocketOptions
from protocols.transports.base import Binding, Watcher
from protocols.transports.descriptors import backlog
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.tcp import begin_serving, stop_accepting, system_message
from protocols.transports.unix_path import FileIdentity, file_identity, listening_socket, make_private, remove
from protocols.wire.framing import IPC_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

PATH_SIZE_MAX: Final = 107
"""The size of ``sun_path`` without its terminating zero, or without the zero in front of an abstract name."""

_CREDENTIALS: Final = Struct("3i")  # struct ucred: pid, uid, gid


def parse_path(address: str, scheme: str = "ipc") -> str:
    """The address to bind or connect: a path, or an abstract name with a zero in front.

    Raises `AddressError`. An empty abstract name is returned as one zero.
    """
    encoded = _encoded(address, scheme)
    if scheme == "abstract":
        return _abstract(unquote_to_bytes(encoded), f"abstract://{address}")
    if address.startswith("@"):
        return _abstract(encoded[1:], f"{scheme}://{address}")
    size = len(encoded)
    if not size:
        raise AddressError(f"{scheme}:// needs a path, as in {scheme}:///tmp/name.sock")
    if size > PATH_SIZE_MAX:
        raise AddressError(
            f"{scheme}://{address}: the path has {size} bytes, Unix sockets allow {PATH_SIZE_MAX}"
        )
    if "\0" in address:
        raise AddressError(f"{scheme}://{address!r}: the path holds a zero byte")
    return address


def _encoded(address: str, scheme: str) -> bytes:
    try:
        return os.fsencode(address)
    except UnicodeEncodeError:
        raise AddressError(f"{scheme}://{address!r} cannot be written in UTF-8") from None


def _abstract(name: bytes, url: str) -> str:
    if sys.platform != "linux":
        raise AddressError(f"{url}: abstract names exist on Linux only; use ipc:// with a path")
    if len(name) > PATH_SIZE_MAX:
        raise AddressError(f"{url}: the name has {len(name)} bytes, Unix sockets allow {PATH_SIZE_MAX}")
    return "\0" + os.fsdecode(name)


def describe(address: object) -> str:
    """A Unix socket address as a URL; the dialling end has none."""
    if not isinstance(address, str | bytes) or not address:
        return ""
    path = os.fsdecode(address)
    return f"abstract://{quote(os.fsencode(path[1:]))}" if path[0] == "\0" else f"ipc://{path}"


def tune(transport: asyncio.Transport, options: SocketOptions) -> None:
    """Do nothing: Unix sockets need no options."""


def identify(transport: asyncio.Transport) -> PeerIdentity | None:
    """The peer that the kernel names; a simulated transport has no socket."""
    sock = transport.get_extra_info("socket")
    option = getattr(socket, "SO_PEERCRED", None)  # Linux
    if sock is None or option is None:
        return None
    try:
        pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    except OSError:
        return None  # the peer is gone already; connection_lost follows
    return PeerIdentity(pid=pid, uid=uid, gid=gid)


def open_codec(greeting: Greeting, options: SocketOptions) -> SpCodec:
    return SpCodec(greeting, options.recv_size_max, IPC_LEAD)


KIND: Final = StreamKind(describe, tune, open_codec, identify)


class IpcTransport:
    """See the module; one instance per scheme."""

    def __init__(self, scheme: str = "ipc") -> None:
        self.scheme = scheme

    def check(self, address: str) -> None:
        parse_path(address, self.scheme)

    def check_dialable(self, address: str) -> None:
        if parse_path(address, self.scheme) == "\0":
            raise AddressError(
                f"{self.scheme}://{address}: dialling needs a name; an empty one is for listening"
            )

    def is_wildcard(self, address: str) -> bool:
        return False

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        path = parse_path(address, self.scheme)
        url = f"{self.scheme}://{address}"
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        try:
            await asyncio.get_running_loop().create_unix_connection(factory, path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionRefused(f"nobody listens at {url}") from error
        except OSError as error:
            raise AddressError(f"cannot reach {url}: {system_message(error)}") from error

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        path = parse_path(address, self.scheme)
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        if path[0] == "\0":
            return await _listen_abstract(factory, path, f"{self.scheme}://{address}")
        return await _listen_at_file(factory, path, options)


# --- names without a file


async def _listen_abstract(factory: partial[StreamConnection], path: str, url: str) -> AbstractBinding:
    loop = asyncio.get_running_loop()
    try:
        if path != "\0":
            server = await loop.create_unix_server(factory, path, backlog=backlog(), start_serving=False)
        else:
            server = await loop.create_unix_server(
                factory, sock=_given_a_name(), backlog=backlog(), start_serving=False
            )
            path = server.sockets[0].getsockname()
        await begin_serving(server)
    except OSError as error:
        raise listen_error(url, error) from error
    return AbstractBinding(server, describe(path))


def _given_a_name() -> socket.socket:
    """Bind to an abstract name that the kernel chooses."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind("")
    except OSError:
        sock.close()
        raise
    return sock


class AbstractBinding:
    """A bound name; the kernel forgets it with the socket."""

    def __init__(self, server: asyncio.AbstractServer, url: str) -> None:
        self._server = server
        self.url = url

    def close(self) -> None:
        stop_accepting(self._server)


# --- files


async def _listen_at_file(
    factory: partial[StreamConnection], path: str, options: SocketOptions
) -> IpcBinding:
    loop = asyncio.get_running_loop()
    try:
        sock, identity = _bound(loop, path, options)
        binding = IpcBinding(path, identity)
        try:
            binding.server = await loop.create_unix_server(
                factory, sock=sock, backlog=backlog(), start_serving=False
            )
            await binding.server.start_serving()
        except BaseException:  # cancelled or failed: nothing stays bound
            binding.close()
            sock.close()
            raise
    except AddressError:
        raise
    except OSError as error:
        raise listen_error(f"ipc://{path}", error) from error
    return binding


def _bound(loop: asyncio.AbstractEventLoop, path: str, options: SocketOptions) -> tuple[Any, FileIdentity]:
    """A socket for ``create_unix_server(sock=)``, and the identity of its file.

    A loop with a simulated network binds there, in one step that nothing can interrupt.
    """
    bind_unix = getattr(loop, "bind_unix", None)
    if bind_unix is None:
        return listening_socket(path, options)
    sock = bind_unix(path)
    make_private(path, options)
    identity = file_identity(path)
    assert identity is not None, "it was bound in this call"
    return sock, identity


class IpcBinding:
    """A bound path. Closing removes the file, unless another program has put its own file there."""

    def __init__(self, path: str, identity: FileIdentity) -> None:
        self.url = f"ipc://{path}"
        self.server: asyncio.AbstractServer | None = None
        self._path = path
        self._identity: FileIdentity | None = identity

    def close(self) -> None:
        if self._identity is not None:
            remove(self._path, self._identity)  # while we listen, or another program could take it over first
            self._identity = None
        if self.server is not None:
            stop_accepting(self.server)


def listen_error(url: str, error: OSError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"{url} is in use by another program; choose another address")
    return AddressError(f"cannot listen at {url}: {system_message(error)}")
