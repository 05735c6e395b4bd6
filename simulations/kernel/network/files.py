"""The files of simulated unix sockets, as programs see them through ``os``.

Code under simulation asks the real ``os`` about the file of a socket: its type, its owner, and to make it
private or remove it. Such calls get the file of the simulated host they run on, and the real disk is not
involved. The fence handles calls about other paths.
"""

from __future__ import annotations

import os
import stat
from asyncio import events
from collections.abc import Callable
from typing import Any, Final

from simulations.kernel.network.hosts import Host, SocketFile

DEVICE: Final = 0x51A1
"""No real file is on this device."""


def _stat(host: Host, path: str, file: SocketFile, **_options: Any) -> os.stat_result:
    links, size, time_s = 1, 0, 0
    numbers = (stat.S_IFSOCK | file.mode, file.inode, DEVICE, links, file.owner, file.group, size)
    return os.stat_result((*numbers, time_s, time_s, time_s))


def _chmod(host: Host, path: str, file: SocketFile, mode: int, **_options: Any) -> None:
    file.mode = mode


def _chown(host: Host, path: str, file: SocketFile, owner: int, group: int, **_options: Any) -> None:
    unchanged = -1
    file.owner = file.owner if owner == unchanged else owner
    file.group = file.group if group == unchanged else group


def _unlink(host: Host, path: str, file: SocketFile, **_options: Any) -> None:
    del host.unix[path]


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "stat": _stat,
    "lstat": _stat,
    "chmod": _chmod,
    "chown": _chown,
    "unlink": _unlink,
}
"""The functions by their names in ``os``."""


def shown(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """That function of ``os``, answering for sockets of the running process's host."""
    simulated = CALLS[name]

    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        host = getattr(events._get_running_loop(), "host", None)
        file = host.unix.get(path) if host is not None and isinstance(path, str) else None
        if file is None:
            return original(path, *arguments, **options)
        return simulated(host, path, file, *arguments, **options)

    return call
