"""The HTTP listener and its connections, inside the broker's event loop.

At most `CONNECTIONS_MAX` connections are open. A further one takes the place of the oldest idle one; if all
are busy, it is told to come back later. At most `STREAMS_MAX` of them are open pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from mesh.errors import ListenError
from mesh.http.connection import HttpConnection
from mesh.http.messages import Request, Response, sentence
from mesh.listen import HttpListen
from protocols.errors import AddressError, AddressInUse
from protocols.transports.tcp import (
    FAMILIES,
    describe,
    parse_address,
    serve_stream,
    stop_accepting,
)

CONNECTIONS_MAX: Final = 64
STREAMS_MAX: Final = 16
RETRY: Final = ("Retry-After", "5")


class Viewers(Protocol):
    """Receives open pages; `mesh.http.live` implements it."""

    def add(self, push: Callable[[bytes], None]) -> bytes:
        """Add an open page; returns its first frames. Later ones go to ``push``."""

    def remove(self, push: Callable[[bytes], None]) -> None: ...


class HttpServer:
    """Serves one site. ``site`` answers requests; an answer with ``stream`` goes on to a viewer."""

    def __init__(self, listen: HttpListen, site: Callable[[Request], Response], viewers: Viewers) -> None:
        self.url = ""
        """The address where it serves; empty until it does."""
        self.answers: dict[int, int] = {}
        """Number of answers sent, by status."""
        self._listen = listen
        self._site = site
        self._viewers = viewers
        self._servers: list[asyncio.Server] = []
        self._connections: dict[HttpConnection, None] = {}
        self._streams = 0
        self._closing = False

    async def open(self) -> None:
        """Begin to serve. Raises `ListenError`."""
        target = self._listen.target
        try:
            address = parse_address("tcp", target)
            self._servers = await serve_stream(
                lambda: HttpConnection(self), address, FAMILIES["tcp"], f"tcp://{target}"
            )
        except AddressInUse as error:
            raise ListenError(
                f"cannot serve HTTP at {target}: another program listens there; stop it or choose another"
                " address"
            ) from error
        except (AddressError, OSError) as error:
            raise ListenError(f"cannot serve HTTP at {target}: {error}") from error
        self.url = describe(self._servers[0].sockets[0].getsockname(), "http")

    def aclose(self) -> None:
        """Stop serving; what is written already goes out."""
        self._closing = True
        for server in self._servers:
            stop_accepting(server)
        for connection in list(self._connections):
            connection.close()

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- calls of the connections

    def opened(self, connection: HttpConnection) -> Response | None:
        full = len(self._connections) >= CONNECTIONS_MAX
        if full:
            waiting = (each for each in self._connections if each.quiet)
            oldest = next(waiting, None)
            if oldest is not None:
                oldest.abort()
                del self._connections[oldest]
                full = False
        self._connections[connection] = None
        if not full:
            return None
        text = f"{CONNECTIONS_MAX} connections are open, and all are busy"
        return sentence(HTTPStatus.SERVICE_UNAVAILABLE, text, RETRY)

    def closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        if connection.streams:
            self._streams -= 1
            self._viewers.remove(connection.push)

    def answer(self, request: Request, connection: HttpConnection) -> Response:
        response = self._site(request)
        if not response.stream or request.method == "HEAD":
            return response
        if self._streams >= STREAMS_MAX:
            text = f"{STREAMS_MAX} pages are open, as many as this broker serves; close one"
            return sentence(HTTPStatus.SERVICE_UNAVAILABLE, text, RETRY)
        self._streams += 1
        connection.streams = True
        first = self._viewers.add(connection.push)
        return Response(response.status, first, response.type, response.headers, stream=True)

    def count(self, status: HTTPStatus) -> None:
        self.answers[status] = self.answers.get(status, 0) + 1
