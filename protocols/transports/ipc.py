"""``ipc://path`` and ``unix://path``: a Unix stream socket; ``abstract://name``: one without a file (Linux).

Frames begin with the byte 01 (nanomsg aborts its process on any other).

The file belongs to its user alone (``ipc_permissions``, mode 0600) before the first connection can be made:
it is bound, made private, and only then listens. A file left behind by a process that died is found by
dialling it: refused means stale, and is removed, provided it is a socket; an answer means that the address is
in use.

An abstract name is any bytes, written with %-escapes as in NNG; it goes when its listener does, and anybody
in the same network namespace may connect. Without a name a listener is given a free one by the kernel, which
its ``url`` tells. ``ipc://@name`` is ``abstract://name``, as in mangos.

The kernel knows who is at the other end: `Pipe.identity` has its process, user and group.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from protocols.errors import AddressError, AddressInUse, ConnectionRefused
from protocols.identity import PeerIdentity
from protocols.options import SocketOptions
from protocols.transports.base import Binding, Watcher
from protocols.transports.descriptors import backlog
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.tcp import begin_serving, system_message
from protocols.wire.framing import IPC_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

PATH_SIZE_MAX: Final = 107
"""``sun_path`` without its terminating zero, or without the zero in front of an abstract name."""

_CREDENTIALS: Final = Struct("3i")  # struct ucred: pid, uid, gid


def parse_path(address: str, scheme: str = "ipc") -> str:
    """What to bind or connect: a path, or an abstract name with a zero in front.

    Raises `AddressError`. An abstract name that is empty comes back as one zero.
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
    """Unix sockets need nothing."""


def identify(transport: asyncio.Transport) -> PeerIdentity | None:
    """Whom the kernel says we talk to; a simulated transport has no socket."""
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
                f"{self.scheme}://{address}: to dial needs a name; without one is for listening"
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
    """Bound to an abstract name that the kernel chose."""
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
        self._server.close()


# --- files


async def _listen_at_file(
    factory: partial[StreamConnection], path: str, options: SocketOptions
) -> IpcBinding:
    await remove_stale(path)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_unix_server(factory, path, backlog=backlog(), start_serving=False)
    except OSError as error:
        raise listen_error(f"ipc://{path}", error) from error
    binding = IpcBinding(server, path)
    try:
        with suppress(FileNotFoundError):  # a simulated network has no file
            make_private(path, options)
        await server.start_serving()
    except OSError as error:
        binding.close()
        raise listen_error(f"ipc://{path}", error) from error
    except BaseException:  # cancelled: nothing stays bound
        binding.close()
        raise
    return binding


def make_private(path: str, options: SocketOptions) -> None:
    """Give the file its mode, then its owner and group: at no time may more connect than in the end."""
    os.chmod(path, options.ipc_permissions)
    if options.ipc_owner is not None or options.ipc_group is not None:
        unchanged = -1
        os.chown(
            path,
            unchanged if options.ipc_owner is None else options.ipc_owner,
            unchanged if options.ipc_group is None else options.ipc_group,
        )


class IpcBinding:
    """A bound path. Closing removes the file, unless somebody else has put another there."""

    def __init__(self, server: asyncio.AbstractServer, path: str) -> None:
        self._server = server
        self._path = path
        self._identity = file_identity(path)
        self.url = f"ipc://{path}"

    def close(self) -> None:
        self._server.close()
        if self._identity is not None and file_identity(self._path) == self._identity:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        self._identity = None


def file_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def remove_stale(path: str) -> None:
    """Make room for a listener. Raises `AddressInUse` if somebody answers, `AddressError` for no socket."""
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, path)
    except ConnectionRefusedError:
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise AddressError(
                    f"ipc://{path} is a file that is not a socket and was left alone; choose another path"
                ) from None
            os.unlink(path)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        raise listen_error(f"ipc://{path}", error) from error
    transport.abort()
    raise AddressInUse(f"ipc://{path} is in use by another program; choose another path or stop that program")


def listen_error(url: str, error: OSError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"{url} is in use by another program; choose another address")
    return AddressError(f"cannot listen at {url}: {system_message(error)}")
