"""WebSocket: one message is one binary message, and the subprotocol is the SP header.

Sources: RFC 6455, nanomsg RFC sp-websocket-v1, and what NNG 1.11, nanomsg 1.1.5 and mangos 3 do. The opening
is in `protocols.wire.upgrade`; after it:

* We send binary messages, in fragments of `FRAGMENT_SIZE` bytes (NNG refuses frames above 1 MiB, whatever its
  receive limit), masked by the dialer. We never ping: nanomsg hands the payload of a ping to its application.
* A ping is answered; several in one chunk get one pong, to the last (RFC 6455 section 5.5.3). A close is
  answered and ends the stream. Fragments are put together, even with control frames between them.
* A broken rule costs the connection, after a close frame that says which:

=======  ====================================================================================
1002     masking the wrong way round, a reserved bit, an unknown opcode, a fragment out of place
1003     a text message
1009     a message above the limit, detected in the header of the frame that exceeds it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.extensions import Extension
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits

from protocols.errors import MessageTooLarge, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade

FRAGMENT_SIZE: Final = 65536
"""The most payload bytes in one frame of ours; NNG uses the same size."""

REASON_MAX: Final = 123
"""Bytes of the sentence in a close frame (RFC 6455 section 5.5)."""

_LEAVING: Final = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD)
_NAMES: Final[dict[int, str]] = {
    CloseReason.PROTOCOL_ERROR: "protocol error",
    CloseReason.UNSUPPORTED_DATA: "unsupported data",
    CloseReason.INVALID_FRAME_PAYLOAD_DATA: "invalid data",
    CloseReason.POLICY_VIOLATION: "policy violation",
    CloseReason.MESSAGE_TOO_BIG: "message too big",
    CloseReason.INTERNAL_ERROR: "internal error",
}

_NO_RESERVED_BITS: Final = RsvBits(False, False, False)
_HEAD_SIZE: Final = 2
_MASK_SIZE: Final = 4


class WebSocketCodec:
    """One end of a WebSocket, which ``upgrade`` opens; see `protocols.wire.codec.Codec`."""

    __slots__ = (
        "_failure",
        "_fed",
        "_heads",
        "_message",
        "_stream",
        "_upgrade",
        "ended",
        "last_words",
        "peer",
        "reply",
    )

    identity: PeerIdentity | None = None
    repeatable = False  # it tracks whether the last fragment ended a message

    def __init__(self, upgrade: DiallingUpgrade | AcceptingUpgrade) -> None:
        self.peer = 0
        self.reply = b""
        self.ended = False
        self.last_words = ""
        self._upgrade: DiallingUpgrade | AcceptingUpgrade | None = upgrade
        self._stream: Connection | None = None
        self._heads: FrameHeads | None = None
        self._fed = 0
        self._message = bytearray()
        self._failure: RemoteProtocolError | None = None

    @property
    def failure(self) -> RemoteProtocolError | None:
        return self._failure

    @property
    def inside_frame(self) -> bool:
        heads = self._heads
        return heads is not None and (self._fed != heads.framed or heads.inside_message)

    def begin(self) -> bytes:
        assert self._upgrade is not None
        return self._upgrade.request

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        if self._failure is not None or self.ended or not chunk:
            return []
        if self._stream is None:
            chunk = self._open(chunk)
            if not chunk:
                return []
        return self._read(chunk)

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        stream = self._stream
        if stream is None or stream.state is not ConnectionState.OPEN:
            return ()  # the peer has closed
        if max(map(len, frames), default=0) > FRAGMENT_SIZE:
            return _in_fragments(stream, frames)
        send = stream.send
        return (b"".join([send(BytesMessage(frame)) for frame in frames]),)

    def encode_small(self, frame: bytes) -> bytes:
        return b"".join(self.encode((frame,)))

    def end(self) -> bytes:
        return self._say_close(CloseReason.NORMAL_CLOSURE)

    def progress(self) -> str:
        return self._upgrade.progress() if self._upgrade is not None else "an open WebSocket"

    # ---

    def _open(self, chunk: bytes | memoryview) -> bytes:
        """Take the handshake off the chunk; return what comes after it."""
        upgrade = self._upgrade
        assert upgrade is not None
        rest = upgrade.receive(chunk)
        self.reply = upgrade.reply
        self._failure = upgrade.failure
        if upgrade.peer:
            accepting = isinstance(upgrade, AcceptingUpgrade)
            self.peer = upgrade.peer
            self._heads = FrameHeads(upgrade.size_max, masked=accepting)
            side = ConnectionType.SERVER if accepting else ConnectionType.CLIENT
            self._stream = Connection(side, [self._heads])
            self._upgrade = None
        return rest

    def _read(self, chunk: bytes | memoryview) -> list[bytes]:
        stream = self._stream
        assert stream is not None
        self._fed += len(chunk)
        stream.receive_data(chunk)  # type: ignore[arg-type]  # it is copied
        frames: list[bytes] = []
        ping: Ping | None = None
        for event in stream.events():
            if isinstance(event, BytesMessage):
                self._collect(event, frames)
            elif isinstance(event, Ping):
                ping = event
            elif isinstance(event, CloseConnection):
                self._hear_close(event)
        if ping is not None and stream.state is ConnectionState.OPEN and self._failure is None:
            self.reply += stream.send(ping.response())
        return frames

    def _collect(self, event: BytesMessage, frames: list[bytes]) -> None:
        message = self._message
        if not event.message_finished:
            message += event.data
        elif message:
            message += event.data
            frames.append(bytes(message))
            self._message = bytearray()
        else:
            frames.append(bytes(event.data))

    def _hear_close(self, event: CloseConnection) -> None:
        """Handle the peer's close frame, or wsproto's report of a broken rule, which changes no state of
        it.
        """
        assert self._stream is not None and self._heads is not None
        if self._stream.state in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED):
            self.ended = True
            self._fed = self._heads.framed  # bytes after a close frame mean nothing
            self.last_words = _words_of(event)
            self.reply += self._say_close(event.code)
        else:
            sentence = f"the peer broke a rule of WebSocket: {event.reason}"
            self._failure = self._heads.failure or RemoteProtocolError(sentence)
            self.reply += self._say_close(event.code, str(self._failure))

    def _say_close(self, code: int, reason: str = "") -> bytes:
        stream = self._stream
        if stream is None or stream.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return b""
        return stream.send(
            CloseConnection(code, reason.encode()[:REASON_MAX].decode(errors="ignore") or None)
        )


def _words_of(event: CloseConnection) -> str:
    """The reason why the peer closes, for people; empty if it gives none."""
    if event.code in _LEAVING:
        return ""
    words = "".join(sign if sign.isprintable() else "?" for sign in event.reason or "")
    name = _NAMES.get(event.code, "")
    return " ".join(str(part) for part in (int(event.code), words or name) if part)


def _in_fragments(stream: Connection, frames: Sequence[bytes]) -> Iterator[bytes]:
    """Yield frames on demand. That may take a while, and the peer's close can come in between."""
    for frame in frames:
        for start in range(0, len(frame) or 1, FRAGMENT_SIZE):
            if stream.state is not ConnectionState.OPEN:
                return
            end = start + FRAGMENT_SIZE
            yield stream.send(BytesMessage(frame[start:end], message_finished=end >= len(frame)))


