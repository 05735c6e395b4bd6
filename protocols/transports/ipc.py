"""``ipc://path``: a Unix stream socket.

Frames begin with the byte 01 (nanomsg aborts its process on any other).

The file belongs to its user alone (mode 0600) before the first connection can be made: it is bound, made
private, and only then listens. A file left behind by a process that died is found by dialling it: refused
means stale, and is removed, provided it is a socket; an answer means that the address is in use.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from contextlib import suppress
from functools import partial
from typing import Final

from protocols.errors import AddressError, AddressInUse, ConnectionRefused
from protocols.options import SocketOptions
from protocols.transports.base import Binding, Watcher
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.tcp import BACKLOG, system_message
from protocols.wire.framing import IPC_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

PATH_SIZE_MAX: Final = 107
"""``sun_path`` without its terminating zero."""
PERMISSIONS: Final = 0o600


def parse_path(address: str) -> str:
    """The path of an ipc URL. Raises `AddressError`."""
    size = len(os.fsencode(address))
    if not size:
        raise AddressError("ipc:// needs a path, as in ipc:///tmp/name.sock")
    if size > PATH_SIZE_MAX:
        raise AddressError(f"ipc://{address}: the path has {size} bytes, Unix sockets allow {PATH_SIZE_MAX}")
    if "\0" in address:
        raise AddressError(f"ipc://{address!r}: the path holds a zero byte")
    return address


def describe(address: object) -> str:
    """A Unix socket address as a URL; the dialling end has none."""
    if isinstance(address, bytes):
        address = os.fsdecode(address)
    return f"ipc://{address}" if isinstance(address, str) and address else ""


def tune(transport: asyncio.Transport, options: SocketOptions) -> None:
    """Unix sockets need nothing."""


def open_codec(greeting: Greeting, options: SocketOptions) -> SpCodec:
    return SpCodec(greeting, options.recv_size_max, IPC_LEAD)


KIND: Final = StreamKind(describe, tune, open_codec)


class IpcTransport:
    """See the module."""

    def check(self, address: str) -> None:
        parse_path(address)

    check_dialable = check

    def is_wildcard(self, address: str) -> bool:
        return False

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        path = parse_path(address)
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        try:
            await asyncio.get_running_loop().create_unix_connection(factory, path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionRefused(f"nobody listens at ipc://{path}") from error
        except OSError as error:
            raise AddressError(f"cannot reach ipc://{path}: {system_message(error)}") from error

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        path = parse_path(address)
        await remove_stale(path)
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_unix_server(factory, path, backlog=BACKLOG, start_serving=False)
            with suppress(FileNotFoundError):  # a simulated network has no file
                os.chmod(path, PERMISSIONS)
            await server.start_serving()
        except OSError as error:
            raise listen_error(path, error) from error
        return IpcBinding(server, path)


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
        raise listen_error(path, error) from error
    transport.abort()
    raise AddressInUse(f"ipc://{path} is in use by another program; choose another path or stop that program")


def listen_error(path: str, error: OSError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"ipc://{path} is in use by another program; choose another path")
    return AddressError(f"cannot listen at ipc://{path}: {system_message(error)}")
