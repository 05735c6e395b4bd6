"""The HTTP request and answer with which a WebSocket begins (RFC 6455 section 4, SP's WebSocket mapping).

```
dialer                                         listener
GET /path HTTP/1.1
Host: example.net:8080
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Key: <nonce>
Sec-WebSocket-Version: 13
Sec-WebSocket-Protocol: rep.sp.nanomsg.org
                                               HTTP/1.1 101 Switching Protocols
                                               Upgrade: websocket
                                               Connection: Upgrade
                                               Sec-WebSocket-Accept: <digest of the nonce>
                                               Sec-WebSocket-Protocol: rep.sp.nanomsg.org
```

The subprotocol takes the place of the SP header. It names the *listener's* protocol, so a req dialer asks for
``rep``. Each side keeps at most `HEAD_SIZE_MAX` bytes until the blank line. wsproto reads and writes the
heads; this module decides the rest:

* A dialer reads no further than the status line if that is not 101: nanomsg ends its refusals without a blank
  line.
* A listener refuses as NNG does, with the reason in the body: 404 for another path; 400 for no subprotocol,
  several or an unknown one; 426 for another WebSocket version; 400 for no WebSocket at all; 431 for a head
  that is too long.
* A browser would let any web page talk to a listener on its own machine. So a request with an ``Origin`` is
  refused with 403 unless that origin is listed, or is the ``Host`` that the page talks to. Any name can be
  made to point here (DNS rebinding), so that ``Host`` must be an address, the host that the listener was
  bound to, or listed. A request without an origin does not come from a browser; its ``Host`` may be
  anything, since a machine has many names.
* Neither side offers or accepts extensions: NNG and nanomsg have no compression.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError as WebSocketError

from protocols.errors import HandshakeError
from protocols.wire.handshake import PEER_OF, Greeting, ProtocolNumber, protocol_name

HEAD_SIZE_MAX: Final = 8192
"""Bytes of a request or an answer, including its blank line."""

SUFFIX: Final = ".sp.nanomsg.org"
SUBPROTOCOLS: Final[Mapping[int, str]] = {
    number: ("pair" if number is ProtocolNumber.PAIR0 else number.name.lower().removesuffix("0")) + SUFFIX
    for number in ProtocolNumber
}
"""The name of each protocol here: ``pair`` is version 0, ``pair1`` version 1, the others have no number."""

_NUMBERS: Final = {name: number for number, name in SUBPROTOCOLS.items()}
_NO_TARGET: Final = b"GET  "
"""NNG's first line for a URL without a path, which h11 cannot parse; NNG's own listener treats it as
``/``.
"""
_END: Final = b"\r\n\r\n"
_HINTS: Final = {
    400: "it serves another pattern, most likely",
    403: "it does not admit this origin or host",
    404: "nothing listens at this path there; NNG also wants the host in its URL and in ours to be the same",
    426: "it speaks another version of WebSocket",
}


@dataclass(frozen=True, slots=True)
class Route:
    """The listener at one path of a port.

    ``size_max`` bounds a message in bytes (0 = no limit). ``origins`` are those of web pages that may connect
    besides pages of the listener's own host; ``*`` stands for any. ``hosts`` are the names, without ports, by
    which pages of its own host may call it; addresses need not be listed.
    """

    greeting: Greeting
    size_max: int
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class DiallingUpgrade:
    """The dialer's side.

    ``authority`` is the host and port of its URL in ASCII, ``target`` path and query, ``size_max`` bounds a
    message in bytes (0 = no limit).
    """

    reply = b""

    def __init__(self, greeting: Greeting, authority: str, target: str, size_max: int) -> None:
        self.failure: HandshakeError | None = None
        self.peer = 0
        self.size_max = size_max
        self._wanted = _peer_of(greeting)
        self._upgrade = H11Handshake(ConnectionType.CLIENT)
        self._head = bytearray()
        subprotocol = SUBPROTOCOLS[self._wanted]
        self.request = self._upgrade.send(Request(host=authority, target=target, subprotocols=[subprotocol]))

    def receive(self, chunk: bytes | memoryview) -> bytes:
        """Take the answer's bytes; return those after it once ``peer`` is known."""
        before = len(self._head)
        self._head += chunk
        status = self._status()
        if status is None or self.failure is not None:
            return b""
        end = self._head.find(_END, max(before - len(_END) + 1, 0))
        if end < 0 or end + len(_END) > HEAD_SIZE_MAX:
            if len(self._head) > HEAD_SIZE_MAX:
                self._fail(f"the answer to our request has more than {HEAD_SIZE_MAX} bytes", "bad answer")
            return b""
        head, rest = bytes(self._head[: end + len(_END)]), bytes(self._head[end + len(_END) :])
        self._head.clear()
        self._read(head)
        return rest if self.peer else b""

    def progress(self) -> str:
        return f"{len(self._head)} bytes of an answer to our HTTP request"

    def _status(self) -> int | None:
        """The number in the status line, once it is there; anything but 101 is a failure."""
        if not self._head.startswith(b"HTTP/1."[: len(self._head)]):
            start = bytes(self._head[:8])
            sp = "; it speaks the plain protocol, dial it with tcp://" if start[:3] == b"\0SP" else ""
            self._fail(f"the first bytes of the answer, {start.hex(' ')}, are not HTTP{sp}", "not HTTP")
            return None
        line, end, _ = bytes(self._head[:HEAD_SIZE_MAX]).partition(b"\r\n")
        if not end:
            if len(line) == HEAD_SIZE_MAX:
                self._fail(f"the first line of the answer has more than {HEAD_SIZE_MAX} bytes", "bad answer")
            return None
        code = line[9:12]
        if not code.isdigit():
            self._fail(f"the answer begins with {_shown(line)}, which has no status", "bad answer")
            return None
        status = int(code)
        if status != HTTPStatus.SWITCHING_PROTOCOLS:
            hint = _HINTS.get(status)
            self._fail(
                f"the listener refused the WebSocket with {_shown(line[9:])}{f': {hint}' if hint else ''}",
                "websocket: refused",
            )
        return status

    def _read(self, head: bytes) -> None:
        wanted = SUBPROTOCOLS[self._wanted]
        try:
            self._upgrade.receive_data(head)
            answer = next(self._upgrade.events(), None)
        except (WebSocketError, ValueError) as error:
            self._fail(f"the answer to our request opens no WebSocket: {error}", "bad answer")
            return
        if not isinstance(answer, AcceptConnection):
            self._fail("the answer to our request opens no WebSocket", "bad answer")
        elif answer.subprotocol is None:
            self.failure = HandshakeError(
                f"the listener does not confirm {wanted}", reason="websocket: subprotocol"
            )
        else:
            self.peer = self._wanted

    def _fail(self, sentence: str, reason: str) -> None:
        words = reason if reason == "not HTTP" or ":" in reason else f"websocket: {reason}"
        self.failure = HandshakeError(sentence, reason=words)


