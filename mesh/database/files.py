"""File operations that a database needs besides SQLite's.

A seam that lets the simulator provide its own disks. No method opens the database file itself: closing a
second descriptor of it would drop SQLite's lock (POSIX).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Protocol


class Files(Protocol):
    """Files by path. Disk errors are `OSError`."""

    def size(self, path: str) -> int | None:
        """Bytes in a file, None if it is not there. Raises `IsADirectoryError` for a folder."""

    def read(self, path: str) -> bytes:
        """The whole file; empty if it is not there."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""

    def rename(self, old: str, new: str) -> None:
        """The new name is on disk when this returns."""

    def sync_names(self, folder: str) -> None:
        """All names in a folder are on disk when this returns."""

    def remove(self, path: str) -> None:
        """No error if it is not there."""

    def free_bytes(self, folder: str) -> int:
        """Bytes that this user may still write to the disk of that folder."""

    def locked_by(self, path: str) -> int:
        """The process that holds SQLite's lock on a file, 0 if not known."""

    def identity(self, path: str) -> tuple[int, int]:
        """The device and inode of a file, which a copy of it does not share."""


class RealFiles:
    """The files of this machine."""

    def size(self, path: str) -> int | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found.st_size

    def read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def names(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)
        self.sync_names(os.path.dirname(new) or ".")

    def sync_names(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def free_bytes(self, folder: str) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def locked_by(self, path: str) -> int:
        """Reads Linux's table of locks: asking through a descriptor of the file would release this process's
        own lock."""
        try:
            found = os.stat(path)
            file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
            with open("/proc/locks") as locks:
                holders = [fields[4] for fields in map(str.split, locks) if fields[5:6] == [file]]
        except OSError:
            return 0
        return next((int(pid) for pid in holders if pid.isdigit()), 0)

    def identity(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_dev, found.st_ino
