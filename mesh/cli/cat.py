"""``mesh cat``: one socket at the shell, as macat, nngcat and nanocat are, with their flags.

Sockets fall into four roles:

========  =================================  =========================================================
role      who                                does
========  =================================  =========================================================
receiver  pull, sub; rep, respondent, pair,  prints what comes
          bus, star without data
sender    push, pub                          sends the data once, ``--count`` times or each ``--interval``
asker     req, surveyor; pair, bus, star     sends likewise, and prints what comes in between
          with data
answerer  rep, respondent with data          prints what comes and sends the data back
========  =================================  =========================================================

Standard output carries bodies only, flushed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final

import protocols
from mesh.cli.broker_port import WHAT_TO_USE, broker_at, is_refusal
from mesh.cli.cat_flags import Addresses, Certificates, Other, Printing, Protocols, Sending, misuse
from mesh.cli.cat_job import Job, plan
from mesh.cli.exits import CommandFailed, ExitCode, explain
from mesh.printable import printable
from protocols.errors import NotSupported, StateError, Timeout

CONNECT_S: Final = 5.0
"""How long the first connection to an address may take, unless `--async` waits forever."""
OF_BROKERS: Final = ("Bus0", "Surveyor0", "Respondent0")
"""Sockets that a mesh broker serves for other brokers."""
NNG_DRAIN_S: Final = 0.2
"""A pause at the end, as in nngcat: NNG drops unwritten messages when it closes."""


def cat(
    *,
    protocol: Protocols | None = None,
    addresses: Addresses | None = None,
    sending: Sending | None = None,
    printing: Printing | None = None,
    certificates: Certificates | None = None,
    other: Other | None = None,
) -> int:
    """One socket at the shell, like nngcat, nanocat and macat; needs no broker."""
    other = other or Other()
    try:
        job = plan(
            protocol or Protocols(),
            addresses or Addresses(),
            sending or Sending(),
            printing or Printing(),
            certificates or Certificates(),
            other,
        )
        return asyncio.run(Cat(job).run())
    except Exception as error:
        if other.silent and not isinstance(error, BrokenPipeError):
            return explain(error)[0]
        raise


class Cat:
    """One run, with a socket of either engine."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._printed = 0

    async def run(self) -> int:
        job = self._job
        async with make_socket(job) as socket:
            tasks = [asyncio.create_task(self._work(socket))]
            if job.engine != "nng":  # NNG's sockets do not report their peers
                tasks.append(asyncio.create_task(self._watch(socket)))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        return ExitCode.OK

    async def _work(self, socket: Any) -> None:
        job = self._job
        await self._open(socket)
        await asyncio.sleep(job.delay_s)
        try:
            await self._act(socket)
        except CommandFailed as failed:
            if failed.code == ExitCode.TIMEOUT:
                await self._check_silence()
            raise
        await self._check_silence()
        if job.engine == "nng" and job.body is not None:
            await asyncio.sleep(NNG_DRAIN_S)
        await asyncio.sleep(0)  # the peer of the last message is still reported

    async def _open(self, socket: Any) -> None:
        job = self._job
        for url in job.listen:
            listener = await socket.listen(url)
            if job.engine != "nng":
                listener.on_refused = lambda address, why: self._say(f"refused {address or 'a peer'}: {why}")
            self._say(f"listening at {listener.url}")
        dialers = [socket.dial(url) for url in job.dial]
        if not job.background:
            for dialer in dialers:
                await connected(dialer, job)
                self._say(f"connected to {dialer.url}")
        await socket.wait_for_peers(job.peers)
        self._say("ready")

    async def _watch(self, socket: Any) -> None:
        """Report peers that connect and leave. Raises `CommandFailed` if a mesh broker refused the socket."""
        asked: dict[str, None] = {}
        async for event in socket.events():
            pipe = event.pipe
            peer = pipe.remote_address or "a peer"
            if event.kind == "attached":
                self._say(f"{peer} is here")
            elif event.kind == "detached":
                self._say(f"{peer} is gone: {event.reason}")
                if pipe.dialed and self._job.kind.socket in OF_BROKERS and pipe.url not in asked:
                    asked[pipe.url] = None
                    await check_no_broker(pipe.url, self._job)

    async def _check_silence(self) -> None:
        """Nothing came, perhaps because mesh brokers were dialled that have not hung up yet. Raises
        `CommandFailed`."""
        if not self._printed and self._job.kind.socket in OF_BROKERS:
            for url in self._job.dial:
                await check_no_broker(url, self._job)

    def _say(self, sentence: str) -> None:
        if self._job.verbose:
            print(printable(f"mesh cat: {sentence}"), file=sys.stderr, flush=True)

    async def _act(self, socket: Any) -> None:
        job = self._job
        if job.body is None:
            await self._receive(socket, job.count)
        elif job.kind.answers:
            await self._answer(socket, job.body)
        elif not job.kind.prints:
            await self._repeat(lambda until: socket.send(job.body))
        elif job.count is None and job.interval_s is None:
            await socket.send(job.body)
            await self._hear(socket, None, once=job.kind.socket == "Req0")
            self._check_answered()
        else:
            await self._repeat(lambda until: self._exchange(socket, until))

    async def _receive(self, socket: Any, count: int | None) -> None:
        """Print until ``count`` messages came, or none came for ``--recv-timeout``."""
        try:
            while count is None or self._printed < count:
                self._show(await socket.recv())
        except Timeout as error:
            if count is not None:
                raise CommandFailed(
                    ExitCode.TIMEOUT, f"{self._printed} of {count} messages came: {error}"
                ) from error

    async def _answer(self, socket: Any, body: bytes) -> None:
        """Print and answer, until no question comes for ``--recv-timeout``."""
        count = self._job.count
        try:
            while count is None or self._printed < count:
                self._show(await socket.recv())
                await socket.send(body)
        except Timeout as error:
            if count is not None:
                raise CommandFailed(
                    ExitCode.TIMEOUT, f"{self._printed} of {count} questions came: {error}"
                ) from error

    async def _repeat(self, act: Callable[[float | None], Any]) -> None:
        """Repeat once, ``--count`` times or forever; a round takes at least ``--interval``."""
        job = self._job
        loop = asyncio.get_running_loop()
        rounds = job.count if job.count is not None else 1 if job.interval_s is None else None
        done = 0
        while True:
            until = None if job.interval_s is None else loop.time() + job.interval_s
            await act(until)
            done += 1
            if done == rounds:
                break
            if until is not None:
                await asyncio.sleep(until - loop.time())

    async def _exchange(self, socket: Any, until: float | None) -> None:
        """Send, and print what comes before the round ends; without an interval, one message."""
        await socket.send(self._job.body)
        await self._hear(socket, until, once=until is None and self._job.kind.socket != "Surveyor0")

    async def _hear(self, socket: Any, until: float | None, *, once: bool) -> None:
        """Print what comes until ``until``, ``--recv-timeout`` or the end of the conversation."""
        loop = asyncio.get_running_loop()
        limit_s = self._job.options.recv_timeout_s
        with contextlib.suppress(Timeout, StateError):
            while True:
                left = limit_s if until is None else max(until - loop.time(), 0.0)
                if limit_s is not None and left is not None:
                    left = min(left, limit_s)
                self._show(await socket.recv(timeout=left))
                if once:
                    break

    def _check_answered(self) -> None:
        if self._job.kind.socket == "Req0" and not self._printed:
            limit_s = self._job.options.recv_timeout_s or 0.0
            raise CommandFailed(ExitCode.TIMEOUT, f"no answer within {limit_s:g} s")

    def _show(self, body: bytes) -> None:
        if self._job.kind.socket == "Bus0" and is_refusal(body):
            where = " or ".join(self._job.dial) or "one of the peers"
            raise CommandFailed(ExitCode.UNAVAILABLE, f"{where} is a port of a mesh broker; {WHAT_TO_USE}")
        self._printed += 1
        self._write(self._job.show(body))

    def _write(self, shown: bytes) -> None:
        if shown:
            sys.stdout.buffer.write(shown)
            sys.stdout.buffer.flush()


def make_socket(job: Job) -> Any:
    """A socket of the chosen engine; NNG's is an extra, and loaded only here."""
    engine: Any = protocols
    if job.engine == "nng":
        from protocols import nng as engine
    arguments = {"topics": job.topics} if job.kind.socket == "Sub0" else {}
    try:
        return getattr(engine, job.kind.socket)(options=job.options, **arguments)
    except (NotSupported, ValueError) as error:
        raise misuse(str(error)) from error


async def connected(dialer: Any, job: Job) -> None:
    """Wait for a dialer's first connection. Raises `CommandFailed` with the obstacle."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await dialer.wait_connected()
    except TimeoutError:
        if job.engine != "nng" and dialer.last_error:
            await check_no_broker(dialer.url, job)
        why = dialer.last_error or f"no connection to {dialer.url} within {CONNECT_S:g} s"
        raise CommandFailed(ExitCode.UNAVAILABLE, f"{why}; --async keeps trying") from None


async def check_no_broker(url: str, job: Job) -> None:
    """Raises `CommandFailed` if a mesh broker listens there."""
    sentence = await broker_at(url, job.options)
    if sentence is not None:
        raise CommandFailed(ExitCode.UNAVAILABLE, sentence)
