"""Streams of blocking sockets: badly timed events of peers and kernels cost at most one connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

import pytest

from protocols import blocking
from protocols.blocking.stream import REPLIES_MAX, State, Stream
from protocols.pipe import CONNECTION_LOST, Pipe
from protocols.wire.handshake import Greeting, ProtocolNumber, encode_header
from protocols.wire.upgrade import DiallingUpgrade
from protocols.wire.websocket import WebSocketCodec
from tests.protocols.blocking.support import LIMIT_S, until
from tests.support.interrupts import ends, interrupted_at


class Kernel:
    """Stands for a connected socket that has room for some bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.got = b""
        self.heard: list[bytes] = []
        self.gone = False
        self.shut = False
        self.handler: Callable[[], None] | None = None
        """A signal handler that runs once, before the next bytes are taken."""

    def send(self, data: bytearray) -> int:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        if self.gone:
            raise BrokenPipeError("gone")
        taken = min(len(data), self.room)
        if not taken:
            raise BlockingIOError
        self.room -= taken
        self.got += bytes(data[:taken])
        return taken

    def recv(self, size: int) -> bytes:
        if not self.heard:
            raise BlockingIOError
        return self.heard.pop(0)

    def shutdown(self, how: int) -> None:
        self.shut = True

    def close(self) -> None:
        self.gone = True


class Thread:
    """Stands for the I/O thread."""

    def __init__(self) -> None:
        self.watched = 0
        self.handler: Callable[[], None] | None = None
        """A signal handler that runs once, before the next change of what is watched."""
        self.later: list[Callable[[], None]] = []

    def watch(self, stream: Stream, events: int) -> None:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        self.watched = events

    def flush_at_the_end(self, stream: Stream) -> None: ...

    def call_at(self, deadline: float, callback: Callable[[], None]) -> None:
        if deadline <= self.time():
            self.later.append(callback)

    def time(self) -> float:
        return 0.0

    def turn(self) -> None:
        while self.later:
            self.later.pop(0)()


class Polite:
    """A codec for one peer that answers every input, and says goodbye."""

    peer = 1
    identity = failure = None
    ended = inside_frame = repeatable = False
    last_words = ""

    def __init__(self) -> None:
        self.reply = b""

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        self.reply += bytes(chunk)
        return []

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        return frames

    def end(self) -> bytes:
        return b"goodbye"


class Owner:
    """Stands for a core."""

    def __init__(self) -> None:
        self.closed = 0

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None: ...

    def pipe_writable(self, pipe: Pipe) -> None: ...

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.closed += 1

    def pipe_gone(self, pipe: Pipe) -> None: ...


def running(room: int) -> tuple[Stream, Pipe, Kernel, Thread, Owner]:
    kernel, thread, owner, codec = Kernel(room), Thread(), Owner(), Polite()
    stream = Stream(
        thread,
        kernel,  # type: ignore[arg-type]
        codec,  # type: ignore[arg-type]
        local_address="here",
        remote_address="there",
        identity=None,
    )
    pipe = Pipe(1, stream, owner, url="url", dialed=False, limit=100)
    stream.start(pipe)
    return stream, pipe, kernel, thread, owner


def test_a_flush_in_the_middle_of_a_call_ends_no_peer() -> None:
    """The flush ended the pipe inside the pattern's loop over its peers, before the pattern knew the
    message.
    """
    stream, pipe, kernel, thread, owner = running(100)
    kernel.gone = True
    pipe.send(b"message")
    stream.flush_now()
    stream.flush()
    assert stream.state is State.RUNNING and not owner.closed
    thread.turn()
    assert owner.closed == 1 and pipe.close_cause == CONNECTION_LOST


def test_a_handler_that_sends_as_the_last_byte_leaves_waits_for_room_too() -> None:
    """The interrupted call, which had nothing left, ended the watch for room that the handler's message
    needs: half of that message was never sent.
    """
    stream, pipe, kernel, thread, _ = running(2)
    pipe.send(b"first")
    stream.flush()
    assert thread.watched & EVENT_WRITE

    def send() -> None:
        pipe.send(b"second")
        stream.flush()

    kernel.room = 5
    thread.handler = send
    stream.flush()
    assert kernel.got == b"firstse" and thread.watched & EVENT_WRITE


def test_what_a_handler_sends_to_a_full_kernel_follows_once_the_interrupted_call_finds_room() -> None:
    """The interrupted call wrote the rest of its own message, and left the handler's in the queue."""
    stream, pipe, kernel, _, _ = running(0)

    def send() -> None:
        pipe.send(b"second")
        stream.flush()
        kernel.room = 100

    pipe.send(b"first")
    kernel.handler = send
    stream.flush()
    assert kernel.got == b"firstsecond"


