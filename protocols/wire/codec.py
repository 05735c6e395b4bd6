"""The codec of a stream transport: bytes to frames and back, including the handshake.

A `Codec` is one end of one stream, without I/O and without a clock; `protocols.transports.stream` moves the
bytes. Codecs can wrap each other: TLS around the plain protocol or around WebSocket.

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

A chunk may hold the end of the handshake and frames after it.
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
    """Bytes owed to the peer; the mover of the bytes writes and clears it. After a failure: the farewell."""

    @property
    def repeatable(self) -> bool:
        """True if `encode` gives the same result again for frames that it has encoded, or half encoded."""

    @property
    def peer(self) -> int:
        """The peer's protocol number; 0 until the handshake is done."""

    @property
    def failure(self) -> RemoteProtocolError | None:
        """The rule that the peer broke; a `HandshakeError` as long as ``peer`` is 0."""

    @property
    def ended(self) -> bool:
        """True once the codec received the peer's farewell, while the stream is still open."""

    @property
    def last_words(self) -> str:
        """The reason in the peer's farewell, if any; for people."""

    @property
    def identity(self) -> PeerIdentity | None:
        """The peer's proven identity, if the handshake has such proofs."""

    @property
    def inside_frame(self) -> bool:
        """True if the stream cannot end here without losing a frame."""

    def begin(self) -> bytes:
        """The bytes that this side sends before it has received any; may be empty."""

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        """The payloads that ``chunk`` completes, in order. The chunk's memory may be reused."""

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        """Buffers to write, in order; a large frame may be one of them, not copied."""

    def encode_small(self, frame: bytes) -> bytes:
        """Like `encode`, for one frame below `SMALL`, in one buffer: the common case of a frame written
        alone.
        """

    def end(self) -> bytes:
        """The bytes that this side sends before it closes; may be empty."""

    def progress(self) -> str:
        """How far the handshake came: the subject of the message when its time is over."""
