"""The path of a Unix socket, for one listener at a time.

``bind`` creates the file and fails if there is one, so two programs cannot both create it. The file of a dead
program stays behind, and another program may take it over. To do so it holds the lock ``PATH.lock``, from
before it checks the file until it listens. Without the lock, one program could find a file dead, a second one
take it over, and the first one remove the file of the second. A fresh path needs the lock, too, since a file
looks dead between ``bind`` and ``listen``. The lock's own file exists for these microseconds only.

A file is dead if it is a socket and refuses a connection. A program that ignores the lock is safe except for
an instant: the file is removed only if it is still the one that was found dead.

Nothing here waits: connecting to a Unix socket succeeds or fails at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from protocols.errors import AddressError, AddressInUse
from protocols.options import SocketOptions
from protocols.transports.descriptors import backlog

FileIdentity = tuple[int, int, int]
"""Device, inode and creation time: file systems give a new file the inode of a removed one."""


def listening_socket(path: str, options: SocketOptions) -> tuple[socket.socket, FileIdentity]:
    """A socket that listens at ``path``, and the identity of its file.

    The file has its mode and owner before any peer can connect.

    Raises:
        AddressInUse: another program listens there, or is about to.
        AddressError: there is a file that is not a socket.
        OSError: any other error of the system.
    """
    with locked(path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _bind(sock, path)
            identity = file_identity(path)
            assert identity is not None, "it was bound in this call"
            try:
                make_private(path, options)
                sock.listen(backlog())
                sock.setblocking(False)
            except BaseException:
                remove(path, identity)
                raise
        except BaseException:
            sock.close()
            raise
    return sock, identity


def make_private(path: str, options: SocketOptions) -> None:
    """Set the file's mode, then its owner and group: at no time may more users connect than in the end."""
    os.chmod(path, options.ipc_permissions)
    if options.ipc_owner is not None or options.ipc_group is not None:
        unchanged = -1
        os.chown(
            path,
            unchanged if options.ipc_owner is None else options.ipc_owner,
            unchanged if options.ipc_group is None else options.ipc_group,
        )


def file_identity(path: str) -> FileIdentity | None:
    """The identity of the file that has this name now; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def remove(path: str, identity: FileIdentity) -> None:
    """Remove the file, unless another one has taken its place."""
    if file_identity(path) == identity:
        with suppress(FileNotFoundError):
            os.unlink(path)


def in_use(path: str) -> AddressInUse:
    return AddressInUse(
        f"ipc://{path} is in use by another program; choose another path or stop that program"
    )


def _bind(sock: socket.socket, path: str) -> None:
    try:
        sock.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    else:
        return
    found = file_identity(path)
    if found is not None:
        if not is_dead(path):
            raise in_use(path)
        remove(path, found)
    try:
        sock.bind(path)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise in_use(path) from error
        raise


def is_dead(path: str) -> bool:
    """True if no program listens at this file. Raises `AddressError` for a file that is no socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(FileNotFoundError):  # removed in the meantime
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    raise AddressError(
                        f"ipc://{path} is a file that is not a socket and was left alone; choose another path"
                    ) from None
            return True
        except BlockingIOError:
            return False  # its backlog is full
    return False


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a path. Raises `AddressInUse` if another program holds it and is about to listen."""
    lock = f"{path}.lock"
    descriptor = _lock(lock, path)
    try:
        yield
    finally:
        with suppress(OSError):
            if os.fstat(descriptor).st_size == 0:  # a file with content is no lock, and is left alone
                os.unlink(lock)
        os.close(descriptor)


def _lock(lock: str, path: str) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, lock):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise in_use(path) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its former holder removed this file after we had opened it


def _is_named(descriptor: int, path: str) -> bool:
    """True if the open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