class AcceptingUpgrade:
    """The listener's side. ``find`` returns the route of a path, None if there is none."""

    request = b""

    def __init__(self, find: Callable[[str], Route | None]) -> None:
        self.failure: HandshakeError | None = None
        self.peer = 0
        self.reply = b""
        """The answer; set together with ``peer``, and with most failures."""
        self.route: Route | None = None
        """The route that the request asked for; set together with ``peer``."""
        self._find = find
        self._upgrade = H11Handshake(ConnectionType.SERVER)
        self._head = bytearray()

    @property
    def size_max(self) -> int:
        assert self.route is not None, "known once the peer is"
        return self.route.size_max

    def receive(self, chunk: bytes | memoryview) -> bytes:
        """Take the request's bytes; return those after it once ``peer`` is known."""
        before = len(self._head)
        self._head += chunk
        if not 0x41 <= self._head[0] <= 0x5A:
            self.failure = HandshakeError(_not_http(bytes(self._head[:8])), reason="not HTTP")
            return b""
        end = self._head.find(_END, max(before - len(_END) + 1, 0))
        if end < 0 or end + len(_END) > HEAD_SIZE_MAX:
            if len(self._head) > HEAD_SIZE_MAX:
                sentence = f"the request has more than {HEAD_SIZE_MAX} bytes"
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence, "websocket: bad request")
            return b""
        head, rest = bytes(self._head[: end + len(_END)]), bytes(self._head[end + len(_END) :])
        self._head.clear()
        request = self._read(head)
        if request is None:
            return b""
        self._decide(request)
        return rest if self.peer else b""

    def progress(self) -> str:
        return f"{len(self._head)} bytes of an HTTP request"

    def _read(self, head: bytes) -> Request | None:
        if head.startswith(_NO_TARGET):
            head = b"GET / " + head[len(_NO_TARGET) :]
        first = head.partition(b"\r\n")[0]
        if not first.endswith(b" HTTP/1.1"):
            sentence = f"{_shown(first)} is not a request of HTTP/1.1"
            self._refuse(HTTPStatus.BAD_REQUEST, sentence, "not HTTP")
            return None
        status = HTTPStatus.BAD_REQUEST
        headers: tuple[str, ...] = ()
        try:
            self._upgrade.receive_data(head)
            request = next(self._upgrade.events(), None)
            if isinstance(request, Request):
                return request
            sentence = "the request is not whole"
        except WebSocketError as error:
            sentence = f"the request opens no WebSocket: {error}"
            hint = error.event_hint
            if isinstance(hint, RejectConnection) and hint.status_code == HTTPStatus.UPGRADE_REQUIRED:
                status, headers = HTTPStatus.UPGRADE_REQUIRED, ("Sec-WebSocket-Version: 13",)
                sentence = "the request is of another version of WebSocket than 13"
        except ValueError as error:  # wsproto cannot decode it
            sentence = f"the request has a header that cannot be read: {error}"
        version = status is HTTPStatus.UPGRADE_REQUIRED
        self._refuse(status, sentence, f"websocket: {'version' if version else 'bad request'}", headers)
        return None

    def _decide(self, request: Request) -> None:
        path = request.target.partition("?")[0] or "/"
        route = self._find(path)
        if route is None:
            self._refuse(HTTPStatus.NOT_FOUND, f"nothing listens at {_shown(path)}", "websocket: path")
            return
        origin = _header(request, b"origin")
        if origin is not None and not _is_listed(origin, route.origins):
            if not _is_of_host(origin, request.host):
                sentence = (
                    f"web pages of {_shown(origin)} may not connect to {_shown(request.host)}; "
                    "ws_origins does not list them"
                )
                self._refuse(HTTPStatus.FORBIDDEN, sentence, "websocket: origin")
                return
            if not _is_own_host(request.host, route.hosts):
                sentence = (
                    f"web pages may not call this listener {_shown(request.host)}, since any name can be "
                    "made to point here; ws_hosts does not list it"
                )
                self._refuse(HTTPStatus.FORBIDDEN, sentence, "websocket: host")
                return
        tokens = request.subprotocols
        own = _NUMBERS.get(tokens[0].lower()) if len(tokens) == 1 else None
        if own is None:
            names = ", ".join(map(_subprotocol, route.greeting.serves.values())) or "nothing"
            asked = _shown(", ".join(tokens)) if tokens else "no subprotocol"
            sentence = f"the request asks for {asked}; it must name one, and here is {names}"
            self._refuse(HTTPStatus.BAD_REQUEST, sentence, "websocket: subprotocol")
            return
        try:
            if route.greeting.answer(PEER_OF[own]) != own:
                raise HandshakeError(f"nothing here is {protocol_name(own)}", reason="wrong protocol")
        except HandshakeError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error), error.reason)
            return
        self.reply = self._upgrade.send(AcceptConnection(subprotocol=tokens[0]))
        self.route, self.peer = route, int(PEER_OF[own])

    def _refuse(self, status: HTTPStatus, sentence: str, reason: str, headers: tuple[str, ...] = ()) -> None:
        body = sentence.encode("ascii", "replace") + b"\n"
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            *headers,
            "Connection: close",
            "Content-Type: text/plain; charset=us-ascii",
            f"Content-Length: {len(body)}",
            "",
            "",
        )
        self.reply = "\r\n".join(lines).encode() + body
        self.failure = HandshakeError(sentence, reason=reason)


