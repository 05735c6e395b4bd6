"""Attempts to make links at addresses that the overlay names.

An attempt is one task: the Bus, its admission, the two survey connections, READY (see `mesh.cluster.links`).
It ends with a link, or with a reason at the latest `LinkManager.admission_s` after its first connection. A
failure is counted and logged once while its reason stays the same. A pause follows, which
`mesh.cluster.overlay` decides. If nobody answers at an address to join, that is a warning only after
`UNREACHED_S`, since brokers that start together wait for each other for a moment.
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
"""Reasons for a failed attempt that can mean that nobody is there: the broker starts, leaves or is down."""
UNREACHED_S: Final = 5.0
"""How long an address to join may be silent before a warning."""


class LinkDialer:
    """Makes the attempts. ``failed`` is called after each attempt without a link, since others may be due."""

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
        """Silent addresses to join, and since when. Infinity: the warning was logged."""
        self.failures: dict[str, int] = {}
        """Attempts without a link, by reason."""

    def begin(self, dial: Dial) -> None:
        """Start one attempt."""
        task = self._loop.create_task(self._dial(dial), name=f"dial {dial.url}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def forget(self, url: str) -> None:
        """Forget what was logged about an address."""
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
        # a defect of ours: report it now
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)

    async def _dial(self, dial: Dial) -> None:
        linked = False
        try:
            linked = await self._attempt(dial)
        finally:  # whatever ended it, even a defect: free its place
            if not linked:
                self._failed(dial)

    async def _attempt(self, dial: Dial) -> bool:
        """Dial once. True if it made a link."""
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
        except HandshakeError as error:  # something answers there, but not the expected broker
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
        """Make one connection within this broker's patience. Its lateness at the start does not count: a
        broker that stood still is late once, and on time from then on."""
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
        """The attempt made no link. ``refusal`` is a word to count by, ``reason`` a sentence."""
        found = refusal not in ABSENT or link is not None
        if link is not None:
            self._manager.end(link, reason)
            refusal = link.refusal
        if refusal:
            self.failures[refusal] = self.failures.get(refusal, 0) + 1
        if refusal == "self":  # as where all brokers are given one list of addresses
            self._overlay.is_self(dial.url)
            return
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
            log.warning("no link to %s for %g s: %s; retrying", url, UNREACHED_S, reason)


def same_address(url: str, remote_address: str) -> str:
    """The URL with the address that it led to, so that a name cannot resolve to another one next time."""
    return with_host(url, host_of(remote_address)) if has_host(url) and remote_address else url


def dial_options(options: SocketOptions, url: str, dial_s: float) -> SocketOptions:
    """The options of one attempt: the handshake gets the time of the dial. The certificate must have the name
    that was dialled first, not the address that replaced it."""
    options = replace(options, handshake_timeout_s=dial_s)
    tls = options.tls or TlsConfig()
    if tls.server_name is not None or not is_secure(url):
        return options
    return replace(options, tls=replace(tls, server_name=host_of(url).strip("[]")))
