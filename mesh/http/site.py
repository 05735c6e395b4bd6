"""The paths that are served: health, metrics, status, and the page with its files.

A costly answer is made at most once in `AGE_S` and shared by all who ask within it. So a hundred scrapes a
second cost about as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from mesh.http import health
from mesh.http.guard import Guard
from mesh.http.messages import Request, Response, sentence
from mesh.http.metrics import CONTENT_TYPE, Metrics
from mesh.http.source import Source
from mesh.printable import printable, shortened

AGE_S: Final = 1.0
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
PAGE_POLICY: Final = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)
FILES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
}
PATHS: Final = ("/", "/livez", "/readyz", "/metrics", "/status.json", "/live")


class Shared:
    """An answer that is made anew at most once in `AGE_S`."""

    def __init__(self, make: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self.made = 0
        """Number of times it was made."""
        self._make = make
        self._clock = clock
        self._latest = b""
        self._until = float("-inf")

    def get(self) -> bytes:
        now = self._clock()
        if now >= self._until:
            self._latest = self._make()
            self._until = now + AGE_S
            self.made += 1
        return self._latest


class Site:
    """The site of one broker. ``answers`` counts those over HTTP, by status."""

    def __init__(
        self,
        source: Source,
        guard: Guard,
        *,
        answers: Callable[[], Mapping[int, int]],
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._guard = guard
        metrics = Metrics()
        self.metrics = Shared(lambda: metrics.text(source.figures(), answers()), clock)
        self.status = Shared(source.status, clock)
        folder = files("mesh.http") / "static"
        self._files = {path: (folder / name).read_bytes() for path, (name, _) in FILES.items()}

    def answer(self, request: Request) -> Response:
        """The answer to one request."""
        refusal = self._guard.refusal(request)
        if refusal is not None:
            return refusal
        source = self._source
        match request.path:
            case "/livez":
                return health.live(source.name)
            case "/readyz":
                return health.ready(source.name, source.state, source.waits_for)
            case "/metrics":
                return Response(HTTPStatus.OK, self.metrics.get(), CONTENT_TYPE)
            case "/status.json":
                return Response(HTTPStatus.OK, self.status.get(), JSON)
            case "/live" if EVENTS not in request.headers.get("accept", ""):
                # Pages of other sites could load it as an image or a script, which would hold a connection.
                return sentence(HTTPStatus.NOT_ACCEPTABLE, f"/live serves only clients that accept {EVENTS}")
            case "/live":
                return Response(HTTPStatus.OK, type=EVENTS, stream=True)
            case path if path in self._files:
                return Response(HTTPStatus.OK, self._files[path], FILES[path][1], (PAGE_POLICY,))
        shown = printable(shortened(request.path, 80))
        return sentence(HTTPStatus.NOT_FOUND, f"there is no {shown}; there are {' '.join(PATHS)}")
