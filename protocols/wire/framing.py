"""Bytes of a stream to frames and back.

A frame on TCP is ``length u64 big-endian`` and the payload; on ipc a byte ``01`` goes in front. That byte is
the *lead* here: `TCP_LEAD` is empty, `IPC_LEAD` one byte long. Length 0 is legal. A payload is SP header
words and body together; this module inspects neither.

Both directions work on runs. A 128-byte message costs about 40 ns to decode and 30 to encode, since peers
tend to send frames of one size. For these, `encode_frames` joins with the packed length as the separator.
`FrameDecoder`, having seen some equal frames, unpacks the next with one struct until a length differs.

The decoder is in one of three states, told by ``_frame`` and ``_start``:

* between frames: both are empty.
* inside a prefix: ``_start`` holds its first bytes (fewer than nine).
* inside a payload: ``_frame`` collects it. It grows only as bytes arrive, so a peer that announces 64 MiB and
  sends nothing takes no memory. It is a `BytesIO`, because that grows in place and returns its bytes without
  a copy, so a message of 64 MiB is in memory once.

A broken rule ends decoding: ``failure`` is set, the frames before it are still returned, later bytes ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from struct import Struct
from typing import Final

from protocols.errors import MessageTooLarge, RemoteProtocolError

TCP_LEAD: Final = b""
IPC_LEAD: Final = b"\x01"

LENGTH: Final = Struct(">Q")
BUFFER_SIZE: Final = 262144
"""The size at which `encode_buffers` begins another buffer. 64 KiB frames cost the sender 36, 28, 25 and 27
us in buffers of 64, 128, 256 and 512 KiB, and 95 us in a single buffer.
"""
_LARGE: Final = 8192
"""Frames from this size on are cut out of the chunk itself: a second copy would cost more than checking
each.
"""
_RUN_AFTER: Final = 8
"""Equal frames in a row before a run is tried: an attempt that ends at once costs as much as three frames."""


def encode_frames(frames: Sequence[bytes], lead: bytes = TCP_LEAD) -> bytes:
    """One buffer with every frame after its prefix."""
    if len(frames) == 1:
        return lead + LENGTH.pack(len(frames[0])) + frames[0]
    return _joined(frames, set(map(len, frames)), lead)


def encode_buffers(frames: Sequence[bytes], lead: bytes = TCP_LEAD) -> Iterable[bytes]:
    """Like `encode_frames`, in buffers of about `BUFFER_SIZE`; a frame of that size is a buffer of its own,
    not copied.

    One buffer of sixteen megabytes costs four times as much as the same bytes in pieces that stay in the
    processor's cache.
    """
    if len(frames) == 1:
        size = len(frames[0])
        prefix = lead + LENGTH.pack(size)
        return (prefix + frames[0],) if size < BUFFER_SIZE else (prefix, frames[0])
    sizes = set(map(len, frames))
    if max(sizes, default=0) * len(frames) <= BUFFER_SIZE:
        return (_joined(frames, sizes, lead),)
    return _in_buffers(frames, lead)


def _joined(frames: Sequence[bytes], sizes: set[int], lead: bytes) -> bytes:
    if len(sizes) == 1:
        prefix = lead + LENGTH.pack(sizes.pop())
        return prefix + prefix.join(frames)
    prefixes = {size: lead + LENGTH.pack(size) for size in sizes}
    parts: list[bytes] = []
    for frame in frames:
        parts += (prefixes[len(frame)], frame)
    return b"".join(parts)


def _in_buffers(frames: Sequence[bytes], lead: bytes) -> Iterator[bytes]:
    """Yield buffers on demand, so that only one is in memory."""
    parts: list[bytes] = []
    size = 0
    for frame in frames:
        parts.append(lead + LENGTH.pack(len(frame)))
        if len(frame) >= BUFFER_SIZE:
            yield b"".join(parts)
            yield frame
            parts, size = [], 0
            continue
        parts.append(frame)
        size += len(frame)
        if size >= BUFFER_SIZE:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


class FrameDecoder:
    """Cuts a byte stream into payloads.

    ``size_max`` bounds a payload in bytes (0 = no limit); it is checked before memory is taken.
    """

    __slots__ = (
        "_frame",
        "_lead",
        "_missing",
        "_mixed",
        "_prefix_size",
        "_run",
        "_run_size",
        "_start",
        "failure",
        "size_max",
    )

    def __init__(self, size_max: int, lead: bytes = TCP_LEAD) -> None:
        self.size_max = size_max
        self.failure: RemoteProtocolError | None = None
        """What the peer did wrong; once set, nothing more can be read from the stream."""
        self._lead = lead
        self._prefix_size = len(lead) + LENGTH.size
        self._start = b""
        self._frame: BytesIO | None = None
        self._missing = 0
        self._mixed = False
        self._run_size = -1
        self._run = Struct("")

    @property
    def inside_frame(self) -> bool:
        """True if the stream cannot end here without losing a frame."""
        return self._frame is not None or bool(self._start)

    def feed(self, chunk: bytes | memoryview) -> list[bytes]:
        """The frames that ``chunk`` completes, in order. The chunk's memory may be reused."""
        if self.failure is not None:
            return []
        prefix_size, got = self._prefix_size, len(chunk)
        if self._frame is None and not self._start and got >= prefix_size:
            (size,) = LENGTH.unpack_from(chunk, prefix_size - 8)
            if size + prefix_size == got and not size > self.size_max > 0:
                if prefix_size == 8 or chunk[0] == self._lead[0]:
                    return [bytes(chunk[prefix_size:])]  # alone in an idle stream: the case of a round trip
        frames: list[bytes] = []
        if self._frame is not None:
            rest = self._collect(chunk, frames)
            if not rest:
                return frames
            chunk = rest
        if not self._start and len(chunk) >= _LARGE:
            chunk = self._cut_large(memoryview(chunk), frames)
            if not chunk:
                return frames
        data = self._start + chunk  # a copy either way: bytes + memoryview is bytes
        self._start = b""
        self._cut(data, frames)
        return frames

    def _cut_large(self, chunk: memoryview, frames: list[bytes]) -> memoryview:
        """Take leading frames of `_LARGE` bytes and more, copied once instead of twice; return the rest."""
        position, end, prefix_size = 0, len(chunk), self._prefix_size
        while position + prefix_size <= end:
            (size,) = LENGTH.unpack_from(chunk, position + len(self._lead))
            payload = position + prefix_size
            if size < _LARGE or size > self.size_max > 0 or payload + size > end:
                break
            if self._lead and chunk[position] != self._lead[0]:
                break
            frames.append(bytes(chunk[payload : payload + size]))
            position = payload + size
        return chunk[position:]

    def _collect(self, chunk: bytes | memoryview, frames: list[bytes]) -> bytes | memoryview:
        """Add to the frame that is being received; return what comes after its end."""
        assert self._frame is not None
        taken = chunk[: self._missing]
        self._frame.write(taken)
        self._missing -= len(taken)
        if self._missing:
            return b""
        frames.append(self._frame.getvalue())
        self._frame = None
        return chunk[len(taken) :]

    def _cut(self, data: bytes, frames: list[bytes]) -> None:
        prefix_size = self._prefix_size
        lead = self._lead
        offset = len(lead)
        size_max = self.size_max
        unpack_length = LENGTH.unpack_from
        position = 0
        end = len(data)
        previous = -1
        equal = 0
        self._mixed = False
        while position + prefix_size <= end:
            if lead and data[position] != lead[0]:
                self._fail_lead(data[position])
                return
            (size,) = unpack_length(data, position + offset)
            if size > size_max > 0:
                self.failure = MessageTooLarge(size, size_max)
                return
            payload = position + prefix_size
            if payload + size > end:
                self._frame = BytesIO()
                self._frame.write(memoryview(data)[payload:])
                self._missing = payload + size - end
                return
            frames.append(data[payload : payload + size])
            position = payload + size
            if size != previous:
                previous = size
                equal = 0
            equal += 1
            if equal == _RUN_AFTER:
                position = self._cut_run(data, position, size, frames)
                equal = 0
        self._start = data[position:]

    def _cut_run(self, data: bytes, position: int, size: int, frames: list[bytes]) -> int:
        """Cut frames of one known size, until another prefix appears; return its position."""
        step = size + self._prefix_size
        if size != self._run_size:
            self._run_size = size
            self._run = Struct(f"{self._prefix_size}x{size}s")
        count = self._count_run(data, position, step, self._lead + LENGTH.pack(size))
        end = position + count * step
        frames += [payload for (payload,) in self._run.iter_unpack(memoryview(data)[position:end])]
        return end

    def _count_run(self, data: bytes, position: int, step: int, prefix: bytes) -> int:
        """How many frames from ``position`` on have this prefix.

        All first bytes of the prefixes are compared at once, then all second bytes: 8 ns a frame. If that
        found nothing once, the rest of the data is checked prefix by prefix. Otherwise a malicious peer that
        mixes sizes could have all of it compared again and again.
        """
        possible = (len(data) - position) // step
        if not self._mixed:
            end = position + possible * step
            for offset in range(len(prefix)):
                if data[position + offset : end : step] != prefix[offset : offset + 1] * possible:
                    self._mixed = True
                    break
            else:
                return possible
        for count in range(possible):
            if not data.startswith(prefix, position + count * step):
                return count
        return possible

    def _fail_lead(self, found: int) -> None:
        self.failure = RemoteProtocolError(
            f"an ipc frame begins with {found:#04x} instead of {self._lead[0]:#04x}"
        )