@pytest.mark.parametrize("room", range(8))
@pytest.mark.parametrize("ends", [False, True])
def test_a_handler_that_sends_twice_anywhere_in_a_flush_tears_no_frame(room: int, ends: bool) -> None:
    """Half of the handler's first frame was written, and the rest of it lost if Ctrl-C came next."""
    place, reached = 1, True
    while reached:
        stream, pipe, kernel, thread, _ = running(room)
        stream._codec.repeatable = True  # type: ignore[misc]
        pipe.send(b"first,")

        def send(pipe: Pipe = pipe, stream: Stream = stream) -> None:
            for frame in (b"second,", b"third,"):
                pipe.send(frame)
                stream.flush()
            if ends:
                raise KeyboardInterrupt

        reached = interrupted_at(place, stream.flush, handler=send)
        if ends:
            stream.look_again()
        kernel.room = 100
        stream.flush()
        stream.flush()
        thread.turn()
        frames = kernel.got.split(b",")[:-1]
        assert sorted(frames) == ([b"first", b"second", b"third"] if reached else [b"first"]), place
        assert (pipe.frames_out, pipe.bytes_out) == (len(frames), len(kernel.got))
        place += 1
    assert place > 5


@pytest.mark.parametrize("room", range(5, 5 + len(b"goodbye") + 1))
def test_a_goodbye_without_room_in_the_kernel_is_sent_later(room: int) -> None:
    """Our direction stayed open, and ``close()`` waited for the peer, which waited for our end."""
    stream, pipe, kernel, _, _ = running(room)
    pipe.send(b"12345")
    stream.flush()
    stream.close()
    stream.flush()
    assert kernel.shut == (room >= 12)
    kernel.room = 100
    stream.happened(EVENT_WRITE)
    assert kernel.got == b"12345goodbye" and kernel.shut


def test_replies_owed_to_a_peer_that_does_not_read_are_bounded() -> None:
    """A WebSocket client that sent pings and read nothing filled the memory."""
    stream, _, kernel, thread, _ = running(10)
    ping = bytes(65536)
    heard = 0
    while thread.watched & EVENT_READ:
        kernel.heard.append(ping)
        stream.happened(EVENT_READ)
        heard += 1
        assert heard < 100, "it reads without end"
    assert heard == REPLIES_MAX // len(ping) + 1
    kernel.room = heard * len(ping)
    stream.happened(EVENT_WRITE)
    assert thread.watched == EVENT_READ


# --- whole sockets


def peer_of(listener: Any, header: bytes) -> socket.socket:
    """A peer within the process that sends this and reads nothing."""
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_S)
    ours.sendall(header)
    listener._handed_over(theirs)
    return ours


def test_a_peer_that_leaves_as_it_is_answered_leaves_nothing() -> None:
    """The pipe remained, took messages, and ``close()`` waited for it."""
    request = Greeting.of(int(ProtocolNumber.PULL0), int(ProtocolNumber.PUSH0))
    codec = WebSocketCodec(DiallingUpgrade(request, "127.0.0.1", "/", 0))
    with blocking.Push0(listen="ws://127.0.0.1:0/", linger_s=None) as push:
        (listener,) = push.listeners
        with push._core.lock.held:
            peer_of(listener, codec.begin().replace(b"127.0.0.1", listener.url[5:-1].encode())).close()
        until(lambda: sum(listener.refused.values()) + push.statistics().detached)
        assert push.pipes == []
        assert ends(push.close)


def test_a_peer_that_leaves_costs_a_node_no_other_peer() -> None:
    """Forwarding changed the list of peers during the iteration: the node's thread ended, and it closed."""
    with blocking.Star0(listen="inproc://node", send_queue=4) as node:
        peers = [peer_of(node.listeners[0], encode_header(ProtocolNumber.STAR0)) for _ in range(3)]
        node.wait_for_peers(3, LIMIT_S)
        run = b"".join((8).to_bytes(8, "big") + bytes(4) + b"body" for _ in range(3))
        with node._core.lock.held:
            streams = [pipe.connection for pipe in node._core.roster.pipes.values()]
            peers[2].close()
            for number in (0, 1):
                peers[number].sendall(run)
                streams[number].happened(EVENT_READ)  # type: ignore[attr-defined]
        until(lambda: len(node.pipes) == 2)
        assert [node.recv(LIMIT_S) for _ in range(6)] == [b"body"] * 6
        for peer in peers:
            peer.close()


def test_a_request_to_a_peer_that_is_gone_goes_to_another() -> None:
    """The pipe ended before the pattern knew of the request, and the request was never sent again."""
    with blocking.Req0(listen="inproc://requests", resend_s=1000.0) as req:
        header = encode_header(ProtocolNumber.REP0)
        first, second = (peer_of(req.listeners[0], header) for _ in range(2))
        req.wait_for_peers(2, LIMIT_S)
        ready = req._core.pattern._rotation._ready  # type: ignore[attr-defined]
        with req._core.lock.held:
            assert ready[0] is next(iter(req._core.roster.pipes.values()))
            first.close()
            req.send(b"question", LIMIT_S)
        second.settimeout(LIMIT_S)
        heard = second.recv(1000)
        while not heard.endswith(b"question"):
            heard += second.recv(1000)
        second.sendall(len(heard[16:]).to_bytes(8, "big") + heard[16:])
        assert req.recv(LIMIT_S) == b"question"
        second.close()
