"""Attempts at links to addresses that the overlay names.

An attempt is one task: the Bus, its admission, the two survey connections, READY (see `mesh.cluster.links`).
It ends with a link, or after `LinkManager.admission_s` from its first connection with a reason. That is
counted, said in the log once as long as it stays the same, and followed by a pause that
`mesh.cluster.overlay` decides. Where nobody answers, it is a warning only at an address to join, after
`UNREACHED_S`: brokers that start together wait for each other for a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mesh.cluster.admission import Stage
from mesh.cluster.link import Link, LinkEnded
from mesh.cluster.links import LinkManager
from mesh.cluster.overlay import Dial, Overlay
from mesh.cluster.own_address import has_host, host_of, with_host
from mesh.cluster.pace import PATIENCE_MAX
from mesh.listen import is_secure
from mesh.wire.capabilities import FIRST
from mesh.wire.link_frames import LinkKind, encode
from protocols import HandshakeError, Pipe, RawSocket, SocketOptions, SPError, Timeout, TlsConfig
from protocols.wire.backtrace import END_BIT, encode_word

log = logging.getLogger("mesh")

INF: Final = float("inf")
ABSENT: Final = ("unreachable", "closed", "timeout")
"""Why an attempt failed where nobody may be there: a broker that starts, leaves or is down."""
UNREACHED_S: Final = 5.0
"""How long nobody may answer at an address to join before that is a warning."""


class LinkDialer:
    """See the module. ``failed`` is told each attempt that brought no link: others may be due."""

    def __init__(
        self, manager: LinkManager, overlay: Overlay, *, dial_s: float, failed: Callable[[Dial], None]
    ) -> None:
        self._manager = manager
        self._overlay = overlay
        self._dial_s = dial_s
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._complained: dict[str, str] = {}
        self._unreached: dict[str, float] = {}
        """Addresses to join at which nobody has answered, since when; infinity: that was told."""
        self.failures: dict[str, int] = {}
        """Attempts without a link, by reason."""

    def begin(self, dial: Dial) -> None:
        """One attempt."""
        task = self._loop.create_task(self._dial(dial), name=f"dial {dial.url}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def forget(self, url: str) -> None:
        """What was said of an address need not be remembered any more."""
        self._complained.pop(url, None)
        self._unreached.pop(url, None)

    async def stop(self) -> None:
        """End all attempts."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:  # a defect of ours: say it now
            context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)

    async def _dial(self, dial: Dial) -> None:
        linked = False
        try:
            linked = await self._attempt(dial)
        finally:  # whatever ended it, a defect too: its place is free again
            if not linked:
                self._failed(dial)

    async def _attempt(self, dial: Dial) -> bool:
        """Dial once. True if a link came of it."""
        manager = self._manager
        bus: Pipe | None = None
        link: Link | None = None
        try:
            options = dial_options(manager.bus.options, dial.url, self._dial_s * PATIENCE_MAX)
            bus = await self._connect(manager.bus, dial.url, options)
            link = manager.begin(bus, dial, manager.offer)  # it ends by itself if it takes too long
            await link.ended_or(Stage.READY)
            if link.admission.speaks_first:  # a broker of version 1 refuses what it does not know
                bus = await self._connect(manager.bus, dial.url, options)
                link = manager.begin(bus, dial, FIRST)
            await link.reached(Stage.READY)
            url = same_address(dial.url, bus.remote_address)
            for which, socket in (("surveyor", manager.surveyor), ("respondent", manager.respondent)):
                pipe = await self._connect(socket, url, options)
                self._offer(link, which, pipe)
            await link.reached(Stage.UP)
        except HandshakeError as error:  # somebody is there, and is not what was looked for
            self._over(dial, link, str(error), error.reason)
        except (SPError, OSError, LinkEnded) as error:
            if isinstance(error, Timeout):
                self._overlay.pace.gave_up()
            self._over(dial, link, str(error))
        except asyncio.CancelledError:
            self._over(dial, link, "stopped")
            raise
        except Exception as error:  # reported by `_task_ended`
            if bus is not None:
                bus.close("the attempt met a defect")
            self._over(dial, link, f"the attempt met a defect: {error!r}", "defect")
            raise
        else:
            if link.up:
                self.forget(dial.url)
                return True
            self._over(dial, link, link.end_reason)
        return False

    async def _connect(self, socket: RawSocket, url: str, options: SocketOptions) -> Pipe:
        """One connection, in the time that this broker has patience for. Its lateness at the beginning does
        not count: one that stood still is late once, and on time from then on."""
        limit = asyncio.timeout(None)
        began_at = self._loop.time()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            now = self._loop.time()
            left_s = self._dial_s * self._overlay.pace.patience - (now - began_at)
            if left_s > 0:  # this broker is late itself, and may be on time again by then
                timer = self._loop.call_later(min(left_s, self._dial_s), look)
            else:
                limit.reschedule(now)

        timer = self._loop.call_later(self._dial_s, look)
        try:
            async with limit:
                return await socket.dial_once(url, None, options=options)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Timeout(f"no connection to {url} within {self._loop.time() - began_at:.3g} s") from error
        finally:
            timer.cancel()

    def _offer(self, link: Link, which: str, pipe: Pipe) -> None:
        """Ask the other side to bind a survey connection. Raises `LinkEnded`."""
        link.keep(which, pipe)
        if link.ended or pipe.closed:
            pipe.close("the link ended while it was made")
            raise LinkEnded(link.end_reason or "a heartbeat connection was lost at once")
        pipe.send_control(encode_word(END_BIT) + encode(LinkKind.BIND, link.admission.token))

    def _over(self, dial: Dial, link: Link | None, reason: str, refusal: str = "unreachable") -> None:
        """No link came of it; ``refusal`` is a word to count by, ``reason`` a sentence."""
        found = refusal not in ABSENT or link is not None
        if link is not None:
            self._manager.end(link, reason)
            refusal = link.refusal
        if refusal:
            self.failures[refusal] = self.failures.get(refusal, 0) + 1
        if refusal == "self":
            self._overlay.is_self(dial.url)
        self._complain(dial, link, reason, found=found)

    def _complain(self, dial: Dial, link: Link | None, reason: str, *, found: bool) -> None:
        if found:
            self._unreached.pop(dial.url, None)
        elif reason != "stopped" and dial.url in self._overlay.join:
            self._warn_of_silence(dial.url, reason)
        if self._complained.get(dial.url) == reason:
            return
        self._complained[dial.url] = reason
        if reason == "stopped" or (link is not None and link.end_reason == "duplicate"):
            return
        level = logging.WARNING if found and dial.member == 0 else logging.INFO
        log.log(level, "no link to %s: %s", dial.url, reason)

    def _warn_of_silence(self, url: str, reason: str) -> None:
        now = self._loop.time()
        if now - self._unreached.setdefault(url, now) >= UNREACHED_S:
            self._unreached[url] = INF
            log.warning("no link to %s for %g s: %s; trying on", url, UNREACHED_S, reason)


def same_address(url: str, remote_address: str) -> str:
    """The URL with the address it led to, whatever its name stands for the next time."""
    return with_host(url, host_of(remote_address)) if has_host(url) and remote_address else url


def dial_options(options: SocketOptions, url: str, dial_s: float) -> SocketOptions:
    """Those of one attempt: the handshake has the time of the dial, and the certificate must have the name
    that was dialled first, not the address that stands in for it."""
    options = replace(options, handshake_timeout_s=dial_s)
    tls = options.tls or TlsConfig()
    if tls.server_name is not None or not is_secure(url):
        return options
    return replace(options, tls=replace(tls, server_name=host_of(url).strip("[]")))
