"""The outbox of a `BlockingClient`: a `Client`'s outbox in an event loop on a thread of its own.

A `BlockingClient` works in the threads of its callers. An outbox drains while nobody calls, so it alone has a
thread. Callers pass their calls to its loop and wait. Ctrl-C in a call takes the message back if the disk has
not been given it. The thread belongs to the process that opened it: a fork has no outbox.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from mesh.access.credentials import Credential
from mesh.clients.addresses import Place
from mesh.clients.arguments import checked_seconds
from mesh.clients.connection import ClientConnection
from mesh.clients.outbox import ClientOutbox, OutboxState
from mesh.clients.outbox_conversation import OutboxConversation
from mesh.clients.pending import PENDING_MAX
from mesh.clients.publishing_soon import SoonPublisher
from mesh.environment import open_outbox
from mesh.errors import Disconnected, MeshError, NotAccepted, OutboxError
from mesh.outbox.port import OpenedOutbox
from mesh.wire.session_frames import Receipt
from protocols import TlsConfig

T = TypeVar("T")


def _nothing() -> None:
    """Default of ``soon_ends``: no message of ``publish_soon`` needs ending."""


CLOSED: Final = "the client is closed"


class BlockingOutbox:
    """The outbox and its thread. Call `open` first and `close` at the end."""

    def __init__(
        self,
        path: str,
        max_bytes: int,
        place: Place,
        *,
        name: str,
        tls: TlsConfig | None,
        keepalive_s: float,
        connect_timeout_s: float,
        credential: Credential | None = None,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._place = place
        self._name = name
        self._tls = tls
        self._credential = credential
        self._keepalive_s = keepalive_s
        self._connect_timeout_s = connect_timeout_s
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self.outbox: ClientOutbox
        self.soon: SoonPublisher
        """Publishes messages of ``publish_soon``, in the loop."""
        self.soon_ends: Callable[[], None] = _nothing
        """Called when the loop has ended."""
        self._ending: asyncio.Event
        self._closed = self.ended = False
        self._calls: set[Future[Any]] = set()

    # ------------------------------------------------------------------ its life

    def open(self) -> None:
        """Start the thread and open the outbox. Raises what opening an `Outbox` raises."""
        if self._thread is not None:
            raise MeshError("a BlockingClient is opened once; make another one")
        opened: Future[None] = Future()
        # A daemon, so that a program which forgets to close its client can still end.
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="mesh-outbox-client", daemon=True
        )
        self._thread.start()
        try:
            opened.result()
        except BaseException:
            self._closed = True
            opened.cancel()
            raise

    def close(self) -> None:
        """Finish the writes that the disk was given, and leave the rest in the file. Does nothing in a
        fork."""
        if self._thread is None or os.getpid() != self._pid:
            return
        if not self._closed:
            self._closed = True
            with suppress(RuntimeError):  # the loop has ended: a defect ended the thread
                self._loop.call_soon_threadsafe(self._ending.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self, opened: Future[None]) -> None:
        try:
            asyncio.run(self._main(opened))
        finally:
            self.ended = True
            self.soon_ends()
            for call in list(self._calls):  # the loop has not begun it
                call.cancel()

    async def _main(self, opened: Future[None]) -> None:
        try:
            port = await open_outbox(self._path, max_bytes=self._max_bytes)
        except BaseException as error:  # any error belongs to the caller of `open`, not to the thread
            if opened.set_running_or_notify_cancel():
                opened.set_exception(error)
            return
        if not opened.set_running_or_notify_cancel():  # the caller of `open` was interrupted
            await port.aclose()
            return
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        connection = self._connection(port)
        self.outbox = ClientOutbox(port, connection)
        self.soon = SoonPublisher(connection, PENDING_MAX)
        opened.set_result(None)
        await self._ending.wait()
        await self.outbox.aclose()
        self.soon.close()

    def _connection(self, port: OpenedOutbox) -> ClientConnection:
        rng = random.Random(os.urandom(32))
        conversation = OutboxConversation.of_outbox(
            port.opening,
            rng,
            name=self._name,
            keepalive_s=self._keepalive_s,
            now=self._loop.time(),
            credential=self._credential,
        )
        return ClientConnection(
            self._place,
            conversation=conversation,
            tls=self._tls,
            connect_timeout_s=self._connect_timeout_s,
            rng=rng,
            warns=False,
        )

    # ------------------------------------------------------------------ calls

    def publish(
        self, given: Sequence[tuple[str, Sequence[bytes]]], headers: bytes, timeout: float | None
    ) -> Receipt:
        """Publish as `ClientOutbox.publish`."""
        if timeout is not None:
            checked_seconds("timeout", timeout)
        why = self.why_not()
        if why:
            raise NotAccepted(why)
        try:
            return self._call(self.outbox.publish(given, headers, timeout))
        except Disconnected as error:  # before the loop began it
            raise NotAccepted(str(error)) from error
        except KeyboardInterrupt as error:
            error.add_note("the message may be in the outbox")
            raise

    def drained(self, timeout: float | None) -> None:
        """Wait as `ClientOutbox.drained`."""
        self._must_be_open()
        self._call(self.outbox.drained(timeout))

    @property
    def state(self) -> OutboxState:
        self._must_be_open()
        return self._call(self._state())

    async def _state(self) -> OutboxState:
        return self.outbox.state

    def in_loop(self, call: Callable[..., object], *arguments: object) -> bool:
        """Have the loop call something soon; False if it has ended."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True

    @property
    def is_fork(self) -> bool:
        """True if this process is a fork of the one that opened it."""
        return self._pid != os.getpid()

    def _must_be_open(self) -> None:
        if self._pid != os.getpid():
            raise OutboxError(self.why_not())
        if self.why_not():
            raise Disconnected(self.why_not())

    def why_not(self) -> str:
        """Say why it cannot be used; empty if it can."""
        if self._pid != os.getpid():
            return (
                f"the outbox {self._path} was opened by process {self._pid}, of which this is a fork; open"
                " one in each process, in a file of its own"
            )
        if self._thread is None:
            return "the client is not open; use it inside `with BlockingClient() as mesh:`"
        return CLOSED if self._closed else ""

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine in the loop. An interrupt of the wait cancels it."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise Disconnected(CLOSED) from None
        self._calls.add(future)
        try:
            if self.ended:
                future.cancel()
            return future.result()
        except CancelledError:
            raise Disconnected(CLOSED) from None
        finally:
            future.cancel()
            self._calls.discard(future)