def _peer_of(greeting: Greeting) -> int:
    return next(iter(greeting.serves))


def _subprotocol(number: int) -> str:
    return SUBPROTOCOLS.get(number, protocol_name(number))


def _is_listed(origin: str, origins: tuple[str, ...]) -> bool:
    return "*" in origins or origin.lower() in (each.lower().rstrip("/") for each in origins)


def _is_of_host(origin: str, host: str) -> bool:
    """True if a page of ``origin`` belongs to the host that it talks to."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _is_own_host(host: str, hosts: tuple[str, ...]) -> bool:
    """True if ``host``, with or without a port, is an address or one of ``hosts``."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _plain(name) in map(_plain, hosts)
    return True


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _header(request: Request, name: bytes) -> str | None:
    return next((value.decode("latin-1") for each, value in request.extra_headers if each == name), None)


def _shown(what: bytes | str) -> str:
    """The peer's words made safe for our message: short, and harmless to a terminal."""
    text = what.decode("latin-1") if isinstance(what, bytes) else what
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _not_http(start: bytes) -> str:
    if start.startswith(b"\0SP"):
        return "the peer speaks the plain protocol and this address is for WebSocket; dial it with ws://"
    if start.startswith(b"\x16\x03"):
        return "the peer speaks TLS and this address is plain; dial ws://, or give the listener wss://"
    return f"the first bytes {start.hex(' ')} are not HTTP"
