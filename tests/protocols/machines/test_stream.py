"""Two stream connections over a network that cuts, delays, stops and breaks: plain, TLS and WebSocket.

The network holds each end's output and delivers any number of bytes of it, in any cuts. Whatever happens, the
received data must be a prefix of the sent data. It must be all of it, if only time stood between. Each end is
told of the end once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocols.errors import HandshakeError, RemoteProtocolError
from protocols.options import SocketOptions
from protocols.pipe import INBOX_FULL, Pipe
from protocols.transports import outgoing, stream
from protocols.transports.certificates import client_context, server_context
from protocols.transports.stream import State, StreamConnection, StreamKind
from protocols.wire import websocket
from protocols.wire.codec import Codec
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.sp import SpCodec
from protocols.wire.tls import TlsCodec
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade, Route
from protocols.wire.websocket import WebSocketCodec
from tests.support.certificates import config, local

from .world import MACHINE

PAIR = Greeting.of(ProtocolNumber.PAIR0, ProtocolNumber.PAIR0)
OPTIONS = SocketOptions(read_budget=512, recv_size_max=5000, send_queue=6)
HIGH = 150
"""Bytes at which a network buffer is full, as the kernel's would be."""
ENDS = st.integers(0, 1)
SIZES = (0, 2000, 1, 200, 7, 30)
COUNTS = (10000, 1, 1000, 9, 50, 2)
ARGUMENTS = st.integers(0, 11)
DEEDS = ("send", "send", "send", "move", "move", "move", "move", "admit", "pause", "resume", "end")


