"""The path of blocks to one consumer: a subscription, a link, a stock subscriber.

An `Outlet` joins four things, each of them a choice:

* *credit*: whether the consumer accepts more now (`SendCredit`; `unlimited` for protocols without credit);
* a *port*: whether its connection accepts more now;
* a *backlog*: the policy for blocks that cannot go now (`mesh.dataplane.backlogs`);
* an *encoder*: the frames of a block. `block_encoder` makes those of our own sessions. Another protocol
  brings its own, as `mesh.broker.stock` does.

A block goes at once if nothing waits before it and credit and port allow it. An outlet that `catches_up`
begins *behind*: it reads its backlog, a cursor over kept blocks, to the end, and is live from then on.

Pure: an outlet appends finished frames to its port, which hands them to its pipe at the end of the turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from mesh.dataplane.backlogs import Backlog, Buffer, QueuedBlock
from mesh.dataplane.credit import HeldCredit
from mesh.dataplane.ports import Port
from mesh.wire.session_frames import SendCredit, data_head

Encoder = Callable[[list[bytes], Buffer, int, int, int], None]
"""``encode(frames, block, hops, flags, sequence)`` appends the frames of a block."""

HEAD_FRONT: Final = 4
"""Bytes at the front of a DATA frame's head that never change."""
_rest: Final = struct.Struct(">BBHIQBI").pack
"""Packs the other bytes. Packing only these saves a tenth of a block's cost for a subscriber."""
_join: Final = b"".join


def block_encoder(prefix: bytes, number: int) -> Encoder:
    """Encodes a block unchanged behind a new head. ``prefix`` is the SP backtrace of a session, empty on a
    link. ``number`` is the subscription's, 0 on a link."""

    front = prefix + data_head(0, 0, number, 0, 0)[:HEAD_FRONT]

    def encode(frames: list[bytes], block: Buffer, hops: int, flags: int, sequence: int) -> None:
        rest = _rest(hops, flags, 0, number, sequence, 0xC6, len(block))
        frames.append(_join((front, rest, block)))

    return encode


def unlimited() -> SendCredit:
    """Credit of a consumer that only its connection limits."""
    return SendCredit(1 << 62, 1 << 62)


class Outlet:
    """See the module."""

    __slots__ = (
        "_granted_bytes",
        "_granted_messages",
        "backlog",
        "behind",
        "credit",
        "encode",
        "frames",
        "port",
        "prefix",
        "sequence",
        "window",
    )

    def __init__(
        self, port: Port, credit: SendCredit, backlog: Backlog, encode: Encoder, prefix: bytes = b""
    ) -> None:
        self.port = port
        self.frames = port.ready
        self.credit = credit
        self.backlog = backlog
        self.encode = encode
        self.prefix = prefix
        """Bytes before a finished frame."""
        self.sequence = 0
        """Number of the last block. A dropped block leaves a gap that the consumer can see."""
        self.behind = False
        """Blocks wait in the backlog, and new ones must wait behind them."""
        self._granted_messages = credit.messages
        self._granted_bytes = credit.bytes
        """Credit since the beginning. What is left of it says how much was sent, without counting that."""
        self.window: int | None = None
        """Messages that may be in flight: the first credit granted. None before any grant."""

    @property
    def dropped(self) -> int:
        """Messages dropped because the consumer was slow."""
        return self.backlog.dropped

    @property
    def under_way(self) -> int:
        """Messages sent without a grant since: the consumer has not confirmed their arrival."""
        return 0 if self.window is None else max(0, self.window - self.credit.messages)

    @property
    def sent(self) -> tuple[int, int]:
        """Messages and bytes that were sent to the consumer."""
        return self._granted_messages - self.credit.messages, self._granted_bytes - self.credit.bytes

    def offer(self, block: Buffer, messages: int, hops: int, flags: int) -> bool:
        """Send a block now if possible. False if it must `wait`."""
        credit, port = self.credit, self.port
        if self.behind or credit.messages <= 0 or credit.bytes <= 0 or port.bytes_out >= port.bytes_max:
            return False
        self.sequence = sequence = self.sequence + 1
        size = len(block)
        credit.messages -= messages
        credit.bytes -= size
        port.messages_out += messages
        port.bytes_out += size
        frames = self.frames
        if not frames:
            port.wake()
        self.encode(frames, block, hops, flags, sequence)
        return True

    def wait(
        self, block: Buffer, messages: int, hops: int, flags: int, held: HeldCredit | None, now: float
    ) -> None:
        """Let an offered block wait. It holds its sender's credit if the backlog decides so."""
        self._wait(QueuedBlock(block, messages, hops, flags, number=self.sequence + 1, held=held), now)

    def offer_frame(self, frame: bytes, now: float) -> None:
        """Send a finished frame (a question). It counts as one message and stays in order with the blocks."""
        item = QueuedBlock(frame, 1, finished=True)
        if self.behind or not self.credit.open or self.port.full:
            self._wait(item, now)
        else:
            self._send(item, frame)

    def granted(self, messages: int, size: int, now: float) -> None:
        """The consumer granted credit: it is alive, and waiting blocks go as far as the credit reaches. The
        first credit is its window."""
        if self.window is None:
            self.window = messages
        self.credit.grant(messages, size)
        self._granted_messages += messages
        self._granted_bytes += size
        self.resume(now)

    def resume(self, now: float) -> None:
        """The consumer made progress: send what may go from the backlog."""
        self.backlog.progress(now)
        if self.behind:
            self.pump()

    def catch_up(self) -> None:
        """Begin behind: read the backlog first."""
        self.behind = True
        self.pump()

    def pump(self) -> None:
        """Send waiting blocks as far as credit and port allow."""
        credit, port, backlog = self.credit, self.port, self.backlog
        while credit.messages > 0 and credit.bytes > 0:
            if port.bytes_out >= port.bytes_max:
                port.blocked[self] = None
                return
            item = backlog.pop()
            if item is None:
                self.behind = False
                port.turn.waiting.pop(self, None)
                port.blocked.pop(self, None)
                return
            assert item.block is not None
            self._send(item, item.block)

    def close(self) -> int:
        """The consumer has left: give all credit back. Returns the messages that still waited."""
        self.port.turn.waiting.pop(self, None)
        self.port.blocked.pop(self, None)
        return self.backlog.close()

    def _wait(self, item: QueuedBlock, now: float) -> None:
        port = self.port
        if self.backlog.push(item, now) and not item.finished:
            self.sequence += 1
        if not self.behind and self.backlog.messages:
            self.behind = True
            port.turn.waiting[self] = None
        if port.bytes_out >= port.bytes_max:
            port.blocked[self] = None

    def _send(self, item: QueuedBlock, block: Buffer) -> None:
        credit, port = self.credit, self.port
        size = len(block)
        credit.messages -= item.messages
        credit.bytes -= size
        port.messages_out += item.messages
        port.bytes_out += size
        frames = self.frames
        if not frames:
            port.wake()
        if item.finished:
            frames.append(_join((self.prefix, block)))
        else:
            if not item.number:
                self.sequence += 1
            self.encode(frames, block, item.hops, item.flags, item.number or self.sequence)
