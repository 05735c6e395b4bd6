"""asyncio's side of the simulated network: transports and servers, with the contracts of the real ones.

The behaviour follows ``asyncio.selector_events``: one read for each connection and loop turn, writes tried at
once and the rest buffered, water marks, `close` after the buffer has drained, `abort` at once,
``connection_lost`` exactly once and through ``call_soon``.
"""

from __future__ import annotations

import asyncio
import random
import socket
from asyncio import transports
from collections.abc import Callable
from typing import Any, Final, cast

from simulations.kernel.loop import SimHandle, SimLoop
from simulations.kernel.network import READ_MAX, Address, Half, Listener

Buffer = bytes | bytearray | memoryview
BUFFERS: Final = (bytes, bytearray, memoryview)


class SimTransport(transports._FlowControlMixin):
    """A stream transport on one `Half`.

    With ``chunk_rng`` each read ends at a random boundary, so that nothing may rely on frames arriving whole.
    """

    __slots__ = (
        "_buffer",
        "_buffered",
        "_chunk_rng",
        "_closing",
        "_conn_lost",
        "_eof_read",
        "_eof_written",
        "_fills_buffer",
        "_half",
        "_paused",
        "_protocol",
        "_read_scheduled",
        "_reading",
        "_server",
        "_started",
        "_write_scheduled",
        "_writing",
    )

    def __init__(
        self,
        loop: SimLoop,
        half: Half,
        protocol: asyncio.BaseProtocol,
        *,
        waiter: asyncio.Future[None] | None = None,
        server: SimServer | None = None,
        chunk_rng: random.Random | None = None,
    ) -> None:
        extra = {"sockname": half.address, "peername": half.peer_address, "socket": None}
        super().__init__(extra, loop)
        self._half: Half = half
        self._server = server
        self._chunk_rng = chunk_rng
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._conn_lost = 0
        self._closing = False
        self._eof_written = False
        self._eof_read = False
        self._paused = False
        self._started = False
        self._read_scheduled = False
        self._write_scheduled = False
        self._loop: SimLoop = loop
        # Made once and queued again and again, as in a selector's loop.
        self._reading = SimHandle(self._read_ready, (), loop, None)
        self._writing = SimHandle(self._write_ready, (), loop, None)
        self.set_protocol(protocol)
        if server is not None:
            server._attach()
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._start)
        if waiter is not None:
            loop.call_soon(_set_result_unless_done, waiter)

    # --- asyncio.BaseTransport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol
        self._fills_buffer = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        # After the end of its world: no warning about connections that a killed process left open.
        return self._closing or self._loop.is_closed()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._conn_lost += 1
            self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self._force_close(None)

    # --- asyncio.ReadTransport

    def is_reading(self) -> bool:
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        if self.is_reading():
            self._paused = True

    def resume_reading(self) -> None:
        if self._closing or not self._paused:
            return
        self._paused = False
        self.readable()

    # --- asyncio.WriteTransport

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Buffer) -> None:
        if type(data) is not bytes:
            if not isinstance(data, BUFFERS):
                raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
            data = bytes(data)
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._conn_lost:
            self._conn_lost += 1
            return
        if not self._buffer:
            try:
                sent = self._half.send(data)
            except OSError as error:
                self._fatal_error(error)
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._buffer.append(data)
        self._buffered += len(data)
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._closing or self._eof_written:
            return
        self._eof_written = True
        if not self._buffer:
            self._half.shut_down()

    # --- calls of the kernel half

    def arrived(self) -> None:
        if self._read_scheduled or self._closing or self._paused:
            return
        if self._half.pace is None or self._half.has_news:
            self._read_scheduled = True
            reading = self._reading
            if not self._loop.turn_of(reading, reading._context, reading._callback, ()):
                self._loop.run_soon(reading)

    def readable(self) -> None:
        reading = self._started and not self._closing and not self._paused
        if reading and not self._read_scheduled and self._half.has_news:
            self._read_scheduled = True
            self._loop.run_soon(self._reading)
        elif self._half.error is not None and self._buffer and not self._write_scheduled:
            self.writable()  # a selector reports an error to its waiters, as the writer does

    def writable(self) -> None:
        if not self._write_scheduled and self._buffer and not self._conn_lost:
            self._write_scheduled = True
            self._loop.run_soon(self._writing)

    # --- turns of the loop

    def _start(self) -> None:
        if self._conn_lost:
            return
        self._started = True
        self._half.user = self
        self.readable()

    def _read_ready(self) -> None:
        self._read_scheduled = False
        half = self._half
        if self._closing or self._paused or (half.pace is not None and not half.has_news):
            return
        if half.received_bytes == half.consumed:
            self._read_end(half)
            return
        size = READ_MAX if self._chunk_rng is None else self._chunk_rng.randint(1, half.portion)
        protocol = self._protocol
        try:
            if self._fills_buffer:
                buffer = protocol.get_buffer(-1)
                room = len(buffer)
                if not room:
                    raise RuntimeError("get_buffer() returned an empty buffer")
                data = half.read(size if size < room else room)
                taken = len(data)
                buffer[:taken] = data
                protocol.buffer_updated(taken)
            else:
                protocol.data_received(half.read(size))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # like asyncio: a protocol's bug costs its connection
            self._fatal_error(error, "Fatal error: a protocol's receiving method failed.")
        if half.eof or half.error is not None or half.received_bytes > half.consumed:
            self.readable()

    def _read_end(self, half: Half) -> None:
        """There is nothing to read except, perhaps, the end of the stream or an error."""
        if half.eof and not self._eof_read:
            self._read_eof()
            if half.error is not None:
                self.readable()
        elif half.error is not None:
            self._fatal_error(half.error)

    def _read_eof(self) -> None:
        self._eof_read = True
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # as above
            self._fatal_error(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    def _write_ready(self) -> None:
        self._write_scheduled = False
        if self._conn_lost or not self._buffer:
            return
        data = b"".join(self._buffer)
        try:
            sent = self._half.send(data)
        except OSError as error:
            self._fatal_error(error)
            return
        self._buffer = [data[sent:]] if sent < len(data) else []
        self._buffered = len(data) - sent
        self._maybe_resume_protocol()  # type: ignore[attr-defined]
        if self._buffer:
            return
        if self._closing:
            if not self._conn_lost:
                self._conn_lost += 1
                self._lost(None)
        elif self._eof_written:
            self._half.shut_down()

    # --- ends

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:
        if self._conn_lost:
            return
        self._buffer.clear()
        self._buffered = 0
        self._closing = True
        self._conn_lost += 1
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(cast(Exception | None, error))
        finally:
            self._half.close()
            if self._server is not None:
                self._server._detach()
                self._server = None


class BoundSocket:
    """An item of ``Server.sockets``: enough of a socket to ask for its address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.type = socket.SOCK_STREAM

    def getsockname(self) -> Address:
        return self._address

    def fileno(self) -> int:
        return -1


class BoundUnixSocket(BoundSocket):
    """A unix socket that was bound before its server was made."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener.address)
        self.listener = listener

    def close(self) -> None:
        self.listener.close()


class SimServer(asyncio.AbstractServer):
    """A server on one or more listening sockets. ``wait_closed`` waits for its connections, like that of
    Python 3.12.
    """

    def __init__(
        self,
        loop: SimLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        chunk_rng: random.Random | None,
    ) -> None:
        self._loop = loop
        self._protocol_factory = protocol_factory
        self._chunk_rng = chunk_rng
        self._listeners: list[Listener] = []
        self._closed = False
        self._active = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[BoundSocket, ...]:
        return () if self._closed else tuple(BoundSocket(listener.address) for listener in self._listeners)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return not self._closed and any(listener.listening for listener in self._listeners)

    async def start_serving(self) -> None:
        self._listen()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        if self._closed:
            raise RuntimeError(f"server {self!r} is closed")
        self._listen()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        finally:
            self._forever = None
            self.close()
            await self.wait_closed()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for listener in self._listeners:
            listener.close()
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        self._wake_if_idle()

    async def wait_closed(self) -> None:
        if self._closed and not self._active:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _listen(self) -> None:
        for listener in self._listeners:
            listener.listening = True

    def _accept(self, listener: Listener, half: Half) -> None:
        """A connection waits; the program takes it at its next turn."""
        self._loop.call_soon(self._take, listener, half)

    def _take(self, listener: Listener, half: Half) -> None:
        listener.waiting -= 1
        if self._closed:
            half.reset()
            return
        try:
            protocol = self._protocol_factory()
        except BaseException:
            half.close()
            raise
        SimTransport(self._loop, half, protocol, server=self, chunk_rng=self._chunk_rng)

    def _attach(self) -> None:
        self._active += 1

    def _detach(self) -> None:
        self._active -= 1
        self._wake_if_idle()

    def _wake_if_idle(self) -> None:
        if self._closed and not self._active:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                _set_result_unless_done(waiter)


def _set_result_unless_done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
