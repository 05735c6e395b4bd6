"""One HTTP connection: bytes in, answers out, and bounds on both.

h11 reads and writes the messages. This module decides the rest:

```
            head in time              answer                    goodbye
  READING -------------> answering ------------> READING ...  -----------> LINGERING --> closed
     |                       |
     | late, garbled,        +-- stream ----> STREAMING -- not read in time, broker leaves --> closed
     | too large, a body
     +-----> LINGERING
```

* A head has `HEAD_S` from its first byte, and `HEAD_SIZE_MAX` bytes; a client that drips bytes gains no time.
  An idle connection is kept for `IDLE_S`.
* No request may have a body: nothing here takes one.
* `REQUESTS_A_TURN` requests are answered in a turn of the loop; the others of a pipeline wait for the next.
  Nothing more is read meanwhile, so that one read at most is kept.
* A client that does not read is not read from, and is cut off after `WRITE_S`. It misses frames of a stream;
  each frame is complete, so the next one that fits makes up for them.
* LINGERING: our answer is written and our direction closed. Further input is thrown away for `LINGER_S`,
  since closing a socket with unread input can destroy the answer on its way.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol, cast

import h11

from mesh.http.messages import SAFE, Request, Response, sentence

HEAD_SIZE_MAX: Final = 16_384
HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
"""Longer than the minute between two scrapes, so that Prometheus keeps its connection."""
WRITE_S: Final = 30.0
LINGER_S: Final = 2.0
REQUESTS_A_TURN: Final = 8
HEADERS_MAX: Final = 100


class State(Enum):
    """The states of a connection; the picture is in the module's docstring."""

    READING = "reading"
    STREAMING = "streaming"
    LINGERING = "lingering"
    CLOSED = "closed"


class Owner(Protocol):
    """The calls of a connection to its server."""

    def opened(self, connection: HttpConnection) -> Response | None:
        """Note a new connection. A returned response is sent at once, and ends the connection."""

    def answer(self, request: Request, connection: HttpConnection) -> Response: ...

    def closed(self, connection: HttpConnection) -> None: ...

    def count(self, status: HTTPStatus) -> None:
        """Note that an answer was sent."""


