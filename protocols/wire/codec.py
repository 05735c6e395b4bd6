"""What a stream transport speaks: bytes to frames and back, its handshake included.

A `Codec` is one end of one stream, without I/O and without a clock; `protocols.transports.stream` moves the
bytes. Codecs wrap: TLS round the plain protocol or round WebSocket.

```
begin() -> bytes out                         what this side says first
receive(bytes in) -> frames                  until the handshake is done, its bytes are consumed on the way
    .reply    bytes out                      what is owed for what came: an answer, a pong, a TLS record
    .peer     0 until the handshake is done
    .failure  the rule that the peer broke; nothing can be read after it
    .ended    the peer said its last word in good order
encode(frames) -> bytes out
encode_small(frame) -> bytes out             the same for one that is small, and all that there is to say now
end() -> bytes out                           what this side says last
```

A chunk may hold the end of the handshake and frames behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from protocols.errors import RemoteProtocolError
from protocols.identity import PeerIdentity

SMALL: Final = 8192
"""Below this many bytes a frame is small."""


class Codec(Protocol):
    """See the module."""

    reply: bytes
    """Owed to the peer; whoever moves the bytes writes and clears it. After a failure: the last words."""

    @property
    def repeatable(self) -> bool:
        """Whether `encode` gives the same again for frames that it has encoded, or half encoded."""

    @property
    def peer(self) -> int:
        """The peer's protocol number; 0 until the handshake is done."""

    @property
    def failure(self) -> RemoteProtocolError | None:
        """Which rule the peer broke; a `HandshakeError` as long as ``peer`` is 0."""

    @property
    def ended(self) -> bool:
        """True once the peer has taken its leave in a way of its own, while the stream is still open."""

    @property
    def last_words(self) -> str:
        """Why the peer took its leave, if it said so; for people."""

    @property
    def identity(self) -> PeerIdentity | None:
        """Who the peer proved to be, if the handshake has such proofs."""

    @property
    def inside_frame(self) -> bool:
        """True if the stream may not end here without losing a frame."""

    def begin(self) -> bytes:
        """What this side says before it has heard anything; may be empty."""

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        """The payloads that ``chunk`` completes, in order. The chunk's memory may be used again."""

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        """Buffers to write, in order; a large frame may be one of them, not copied."""

    def encode_small(self, frame: bytes) -> bytes:
        """As `encode`, of one frame below `SMALL`, in one buffer: most of what is written alone."""

    def end(self) -> bytes:
        """What this side says before it closes; may be empty."""

    def progress(self) -> str:
        """How far the handshake came: the subject of the sentence when its time is over."""
