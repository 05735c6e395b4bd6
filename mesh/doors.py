"""A broker's addresses: one shared listener each, behind it every socket that a dialer may want.

By the protocol number in the dialer's first eight bytes it gets: the brokers' sockets (`mesh.peering`), the
clients' REP (sessions and stock requests), or a stock subscriber's or publisher's counterpart. Others are
refused with a counter. What cannot be listened on ends the start with one sentence, which names the broker
that sits there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from typing import Any, Final

from mesh.environment import DEFAULT_TCP_URL, default_ipc_url, runtime_folder
from mesh.errors import ListenError
from protocols import Req0, SharedListener, Socket, SocketOptions
from protocols.errors import AddressError, AddressInUse, SPError

log = logging.getLogger("mesh")

PROBE_TIMEOUT_S: Final = 0.5
LOOPBACK: Final = ("127.", "localhost:", "[::1]:")


def default_urls(name: str | None) -> tuple[str, ...]:
    """Where a broker listens when it is told nothing: loopback, and an ipc socket of this user.

    Raises `ListenError` when the folder for the socket is not this user's own.
    """
    folder = runtime_folder()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        owner = os.stat(folder).st_uid
    except OSError as error:
        raise ListenError(
            f"cannot make {folder} for the ipc socket: {error.strerror}; name an address"
        ) from error
    if owner != os.getuid():
        raise ListenError(f"{folder} belongs to another user (uid {owner}); remove it or name an address")
    return DEFAULT_TCP_URL, default_ipc_url(name)


def beyond_loopback(url: str) -> bool:
    """True for addresses that other hosts may reach."""
    scheme, _, rest = url.partition("://")
    return scheme == "tcp" and not rest.startswith(LOOPBACK)


class Doors:
    """The listeners of one broker."""

    def __init__(self, sockets: Sequence[Socket], options: SocketOptions) -> None:
        self._sockets = sockets
        self._options = options
        self._listeners: list[SharedListener] = []

    @property
    def urls(self) -> list[str]:
        """As bound, in the order in which they were given."""
        return [listener.url for listener in self._listeners]

    async def open(self, urls: Sequence[str]) -> None:
        """Listen on all of them; raises `ListenError` and leaves none open."""
        for url in urls:
            listener = SharedListener(url, options=self._options)
            for socket in self._sockets:
                socket.listen(listener)
            try:
                await listener.start()
            except AddressInUse as error:
                await self.aclose()
                raise ListenError(f"cannot listen on {url}: {await who_listens(url)}") from error
            except (AddressError, OSError) as error:
                await self.aclose()
                raise ListenError(f"cannot listen on {url}: {_without(str(error), url)}") from error
            self._listeners.append(listener)

    def refused(self) -> dict[str, int]:
        """Connections that got no further, by reason, over all listeners."""
        totals: dict[str, int] = {}
        for listener in self._listeners:
            statistics = listener.statistics()
            for reason, count in (*statistics.refused.items(), ("bad frame", statistics.bad_frames)):
                if count:
                    totals[reason] = totals.get(reason, 0) + count
        return totals

    async def aclose(self) -> None:
        for listener in self._listeners:
            await listener.aclose()


def _without(sentence: str, url: str) -> str:
    """What the transport says of an address, which the sentence around it names already."""
    for opening in (f"cannot listen at {url}: ", f"{url} is "):
        if sentence.startswith(opening):
            return ("it is " if opening.endswith(" is ") else "") + sentence.removeprefix(opening)
    return sentence


async def who_listens(url: str) -> str:
    """Who holds an address, asked as any stock client would: a sentence's end."""
    try:
        async with Req0(options=SocketOptions(resend_s=None)) as socket:
            await socket.dial_once(url, timeout=PROBE_TIMEOUT_S)
            await socket.send(b"$sys.status")
            status: Any = json.loads(await socket.recv(timeout=PROBE_TIMEOUT_S))
            holder = f"broker {status['name']} of mesh {status['mesh']} (process {status['pid']})"
            return f"{holder} listens there; stop it or choose another address"
    except (SPError, OSError, ValueError, KeyError, TypeError):
        return "another program listens there; stop it or choose another address"
