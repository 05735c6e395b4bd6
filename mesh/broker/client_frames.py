"""The receiver of the REP socket that clients dial: session frames go to the exchange, others are stock
requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from mesh.broker.listeners import Listeners
from mesh.broker.stock import StockRequests
from mesh.broker.stock_guests import StockGuests
from mesh.dataplane.exchange import Exchange
from mesh.wire.session_frames import Kind, encode
from protocols import Pipe, PipeRefused
from protocols.pipe import HELD
from protocols.wire import backtrace

REFUSED_S: Final = 5.0
"""A refused connection is closed after this time if it has sent nothing that could be answered."""
SENTENCE_MAX: Final = 250


class ClientFrames:
    """Receives the frames of clients.

    A read that is too much for one turn of the loop continues in later turns, one connection in each.
    Meanwhile that connection is not read, so that its frames stay in order and bounded.

    A client at the wrong address, or without a required certificate, is told so in answer to its first frame.
    Then its connection is closed.
    """

    def __init__(
        self,
        exchange: Exchange,
        stock: StockRequests,
        listeners: Listeners,
        clock: Callable[[], float],
        guests: StockGuests,
    ) -> None:
        self._exchange = exchange
        self._stock = stock
        self._listeners = listeners
        self._clock = clock
        self._guests = guests
        self._left: dict[Pipe, list[bytes]] = {}
        """Frames that wait for a later turn, by connections that are not read meanwhile."""
        self._going_on: asyncio.Handle | None = None
        self._unread: dict[Pipe, int] = {}
        """Bytes of replies to stock clients since the connection was last seen empty."""
        self._unread_bytes_max = exchange.options.answer_bytes_max

    def pipe_attached(self, pipe: Pipe) -> None:
        try:
            self._listeners.admit("clients", pipe)
        except PipeRefused as refused:
            self._listeners.count_refused(refused.reason)
            pipe.context = refused
            asyncio.get_running_loop().call_later(REFUSED_S, pipe.close, str(refused))

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        self._unread.pop(pipe, None)
        self._left.pop(pipe, None)
        self._guests.gone(pipe)
        self._exchange.client_gone(pipe, self._clock())

    def pipe_writable(self, pipe: Pipe) -> None:
        self._exchange.pipe_writable(pipe, self._clock())

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if isinstance(pipe.context, PipeRefused):
            self._turn_away(pipe, frames[0], pipe.context)
            return
        if pipe in self._left:
            self._left[pipe] += frames
        else:
            self._take(pipe, frames)

    def _take(self, pipe: Pipe, frames: list[bytes]) -> None:
        exchange = self._exchange
        strays = exchange.client_frames(pipe, frames, self._clock())
        left, exchange.reading.left = exchange.reading.left, []
        for stray in strays:
            body = backtrace.split(stray)
            self._stock.answer(pipe, stray[body:], partial(self._reply, pipe, stray[:body]))
        if left and not pipe.closed:
            pipe.pause(HELD)
            self._left[pipe] = left
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._going_on is None:
            self._going_on = asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Continue with the rest of one connection, in turn."""
        self._going_on = None
        if not self._left:
            return
        pipe = next(iter(self._left))
        frames = self._left.pop(pipe)
        if self._left:
            self._go_on_soon()
        self._take(pipe, frames)
        if pipe not in self._left:
            pipe.resume(HELD)

    def _reply(self, pipe: Pipe, address: bytes, reply: bytes) -> None:
        """Reply to the stock REQ that asked, behind its backtrace, if it is still connected."""
        if pipe.closed:
            return
        unread = self._unread.get(pipe, 0) if pipe.unsent else 0
        if unread > self._unread_bytes_max:
            pipe.close(f"more than {self._unread_bytes_max} bytes of replies were left unread")
            return
        self._unread[pipe] = unread + len(reply)
        send_reply(pipe, address, reply)

    def _turn_away(self, pipe: Pipe, frame: bytes, refused: PipeRefused) -> None:
        body = backtrace.split(frame)
        is_session = frame[body : body + 1] >= b"\x90" and frame[body : body + 1] <= b"\x9f"
        reason, sentence = refused.reason, str(refused)[:SENTENCE_MAX]
        said = encode(Kind.ERROR, reason, sentence) if is_session else f"error: {sentence}".encode()
        send_reply(pipe, frame[:body], said)
        pipe.close(str(refused), flush=True)


def send_reply(pipe: Pipe, address: bytes, reply: bytes) -> None:
    """Reply to the stock REQ that asked, behind its backtrace. A full pipe refuses and counts it."""
    pipe.send(address + reply)