class Network(asyncio.Transport):
    """One end's asyncio transport: ``out`` is its output that the other end has not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.protocol: StreamConnection
        self.out = bytearray()
        self.eof = False
        self.paused = False
        self.closing = False
        self.told_lost = False
        self.full = False

    def write(self, data: Any) -> None:
        assert not self.eof, "written after the end of the stream"
        if self.closing:
            return
        self.out += data
        if len(self.out) > HIGH and not self.full:
            self.full = True
            self.protocol.pause_writing()

    def drained(self) -> None:
        if self.full and not self.out and not self.closing:
            self.full = False
            self.protocol.resume_writing()

    def write_eof(self) -> None:
        self.eof = True

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        self.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.closing = True
        self.loop.call_soon(self.lose, None)

    def lose(self, error: Exception | None) -> None:
        self.closing = True
        if not self.told_lost:
            self.told_lost = True
            self.protocol.connection_lost(error)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def read(self, data: bytes) -> None:
        """Bytes arrive, in reads of the size that the connection has room for."""
        while data:
            room = self.protocol.get_buffer(-1)
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            data = data[taken:]
            self.protocol.buffer_updated(taken)


class End:
    """The endpoint and the socket of one side."""

    def __init__(self) -> None:
        self.pipe: Pipe | None = None
        self.ready = False
        self.failed: HandshakeError | None = None
        self.ended = 0
        self.gone = False
        self.error: RemoteProtocolError | None = None
        self.closed: list[str] = []
        self.received: list[bytes] = []
        self.sent: list[bytes] = []

    def connection_opened(self, connection: Any) -> None: ...

    def connection_ready(self, connection: Any) -> None:
        assert not self.ready and self.failed is None
        self.ready = True

    def connection_failed(self, connection: Any, error: HandshakeError) -> None:
        assert not self.ready and self.failed is None
        self.failed = error

    def connection_ended(self, connection: Any, error: RemoteProtocolError | None) -> None:
        self.ended += 1
        self.error = error

    def connection_gone(self, connection: Any) -> None:
        assert not self.gone and (self.ended or self.failed is not None)
        self.gone = True

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        assert not self.closed, "frames after the end"
        self.received += frames

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.closed.append(reason)

    def pipe_gone(self, pipe: Pipe) -> None: ...


def plain(place: int) -> Codec:
    return SpCodec(PAIR, OPTIONS.recv_size_max, b"")


def over_websocket(place: int) -> Codec:
    if place:
        return WebSocketCodec(DiallingUpgrade(PAIR, "h:1", "/", OPTIONS.recv_size_max))
    return WebSocketCodec(AcceptingUpgrade(lambda path: Route(PAIR, OPTIONS.recv_size_max)))


@cache
def contexts() -> tuple[Any, Any]:
    return server_context(config(local())), client_context(config())


def over_tls(place: int, inner: Callable[[int], Codec] = plain) -> Codec:
    name = "127.0.0.1" if place else None
    return TlsCodec(inner(place), contexts()[place], server_side=not place, server_name=name)


class StreamMachine(RuleBasedStateMachine):
    codec: Callable[[int], Codec] = staticmethod(plain)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.number = 0
        self.broken = False
        self.closed_by: list[int] = []
        self.pausing = [False, False]

    def run(self, deed: Callable[[], None]) -> None:
        """Run it within the loop, plus one turn for the callbacks it scheduled."""

        async def turn() -> None:
            deed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    @initialize(shaken=st.integers(0, 3))
    def connect(self, shaken: int) -> None:
        def make() -> None:
            self.ends = [End(), End()]
            self.networks = [Network(self.loop), Network(self.loop)]
            self.connections = []
            for place, (end, network) in enumerate(zip(self.ends, self.networks, strict=True)):
                kind = StreamKind(
                    lambda address: "", lambda *_: None, lambda *_, place=place: type(self).codec(place)
                )
                network.protocol = StreamConnection(kind, PAIR, OPTIONS, end)
                self.connections.append(network.protocol)
            for network in self.networks:
                network.protocol.connection_made(network)

        self.run(make)
        if shaken:
            for _ in range(6):
                for end in (0, 1):
                    self.move(end, 10000)
                    if shaken > 1 or end == 0:  # or one owner makes up its mind later
                        self.admit(end)

    # --- events

    @rule(deeds=st.lists(st.tuples(st.sampled_from(DEEDS), ENDS, ARGUMENTS), min_size=3, max_size=12))
    def happen(self, deeds: list[tuple[str, int, int]]) -> None:
        for deed, end, argument in deeds:
            if deed == "send":
                self.send(end, [SIZES[(argument + more) % len(SIZES)] for more in range(1 + argument % 4)])
            elif deed == "move":
                self.move(end, COUNTS[argument % len(COUNTS)])
            elif deed == "admit":
                self.admit(end)
            elif deed == "pause":
                self.pause(end)
            elif deed == "resume":
                self.resume(end)
            else:
                self.end(end, ("drain", "drain", "drop", "reset")[argument % 4])
            self.what_arrived_is_what_was_sent()
            self.a_paused_pipe_is_not_read()

    def send(self, end: int, sizes: list[int]) -> None:
        side = self.ends[end]
        if side.pipe is None or side.pipe.closed:
            return
        pipe = side.pipe
        frames = []
        for size in sizes:
            self.number += 1
            frames.append(b"%06d" % self.number + bytes(size))

        def deed() -> None:
            if len(frames) > 2:
                side.sent += frames[: pipe.send_many(frames)]
            else:
                for frame in frames:
                    if pipe.send(frame):
                        side.sent.append(frame)

        self.run(deed)

    def move(self, end: int, count: int) -> None:
        self.run(lambda: self.carry(end, count))

    def carry(self, end: int, count: int) -> None:
        here, there = self.networks[end], self.networks[1 - end]
        while here.out and count > 0 and not there.paused and not there.told_lost and not there.closing:
            size = min(count, 601)
            data = bytes(here.out[:size])
            del here.out[:size]
            count -= size
            there.read(data)
            here.drained()
        if not here.out and (here.eof or here.closing) and not there.paused and not there.told_lost:
            if not there.protocol.eof_received():
                there.close()

    def admit(self, end: int) -> None:
        """The owner takes the connection that has waited for it."""
        side = self.ends[end]
        if not side.ready or side.pipe is not None:
            return

        def deed() -> None:
            side.pipe = Pipe(
                1, self.connections[end], side, url="fake://", dialed=bool(end), limit=OPTIONS.send_queue
            )
            self.connections[end].start(side.pipe)

        self.run(deed)

    def pause(self, end: int) -> None:
        if (pipe := self.ends[end].pipe) is not None:
            self.pausing[end] = True
            self.run(lambda: pipe.pause(INBOX_FULL))

    def resume(self, end: int) -> None:
        if (pipe := self.ends[end].pipe) is not None:
            self.pausing[end] = False
            self.run(lambda: pipe.resume(INBOX_FULL))

    def end(self, end: int, how: str) -> None:
        pipe = self.ends[end].pipe
        if self.number < 4 or self.closed_by or pipe is None:
            return  # let them talk first
        self.closed_by.append(end)
        if how == "reset":
            self.broken = True

            def reset() -> None:
                for network in self.networks:
                    network.out.clear()
                    network.lose(ConnectionResetError(104, "reset"))

            self.run(reset)
        elif how == "drop":
            self.broken = True
            self.run(lambda: pipe.close("dropped"))
        else:
            self.run(lambda: pipe.close("done", flush=True))

    # --- invariants

    @invariant()
    def what_arrived_is_what_was_sent(self) -> None:
        for end in (0, 1):
            received, sent = self.ends[1 - end].received, self.ends[end].sent
            assert received == sent[: len(received)], "something arrived that was not sent so"

    @invariant()
    def nobody_is_to_blame(self) -> None:
        for end in self.ends:
            assert end.failed is None or self.broken, end.failed
            assert end.error is None, end.error
            assert len(end.closed) <= 1 and end.ended <= 1

    @invariant()
    def a_paused_pipe_is_not_read(self) -> None:
        for connection, network, pausing in zip(self.connections, self.networks, self.pausing, strict=True):
            assert network.paused or not pausing or connection.state is not State.RUNNING

    def teardown(self) -> None:
        try:
            self.everything_arrives_in_the_end()
        finally:
            self.loop.close()

    def everything_arrives_in_the_end(self) -> None:
        if not hasattr(self, "ends"):
            return
        for _ in range(60):
            for end in (0, 1):
                self.resume(end)
                self.admit(end)
                self.move(end, 100000)
        if self.broken:
            assert all(len(end.closed) == 1 for end in self.ends if end.pipe is not None)
            return
        first = self.closed_by[0] if self.closed_by else None
        for end in (0, 1):
            if (
                first is None or end == first
            ):  # the end that closes does not read what the other had in flight
                assert self.ends[1 - end].received == self.ends[end].sent, "not everything arrived"
        if first is not None:
            assert self.ends[1 - first].closed == ["closed by the peer"]
            assert all(network.told_lost for network in self.networks), "a connection is left over"
        else:
            assert all(end.ready and not end.closed for end in self.ends)


class WebSocketMachine(StreamMachine):
    codec = staticmethod(over_websocket)


class TlsMachine(StreamMachine):
    codec = staticmethod(over_tls)


class TlsWebSocketMachine(StreamMachine):
    codec = staticmethod(lambda place: over_tls(place, over_websocket))


def make_pieces_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let frames of 2 000 bytes take every path that large ones take."""
    for module in (outgoing, stream):
        monkeypatch.setattr(module, "PIECE", 300)
    monkeypatch.setattr(websocket, "FRAGMENT_SIZE", 500)


@pytest.mark.parametrize("machine", [StreamMachine, WebSocketMachine, TlsMachine, TlsWebSocketMachine])
def test_a_sent_message_arrives_or_the_end_is_reported(
    machine: type[RuleBasedStateMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pieces_small(monkeypatch)
    run_state_machine_as_test(
        machine, settings=settings(MACHINE, max_examples=MACHINE.max_examples // 2, stateful_step_count=12)
    )
