"""A broker as its HTTP site sees it, and how the site is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from mesh.broker.inspection import Inspection
from mesh.broker.report import Report
from mesh.environment import Environment
from mesh.listen import HttpListen
from mesh.wire.session_frames import Status

if TYPE_CHECKING:
    from mesh.http.live import Live
    from mesh.http.server import HttpServer
    from mesh.http.source import Answered, Figures


class Surveying(Protocol):
    """The part of the exchange that asks all brokers."""

    def survey(
        self,
        topic: str,
        body: bytes,
        timeout_s: float,
        callback: Callable[[int, bytes], None],
        over: Callable[[Sequence[str]], None],
        now: float,
    ) -> None: ...


class HttpSource:
    """Implements `mesh.http.source.Source`."""

    def __init__(self, inspection: Inspection, report: Report, exchange: Surveying) -> None:
        self._inspection = inspection
        self._report = report
        self._exchange = exchange
        self.serving = False
        """True once the broker has started and takes part in its mesh."""

    @property
    def name(self) -> str:
        return self._inspection.name

    @property
    def state(self) -> str:
        if self._report.leaving:
            return "leaving"
        return self._inspection.state if self.serving else "starting"

    @property
    def waits_for(self) -> Sequence[str]:
        return self._inspection.awaited

    def status(self) -> bytes:
        return self._report.status()

    def figures(self) -> Figures:
        return self._report.figures()

    def ask_all(self, deadline_s: float, bytes_max: int, then: Answered) -> None:
        bodies: list[bytes] = []
        room = bytes_max

        def answered(status: int, body: bytes) -> None:
            nonlocal room
            if status == Status.OK and len(body) <= room:
                room -= len(body)
                bodies.append(body)

        self._exchange.survey(
            "$sys.status",
            b"",
            deadline_s,
            answered,
            lambda silent: then(bodies, silent),
            self._inspection.now,
        )


async def open_http(
    listen: HttpListen, source: HttpSource, environment: Environment, clock: Callable[[], float]
) -> tuple[HttpServer, Live]:
    """Serve HTTP from now on. Run `Live.run` as a task. Raises `ListenError`."""
    # Only brokers that serve HTTP load h11 and the metrics library.
    from mesh.http.guard import Guard
    from mesh.http.live import Live
    from mesh.http.server import HttpServer
    from mesh.http.site import Site

    live = Live(source, clock=clock, wall_time=environment.wall_time)
    site = Site(source, Guard(listen, environment.host), answers=lambda: server.answers, clock=clock)
    server = HttpServer(listen, site.answer, live)
    await server.open()
    return server, live