class HttpConnection(asyncio.Protocol):
    """One HTTP connection; the rules are in the module's docstring."""

    def __init__(self, owner: Owner) -> None:
        self.state = State.READING
        self.idle = True
        """True if no part of an unanswered request has come."""
        self.streams = False
        """True for an open page; its server sets this."""
        self.frames_missed = 0
        """Frames of a stream that were left out, since the client had not read the previous one."""
        self._owner = owner
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_SIZE_MAX)
        self._request: Request | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._full = False
        self._transport: asyncio.Transport

    # --- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.local = is_local(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
        refusal = self._owner.opened(self)
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._limit(HEAD_S)

    def data_received(self, data: bytes) -> None:
        if self.state is not State.READING:
            return  # the reader of a stream has nothing to say, and a goodbye is said already
        if self.idle:
            self.idle = False
            self._limit(HEAD_S)
        self._http.receive_data(data)
        if self._next is None:
            self._advance()

    def eof_received(self) -> bool:
        """A client that has sent everything may wait for an answer that is being written; closing writes
        it."""
        return False

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()
        self._limit(WRITE_S)

    def resume_writing(self) -> None:
        self._full = False
        self._transport.resume_reading()
        if self.state is State.STREAMING:
            self._unlimited()
        elif self.state is State.LINGERING:
            self._limit(LINGER_S)
        elif self.state is State.READING:
            self._limit(IDLE_S)
            self._later()

    def connection_lost(self, error: Exception | None) -> None:
        self.state = State.CLOSED
        self._unlimited()
        if self._next is not None:
            self._next.cancel()
        self._owner.closed(self)

    # --- what the server does with it

    @property
    def quiet(self) -> bool:
        """True if it waits for a request, or for the rest of one."""
        return self.state is State.READING and not self._full

    def push(self, frame: bytes) -> None:
        """Send one more frame of a stream, unless the client has yet to read the previous one."""
        if self.state is not State.STREAMING:
            return
        if self._full:
            self.frames_missed += 1
            return
        self._transport.write(self._http.send(h11.Data(data=frame)) or b"")

    def close(self) -> None:
        """Close after everything written is out; a stream is ended in order."""
        if self.state is State.STREAMING and not self._full:
            self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- requests

    def _advance(self) -> None:
        """Answer the requests that have come, in order, and read on when none is left."""
        self._next = None
        if self._answer_some():
            self._later()
        elif not self._full:
            self._transport.resume_reading()

    def _answer_some(self) -> bool:
        """Answer at most so many requests as one turn may; True if there may be more."""
        for _ in range(REQUESTS_A_TURN):
            if self.state is not State.READING or self._full:
                return False
            try:
                complete = self._read()
            except h11.RemoteProtocolError as error:
                self._refuse(sentence(_status_of(error), str(error) or "this is no request of HTTP/1.1"))
                return False
            if not complete:
                return False
            self._answer()
        return True

    def _later(self) -> None:
        if self._next is None:
            self._transport.pause_reading()
            self._next = self._loop.call_soon(self._advance)

    def _read(self) -> bool:
        """Take events until a request is complete. Raises `h11.RemoteProtocolError`."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request = self._checked(event)
            elif isinstance(event, h11.EndOfMessage):
                return True
            elif not isinstance(event, h11.Data):  # h11 needs more, or the client has closed
                return False

    def _checked(self, event: h11.Request) -> Request:
        if event.http_version not in (b"1.0", b"1.1"):
            version = event.http_version.decode("latin-1")
            raise h11.RemoteProtocolError(
                f"HTTP/{version} is not served; use HTTP/1.1",
                error_status_hint=HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
            )
        headers: dict[str, str] = {}
        for name, value in event.headers:
            headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            hint = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            raise h11.RemoteProtocolError("a request with a body is not served", error_status_hint=hint)
        if len(event.headers) > HEADERS_MAX:
            hint = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise h11.RemoteProtocolError(
                f"{len(event.headers)} header fields are above the limit of {HEADERS_MAX}",
                error_status_hint=hint,
            )
        path = event.target.decode("latin-1").partition("?")[0]
        return Request(event.method.decode("latin-1"), path, headers, self.local)

    def _answer(self) -> None:
        request, self._request = self._request, None
        assert request is not None
        response = self._owner.answer(request, self)
        if response.stream and request.method != "HEAD":
            self.state = State.STREAMING
            self._unlimited()
            self._send(response, whole=False)
            return
        self._send(response, whole=True, body=request.method != "HEAD")
        if self._http.our_state is h11.MUST_CLOSE:
            self._linger()
            return
        self._http.start_next_cycle()
        self.idle = not self._http.trailing_data[0]
        if not self._full:
            self._limit(IDLE_S if self.idle else HEAD_S)

    def _refuse(self, response: Response) -> None:
        """Answer with the reason, if the stream of messages still allows it, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(response, whole=True, close=True)
        self._linger()

    def _send(self, response: Response, *, whole: bool, body: bool = True, close: bool = False) -> None:
        self._owner.count(response.status)
        headers = [("Content-Type", response.type), *SAFE, *response.headers]
        if whole:
            headers.append(("Content-Length", str(len(response.body))))
        if close:
            headers.append(("Connection", "close"))
        head = h11.Response(
            status_code=response.status, reason=response.status.phrase.encode(), headers=headers
        )
        parts = [self._http.send(head)]
        if body and response.body:
            parts.append(self._http.send(h11.Data(data=response.body)))
        if whole:
            parts.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(part for part in parts if part))

    def _linger(self) -> None:
        self.state = State.LINGERING
        self._limit(LINGER_S)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # --- time

    def _limit(self, seconds: float) -> None:
        """Limit what is in progress to so many seconds; then the connection ends."""
        self._unlimited()
        self._timer = self._loop.call_later(seconds, self._late)

    def _unlimited(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.state is State.READING and not self.idle and not self._full:
            text = f"no whole request came within {HEAD_S:g} s"
            self._refuse(sentence(HTTPStatus.REQUEST_TIMEOUT, text))
        elif self._full or self.state is State.LINGERING:
            self._transport.abort()
        else:
            self._transport.close()


def is_local(peer: object, own: object) -> bool:
    """True if a connection came from this host: over loopback, or from the address it came to."""
    if not isinstance(peer, tuple) or not isinstance(own, tuple):
        return False
    host = str(peer[0])
    return host == "::1" or host.removeprefix("::ffff:").startswith("127.") or host == str(own[0])


def _status_of(error: h11.RemoteProtocolError) -> HTTPStatus:
    try:
        return HTTPStatus(error.error_status_hint)
    except ValueError:
        return HTTPStatus.BAD_REQUEST
