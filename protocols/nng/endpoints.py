"""Dialers and listeners of a socket over NNG, and the peers that connected through them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

from protocols.errors import Closed, Timeout
from protocols.nng.binding import pynng
from protocols.options import DEFAULT, TimeLimit, seconds
from protocols.waiting import Waiters, deadline_of

PORT_0: Final = re.compile(r"^([\w+.-]+://[^/]*):0(?=/|$)")


class EndpointOwner(Protocol):
    """A socket, as its dialers see it."""

    closed: bool
    peer_waiters: Waiters

    @property
    def pipes(self) -> list[NngPipe]: ...


class NngPipe:
    """One attached peer, as far as NNG tells; a snapshot taken when it attached."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.id: int = pipe.id
        self.peer: int = asked(lambda: pipe.peer, 0)
        self.dialer_id: int = asked(lambda: pipe.dialer.id, -1)
        self.url: str = asked(lambda: pipe.url, "")
        self.local_address: str = asked(lambda: str(pipe.local_address), "")
        self.remote_address: str = asked(lambda: str(pipe.remote_address), "")
        self.gone = not self.url
        """The pipe had ended before we asked: NNG answers nothing about such a pipe."""
        self.closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} from {self.remote_address}>"

    def close(self, reason: str = "") -> None:
        """Drop this peer. If one of our dialers made the connection, it dials again."""
        try:
            self._pipe.close()
        except pynng.NNGException:
            pass  # it left by itself


def asked(ask: Callable[[], Any], otherwise: Any) -> Any:
    """Ask NNG about a pipe, which may be gone before the answer."""
    try:
        return ask()
    except (pynng.NNGException, LookupError, TypeError):
        return otherwise


class NngEndpoint:
    """A dialer or listener of NNG."""

    def __init__(self, socket: EndpointOwner, endpoint: Any, url: str) -> None:
        self.url = url
        """The URL as bound, with port 0 resolved."""
        self._socket = socket
        self._endpoint = endpoint
        self._id: int = endpoint.id

    def _close(self) -> None:
        if self._endpoint is not None:
            endpoint, self._endpoint = self._endpoint, None
            endpoint.close()


class NngListener(NngEndpoint):
    """Accepts peers."""

    def __init__(self, socket: EndpointOwner, endpoint: Any, url: str) -> None:
        super().__init__(socket, endpoint, bound_url(endpoint, url))

    async def aclose(self) -> None:
        """Accept no more. NNG also drops the pipes that this listener accepted."""
        self._close()


class NngDialer(NngEndpoint):
    """Dials until it is closed. NNG does not tell why an attempt failed, so ``last_error`` is always
    empty.
    """

    last_error: Final = ""

    @property
    def pipe(self) -> NngPipe | None:
        """The pipe to the peer, or None."""
        return next((pipe for pipe in self._socket.pipes if pipe.dialer_id == self._id), None)

    async def wait_connected(self, timeout: TimeLimit = DEFAULT) -> NngPipe:
        """Return the pipe as soon as there is one, by default without a time limit. Raises `Timeout`,
        `Closed`.
        """
        limit_s = seconds(timeout, None)
        deadline = deadline_of(limit_s)
        while (pipe := self.pipe) is None:
            if self._endpoint is None or self._socket.closed:
                raise Closed(f"nothing dials {self.url}")
            if not await self._socket.peer_waiters.wait(deadline):
                raise Timeout(f"no connection to {self.url} within {limit_s:g} s")
        return pipe

    async def aclose(self) -> None:
        """Stop dialling. NNG also drops the pipe."""
        self._close()
        self._socket.peer_waiters.wake_all()


def bound_url(listener: Any, url: str) -> str:
    """The URL as bound. NNG resolves port 0 in the URLs of its tcp listeners, but not of its ws ones."""
    bound: str = asked(lambda: listener.url, url)
    port: str = asked(lambda: str(listener.local_address), "").rpartition(":")[2]
    return PORT_0.sub(lambda match: f"{match[1]}:{port}", bound)