class FrameHeads(Extension):
    """Checks the header of every frame before its payload is taken; see the module. Never offered to the
    peer.

    ``framed`` is the number of bytes on the wire of the whole frames so far. ``inside_message`` is True if
    the last of them ended no message. ``failure`` is set if a header made us refuse.
    """

    name = "x-frame-heads"

    def __init__(self, size_max: int, *, masked: bool) -> None:
        self.framed = 0
        self.inside_message = False
        self.failure: RemoteProtocolError | None = None
        self._size_max = size_max
        self._head_size = _HEAD_SIZE + (_MASK_SIZE if masked else 0)
        self._payload_size = 0
        self._message_size = 0
        self._is_control = False

    def enabled(self) -> bool:
        return True

    def offer(self) -> bool:
        return False

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Called again for the same frame if its header comes in parts."""
        if opcode is Opcode.TEXT:
            self.failure = RemoteProtocolError(
                "the peer sent a text message; the Scalability Protocols are binary", reason="text message"
            )
            return CloseReason.UNSUPPORTED_DATA
        self._is_control = opcode.iscontrol()
        self._payload_size = payload_length
        if not self._is_control:
            size = self._message_size + payload_length
            if size > self._size_max > 0:
                self.failure = MessageTooLarge(size, self._size_max)
                return CloseReason.MESSAGE_TOO_BIG
        return _NO_RESERVED_BITS

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> None:
        size = self._payload_size
        self.framed += self._head_size + size + (0 if size < 126 else 2 if size < 65536 else 8)
        if not self._is_control:
            self._message_size = 0 if fin else self._message_size + size
            self.inside_message = not fin
