"""The plain stream: eight bytes each way, then frames with their lengths in front (TCP, ipc, inside TLS).

Sources: nanomsg RFCs sp-tcp-mapping-01, sp-ipc-mapping-01 and sp-tls-v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from protocols.errors import HandshakeError, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.wire.framing import LENGTH, FrameDecoder, encode_buffers
from protocols.wire.handshake import HEADER_SIZE, Greeting, encode_header, parse_header

_pack_length: Final = LENGTH.pack  # bound once: every single frame uses it


class SpCodec:
    """One end of a plain stream; see `protocols.wire.codec.Codec`.

    ``size_max`` bounds a payload in bytes (0 = no limit), ``lead`` is the byte in front of each length (ipc).
    """

    __slots__ = ("_decoder", "_greeting", "_header", "_lead", "ended", "failure", "peer", "reply")

    identity: PeerIdentity | None = None
    last_words = ""
    repeatable = True

    def __init__(self, greeting: Greeting, size_max: int, lead: bytes) -> None:
        self.peer = 0
        self.reply = b""
        self.ended = False  # a plain stream has no farewell
        self._greeting = greeting
        self._lead = lead
        self._header = b""
        self.failure: RemoteProtocolError | None = None
        self._decoder = FrameDecoder(size_max, lead)

    @property
    def inside_frame(self) -> bool:
        return self._decoder.inside_frame

    def begin(self) -> bytes:
        return b"" if self._greeting.wait else encode_header(self._greeting.own)

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        if not self.peer:
            chunk = self._open(chunk)
            if not chunk:
                return []
        decoder = self._decoder
        frames = decoder.feed(chunk)
        if decoder.failure is not None:
            self.failure = decoder.failure
        return frames

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        return encode_buffers(frames, self._lead)

    def encode_small(self, frame: bytes) -> bytes:
        return self._lead + _pack_length(len(frame)) + frame

    def end(self) -> bytes:
        return b""

    def progress(self) -> str:
        return f"{len(self._header)} of {HEADER_SIZE} header bytes"

    def _open(self, chunk: bytes | memoryview) -> bytes | memoryview:
        """Take the header's bytes off the chunk; return the rest, empty while the header is incomplete."""
        missing = HEADER_SIZE - len(self._header)
        if self.failure is not None:
            return b""
        self._header += chunk[:missing]
        if len(self._header) < HEADER_SIZE:
            return b""
        try:
            peer = parse_header(self._header)
            own = self._greeting.answer(peer)
        except HandshakeError as error:
            self.failure = error
            return b""
        self.peer = peer
        if self._greeting.wait:
            self.reply = encode_header(own)
        return chunk[missing:]
