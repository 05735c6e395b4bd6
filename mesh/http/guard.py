"""Decides who may read what a broker serves over HTTP. Pure.

A browser lets any web page send requests to any address, so a request has to pass these checks:

* **Method**: GET or HEAD. Nothing here changes anything.
* **Host**: an address, ``localhost``, this host's own name, or a name that the options list. A page of
  another site can make its own name point here (DNS rebinding); that name is refused. A request without a
  ``Host`` does not come from a browser.
* **Origin**: a page may call only the broker that it came from. If a browser sends no ``Origin``,
  ``Sec-Fetch-Site`` tells. A link from another site to the page itself is allowed.
* **Reader**: `HEALTH` is for everybody. The rest is for requests from this host; for all hosts if the options
  say so; or for those who give the password, if there is one.
"""

from __future__ import annotations

import binascii
import hmac
import ipaddress
from base64 import b64decode
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from mesh.http.messages import Request, Response, sentence
from mesh.listen import HttpListen
from mesh.printable import printable, shortened

METHODS: Final = ("GET", "HEAD")
HEALTH: Final = ("/livez", "/readyz")
SHOWN_MAX: Final = 80
ASK: Final = ("WWW-Authenticate", 'Basic realm="mangrove", charset="UTF-8"')


class Guard:
    """Checks requests against the options; ``own_name`` is this host's."""

    def __init__(self, listen: HttpListen, own_name: str) -> None:
        self._listen = listen
        bound = listen.target.rpartition(":")[0]
        self._names = frozenset(map(_plain, ("localhost", own_name, bound, *listen.hosts))) - {""}

    def refusal(self, request: Request) -> Response | None:
        """The answer to a request that is refused; None if it may be served."""
        if request.method not in METHODS:
            text = f"{_shown(request.method)} is not served; use GET"
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", ", ".join(METHODS)))
        host = request.headers.get("host", "")
        if host and not self._is_own(host):
            text = f"this broker is not called {_shown(host)}; use its address, or add the name to http_hosts"
            return sentence(HTTPStatus.MISDIRECTED_REQUEST, text)
        if _is_foreign(request, host):
            return sentence(HTTPStatus.FORBIDDEN, "pages of other sites may not read this broker")
        if request.path not in HEALTH:
            return self._reader(request)
        return None

    def _reader(self, request: Request) -> Response | None:
        password = self._listen.password
        if password is not None:
            if not hmac.compare_digest(_given(request), password.encode()):
                return sentence(HTTPStatus.UNAUTHORIZED, "this broker asks for a password", ASK)
            return None
        if request.local or self._listen.anybody:
            return None
        text = (
            "this broker shows other hosts its health only (/livez, /readyz); http_readers in its"
            " configuration lets anybody read, or asks for a password"
        )
        return sentence(HTTPStatus.FORBIDDEN, text)

    def _is_own(self, host: str) -> bool:
        """True if a ``Host``, with or without a port, is an address or one of our names."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return _plain(name) in self._names
        return True


def _is_foreign(request: Request, host: str) -> bool:
    """True if a page of another site sent the request."""
    origin = request.headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc.lower() != host.lower()
        except ValueError:
            return True
    site = request.headers.get("sec-fetch-site", "none")
    follows_link = request.headers.get("sec-fetch-mode") == "navigate" and (
        request.headers.get("sec-fetch-dest") == "document"
    )
    return site not in ("none", "same-origin") and not follows_link


def _given(request: Request) -> bytes:
    """The password of the request, from ``Basic`` (with any name) or ``Bearer``, in UTF-8; empty without
    one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")  # headers are bytes, read as Latin-1
    if scheme.lower() != "basic":
        return b""
    try:
        return b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def _plain(name: str) -> str:
    return name.lower().rstrip(".").strip("[]")


def _shown(text: str) -> str:
    return printable(shortened(text, SHOWN_MAX))
